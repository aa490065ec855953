"""Activations, updates and parameters: dead, saturated, out of scale, too large, too small, unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from tests.detect.step_stream import ELEMENTS, UNITS, Stream, chain, decay, feed, join

from neuraldbg.detect.activation_scale import ActivationScale
from neuraldbg.detect.dead_units import DeadUnits
from neuraldbg.detect.saturation import Saturation
from neuraldbg.detect.unchanged_parameters import UnchangedParameters
from neuraldbg.detect.update_ratio import UpdateRatio

LAYOUT = chain(4)


def run(detector, edit=None, n=60, layout=LAYOUT, loss=lambda _: 2.3, **scalars):
    """``edit(stream, table, t)`` changes step t."""
    stream = Stream(layout)
    steps = [
        stream.step(loss(t), edit=(lambda s, table, t=t: edit(s, table, t)) if edit else None, **scalars)
        for t in range(n)
    ]
    return feed(detector, layout, steps)


@pytest.mark.parametrize("detector", [ActivationScale, DeadUnits, Saturation, UnchangedParameters, UpdateRatio])
def test_healthy_run_is_silent(detector):
    assert run(detector()) == []


def test_sparse_relu_is_healthy_and_dead_units_are_told():
    def edit(s, table, t):
        s.put(table, s.row("activation", "act0"), dead=0.45 * UNITS, zeros=0.9 * ELEMENTS)
        if t >= 30:  # 20 readings after they fired last, at step 9
            s.put(table, s.row("activation", "act1"), dead=48.0, dead_rows=1280 + 64 * (t - 30), dead_since=10)
        s.put(table, s.row("activation", "fc3"), dead=float(UNITS))  # the head is no rectifier

    (event,) = run(DeadUnits(), edit)
    assert (event.layer, event.first_step, event.last_step) == ("act1", 10, 59)
    assert event.details["share"] == 0.75
    assert event.details["dead"] == 48.0
    assert event.details["rows"] >= 1280 + 64 * 25


def test_a_layer_whose_units_are_not_known_yet_is_dead_only_if_all_of_it_is_zero():
    unknown = lambda s, table, t: s.put(table, s.row("activation", "act1"), units=0.0)  # noqa: E731
    assert run(DeadUnits(), unknown, n=10) == []

    def zero(s, table, t):
        s.put(table, s.row("activation", "act1"), units=0.0, zeros=ELEMENTS if t >= 4 else 0.0)

    (event,) = run(DeadUnits(), zero, n=10)
    assert (event.first_step, event.last_step) == (4, 9)
    assert (event.details["all_zero"], event.details["share"], event.details["units"]) == (True, 1.0, None)


def test_functional_relu_is_judged_before_it():
    layout = chain(3, activation="", ops={"fc0": ("relu",), "fc1": ("gelu",)})

    def edit(s, table, _):
        for layer in ("fc0", "fc1"):
            s.put(table, s.row("activation", layer), dead=60.0)

    (event,) = run(DeadUnits(), edit, layout=layout)
    assert event.layer == "fc0"


def test_dead_units_have_hysteresis():
    share = [0.6] * 30 + [0.45] * 10 + [0.55] * 10 + [0.1] * 10

    def edit(s, table, t):
        s.put(table, s.row("activation", "act0"), dead=share[t] * UNITS, dead_since=t // 2)

    (event,) = run(DeadUnits(), edit)
    assert (event.first_step, event.last_step) == (0, 49)


def test_saturation_is_judged_in_hidden_layers_only():
    layout = chain(4, activation="Tanh")
    (event,) = run(
        Saturation(),
        lambda s, table, t: s.put(table, s.row("activation", "act1"), saturated=0.8 * ELEMENTS),
        layout=layout,
    )
    assert (event.layer, event.first_step, event.details["activation"]) == ("act1", 0, "Tanh")
    assert event.details["share"] == pytest.approx(0.8)
    head = chain(3, activation="", ops={"fc0": ("tanh",), "fc2": ("sigmoid",)})

    def both(s, table, _):
        for layer in ("fc0", "fc2"):
            s.put(table, s.row("activation", layer), saturated=0.9 * ELEMENTS)

    (event,) = run(Saturation(), both, layout=head)
    assert event.layer == "fc0"


def test_a_generator_may_saturate_before_the_discriminator():
    layout = join(
        chain(2, prefix="g.", model="G", activation="", ops={"g.fc1": ("tanh",)}), chain(2, prefix="d.", model="D")
    )
    edit = lambda s, table, t: s.put(table, s.row("activation", "g.fc1"), saturated=0.9 * ELEMENTS)  # noqa: E731
    assert run(Saturation(), edit, layout=layout) == []


def ratio(layer, value):
    def edit(s, table, t):
        s.put(table, s.row("param", layer, "weight"), rms=0.1)
        s.put(table, s.row("update", layer, "weight"), rms=0.1 * (value(t) if callable(value) else value))

    return edit


def test_high_ratio_needs_to_last_and_an_overwriting_one_does_not():
    (event,) = run(UpdateRatio(), ratio("fc1", 0.3))
    assert (event.kind, event.layer, event.first_step, event.last_step) == ("update_ratio_high", "fc1", 0, 59)
    assert event.details["ratio"] == pytest.approx(0.3)
    assert run(UpdateRatio(), ratio("fc1", 0.3), n=10) == []
    (event,) = run(UpdateRatio(), ratio("fc1", 5.0), n=10)
    assert event.confidence == 0.95


def test_high_ratio_with_a_loss_that_falls_is_healthy():
    loss = decay(100, tau=20)
    assert (
        run(
            UpdateRatio(),
            ratio("fc1", lambda t: 0.5 if 20 < t < 60 else 0.3 if t > 10 else 1e-3),
            100,
            loss=lambda t: loss[t],
        )
        == []
    )


def test_weights_that_begin_at_zero_have_no_ratio():
    def edit(s, table, t):
        s.put(table, s.row("param", "fc3", "weight"), rms=1e-3 * t)
        s.put(table, s.row("update", "fc3", "weight"), rms=1e-3)

    assert run(UpdateRatio(), edit) == []


def test_low_median_is_one_event_of_the_run():
    def edit(s, table, _):
        for i in range(4):
            ratio(f"fc{i}", 1e-7)(s, table, 0)

    (event,) = run(UpdateRatio(), edit, n=100)
    assert (event.kind, event.layer, event.first_step, event.last_step) == ("update_ratio_low", None, 0, 99)
    assert event.details["ratio"] == pytest.approx(1e-7)
    assert run(UpdateRatio(), edit, n=30) == []


def test_low_is_healthy_after_decay_in_warm_up_and_when_learned():
    layout, loss = chain(2), decay(300, tau=20)

    def steps(lr, losses):
        stream = Stream(layout)
        edit = lambda s, table: [ratio(f"fc{i}", 1e-7)(s, table, 0) for i in range(2)]  # noqa: E731
        return [stream.step(losses(t), edit=edit if t > 60 else None, lr=lr(t)) for t in range(300)]

    assert feed(UpdateRatio(), layout, steps(lambda t: 0.1 if t < 60 else 1e-5, lambda _: 2.3)) == []
    assert feed(UpdateRatio(), layout, steps(lambda t: 1e-9 * (t + 1), lambda _: 2.3)) == []
    assert feed(UpdateRatio(), layout, steps(lambda _: 0.1, lambda t: loss[t])) == []


def test_one_matrix_that_stands_still():
    (event,) = run(UpdateRatio(), ratio("fc1", 1e-10), n=80)
    assert (event.layer, event.details["how"]) == ("fc1", "layer")


def same(layer, **grad):
    def edit(s, table, _):
        s.put(table, s.row("update", layer, "weight"), rms=0.0, zeros=ELEMENTS)
        s.put(table, s.row("param_grad", layer, "weight"), **grad)

    return edit


def test_lost_update_is_told_with_its_gradient():
    (event,) = run(UnchangedParameters(), same("fc2", rms=0.01))
    assert (event.layer, event.site, event.first_step, event.confidence) == ("fc2", "update/fc2.weight", 0, 0.95)
    assert event.details["exact"]
    assert not event.details["zero_grad"]
    assert event.details["grad_rms"] == pytest.approx(0.01)


def test_partial_read_does_not_claim_more_than_it_saw():
    def edit(s, table, t):
        same("fc2", rms=0.01)(s, table, t)
        s.put(table, s.row("update", "fc2", "weight"), total=100.0 * ELEMENTS)

    (event,) = run(UnchangedParameters(), edit)
    assert not event.details["exact"]
    assert event.confidence == 0.5


def test_zero_gradient_is_told_apart_and_later():
    (event,) = run(UnchangedParameters(), same("fc2", rms=0.0))
    assert event.details["zero_grad"]
    assert run(UnchangedParameters(), same("fc2", rms=0.0), n=15) == []


def test_no_gradient_settled_loss_and_unapplied_steps_are_not_judged():
    def frozen(s, table, _):
        same("fc2", rms=0.01)(s, table, 0)
        s.hide(table, [s.row("param_grad", "fc2", "weight")])

    assert run(UnchangedParameters(), frozen) == []
    loss = decay(300, tau=10)
    late = lambda s, table, t: same("fc2", rms=1e-9)(s, table, t) if t > 100 else None  # noqa: E731
    assert run(UnchangedParameters(), late, 300, loss=lambda t: float(loss[t])) == []
    stream = Stream(LAYOUT)
    steps = [stream.step(2.3, edit=lambda s, t: same("fc2", rms=0.01)(s, t, 0), applied=False) for _ in range(30)]
    assert feed(UnchangedParameters(), LAYOUT, steps) == []


def scale(stds):
    def edit(s, table, _):
        for i, value in enumerate(stds):
            s.put(table, s.row("activation", f"fc{i}"), rms=float(value))

    return edit


def test_geometric_growth_and_shrinking_at_step_zero():
    layout = chain(8)
    (event,) = run(ActivationScale(), scale(5.0 ** np.arange(8)), layout=layout)
    assert (event.kind, event.first_step, event.layer) == ("activation_scale", 0, "fc2")
    assert event.details["how"] == "grow"
    assert event.details["gain"] == pytest.approx(5.0)
    assert event.details["ratio"] == pytest.approx(5.0**7)
    (event,) = run(ActivationScale(), scale(0.2 ** np.arange(8)), layout=layout)
    assert event.details["how"] == "shrink"
    assert event.details["gain"] == pytest.approx(0.2)


def test_signal_lost_is_told_and_a_zero_head_or_branch_is_not():
    (event,) = run(ActivationScale(), scale([1.0, 1.0, 0.0, 0.0]))
    assert (event.details["how"], event.layer) == ("lost", "fc2")
    assert run(ActivationScale(), scale([1.0, 1.0, 1.0, 0.0])) == []
    assert run(ActivationScale(), scale([1.0, 0.0, 1.0, 1.0])) == []


def test_scale_is_judged_in_the_first_steps_only():
    layout = chain(8)
    late = lambda s, table, t: scale(9.0 ** np.arange(8))(s, table, t) if t >= 10 else None  # noqa: E731
    assert run(ActivationScale(), late, layout=layout) == []


def test_a_large_weight_is_unchanged_from_the_first_step_at_which_its_sample_was():
    """A sample that does not change is read whole some steps later: the event waits for that."""

    def edit(s, table, t, whole=34):
        s.put(table, s.row("update", "fc1", "weight"), total=2.0 * ELEMENTS)
        if t >= 7:
            s.put(table, s.row("param_grad", "fc1", "weight"), rms=0.0)
            seen = 2.0 * ELEMENTS if t >= whole else ELEMENTS
            s.put(table, s.row("update", "fc1", "weight"), rms=0.0, count=seen)

    (event,) = run(UnchangedParameters(), edit)
    assert (event.site, event.first_step, event.last_step) == ("update/fc1.weight", 7, 59)
    assert (event.details["exact"], event.details["zero_grad"]) == (True, True)
    assert event.place == "fc1.weight"
    assert run(UnchangedParameters(), lambda s, table, t: edit(s, table, t, whole=1000)) == []


@pytest.mark.parametrize("detector", [Saturation, DeadUnits])
def test_the_numbers_of_an_event_have_the_step_at_which_they_were_measured(detector):
    share = lambda t: min(1.0, 0.6 + 0.005 * t)  # noqa: E731
    layout = chain(4, activation="Tanh" if detector is Saturation else "ReLU")

    def edit(s, table, t):
        row = s.row("activation", "act1")
        s.put(table, row, saturated=share(t) * ELEMENTS, dead=share(t) * UNITS, dead_rows=300 + t)

    (event,) = run(detector(), edit, layout=layout)
    at = event.details["at_step"]
    assert event.first_step < at <= event.last_step
    assert event.details["share"] == pytest.approx(share(at))
