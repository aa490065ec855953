"""Vanishing and exploding gradients, gradient spikes: by depth, by level, against the own history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.step_stream import ELEMENTS, Stream, chain, decay, feed

from neuraldbg.detect.exploding_gradients import ExplodingGradients
from neuraldbg.detect.gradient_spike import GradientSpike
from neuraldbg.detect.vanishing_gradients import VanishingGradients
from neuraldbg.detect.weight_scale import WeightScale

DEPTH = 6
LAYOUT = chain(DEPTH)
ALL = (VanishingGradients, ExplodingGradients, GradientSpike)


def grads(stream, table, values):
    """Set the gradient RMS of every layer."""
    for i, value in enumerate(values):
        for name in ("weight", "bias"):
            stream.put(table, stream.row("param_grad", f"fc{i}", name), rms=float(value))


def run(detector, profile, n=60, loss=lambda _: 2.3, seed=0, layout=LAYOUT, **scalars):
    """``profile(t)`` gives the gradient RMS of each layer at step t."""
    stream = Stream(layout, seed)
    steps = []
    for t in range(n):
        jitter = np.exp(0.1 * stream.rng.standard_normal(DEPTH))
        values = np.asarray(profile(t), float) * jitter
        steps.append(stream.step(loss(t), edit=lambda s, table, v=values: grads(s, table, v), **scalars))
    return feed(detector, layout, steps)


@pytest.mark.parametrize("detector", ALL)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 2.0, -2.0]), sigma=st.sampled_from([0.2, 1.0]))
def test_noisy_profiles_that_spread_over_two_orders_are_healthy(detector, seed, spread, sigma):
    base = 1e-3 * 10 ** np.linspace(0, spread, DEPTH)
    noise = np.exp(sigma * np.random.default_rng(seed).standard_normal((120, 1)))
    assert run(detector(), lambda t: base * noise[t], 120, seed=seed) == []


def test_vanishing_over_depth_names_layers_from_step_zero():
    profile = 1e-2 * 10.0 ** -np.arange(0, 2 * DEPTH, 2)[::-1]
    events = run(VanishingGradients(), lambda _: profile)
    assert [e.layer for e in events] == ["fc0", "fc1", "fc2"]  # 1e-12, 1e-10, 1e-8; fc3 is at 1e-6
    assert {(e.first_step, e.last_step) for e in events} == {(0, 59)}
    assert [e.details["origin"] for e in events] == [False, False, True]
    assert events[0].details["ratio"] == pytest.approx(1e-10, rel=0.6)
    assert events[0].details["reference_layer"] == "fc5"
    assert all(e.details["how"] == "relative" and e.transition == "gradient_health" for e in events)


def test_converged_run_with_tiny_gradients_everywhere_is_healthy():
    loss = decay(400, end=1e-6, tau=20)
    assert run(VanishingGradients(), lambda t: np.full(DEPTH, 1e-3 * loss[t] ** 2), 400, lambda t: float(loss[t])) == []


def test_gradient_that_dies_with_a_high_loss_is_history():
    events = run(VanishingGradients(), lambda t: np.full(DEPTH, 1e-1 if t < 30 else 2e-6))
    assert [e.first_step for e in events] == [30] * DEPTH
    assert {e.details["how"] for e in events} == {"history"}
    assert events[0].details["early_rms"] == pytest.approx(0.1, rel=0.2)


def test_all_zero_gradients_are_absolute():
    events = run(VanishingGradients(), lambda _: np.zeros(DEPTH))
    assert len(events) == DEPTH
    assert all(e.details["how"] == "absolute" and e.details["zero"] and e.first_step == 0 for e in events)


def test_a_matrix_whose_gradient_vanished_is_named_if_its_bias_still_learns():
    """The biases of all layers learn until step 30, that of the last one to the end."""
    stream = Stream(LAYOUT)

    def edit(s, table, t):
        s.put(table, [r for r in LAYOUT.rows("param_grad") if LAYOUT.sites[r].name == "weight"], rms=0.0)
        biases = [r for r in LAYOUT.rows("param_grad") if LAYOUT.sites[r].name == "bias"]
        s.put(table, biases[:-1] if t >= 30 else [], rms=0.0)

    steps = [stream.step(2.3, edit=lambda s, table, t=t: edit(s, table, t)) for t in range(60)]
    found = {e.layer: e for e in feed(VanishingGradients(), LAYOUT, steps)}
    assert {layer: e.place for layer, e in found.items()} == {layer: f"{layer}.weight" for layer in found}
    assert len(found) == DEPTH
    later = Stream(LAYOUT)
    rows = LAYOUT.rows("param_grad")
    steps = [later.step(2.3, edit=lambda s, table: s.put(table, rows, rms=0.0)) for _ in range(60)]
    assert {e.place for e in feed(VanishingGradients(), LAYOUT, steps)} == set(found)


def test_a_sample_of_zeros_is_no_gradient_of_zero():
    """A batch has few rows of a lookup table, and a sample of its gradient may miss them all."""
    layout = chain(3, kind="Embedding")
    for count, events in ((ELEMENTS, 1), (ELEMENTS // 4, 0)):
        stream, rows = Stream(layout), layout.rows("param_grad", "fc0")
        edit = lambda s, table, c=count, r=rows: s.put(table, r, rms=0.0, count=c)  # noqa: E731
        found = feed(VanishingGradients(), layout, [stream.step(2.3, edit=edit) for _ in range(60)])
        assert len(found) == events


def test_zero_initialised_branches_open_and_are_healthy():
    events = run(VanishingGradients(), lambda t: [0.0 if t == 0 else 1e-9 * 2.0**t, *np.full(DEPTH - 1, 1e-2)], 20)
    assert events == []


def test_vanishing_has_hysteresis():
    rising = [1e-8] * 20 + [2e-6] * 20 + [1e-3] * 20
    (event,) = run(VanishingGradients(), lambda t: [rising[t], *np.full(DEPTH - 1, 1e-2)])
    assert event.first_step == 0
    assert event.last_step == 19


def test_explosion_against_own_history():
    events = run(ExplodingGradients(), lambda t: np.full(DEPTH, 1e-3 * (1 if t < 30 else 1e4)))
    assert [e.first_step for e in events] == [30] * DEPTH
    assert all(e.last_step == 59 for e in events)
    assert events[0].details["growth"] == pytest.approx(1e4, rel=0.4)
    assert events[0].details["norm"] == pytest.approx(10 * np.sqrt(ELEMENTS), rel=0.4)
    assert [e.details["origin"] for e in sorted(events, key=lambda e: e.layer)] == [False] * (DEPTH - 1) + [True]


def test_explosion_at_step_one_of_a_short_run():
    events = run(ExplodingGradients(), lambda t: np.full(DEPTH, 1e-3 if t == 0 else 1e3), 10)
    assert {e.first_step for e in events} == {1}


def test_explosion_that_ends_in_nan_is_told_at_once():
    stream = Stream(LAYOUT)
    rows = LAYOUT.rows("param_grad")
    steps = [stream.step(2.3) for _ in range(10)]
    steps.append(stream.step(2.3, edit=lambda s, t: s.put(t, rows, rms=1e3, nonfinite=5.0)))
    assert {e.first_step for e in feed(ExplodingGradients(), LAYOUT, steps)} == {10}


def test_geometric_growth_toward_the_input_is_relative():
    profile = 1e-2 * 10.0 ** (1.4 * np.arange(DEPTH)[::-1])
    by_size, *events = run(ExplodingGradients(), lambda _: profile, 10)
    assert (by_size.layer, by_size.details["how"]) == ("fc0", "size")  # the first layer is judged by its size alone
    assert {e.details["how"] for e in events} == {"relative"}
    assert [e.layer for e in events] == ["fc1", "fc2"]
    assert events[0].details["ratio"] == pytest.approx(10**5.6, rel=0.5)


def test_large_but_steady_gradients_are_healthy():
    assert run(ExplodingGradients(), lambda _: np.full(DEPTH, 1e3), loss=lambda t: 1e6 * 0.99**t) == []


def test_gradients_beyond_a_million_are_told_without_being_a_symptom():
    events = run(ExplodingGradients(), lambda _: np.full(DEPTH, 1e5), loss=lambda t: 1e6 * 0.99**t)
    assert [(e.layer, e.first_step, e.last_step) for e in events] == [(f"fc{i}", 0, 59) for i in range(DEPTH)]
    assert all(e.details["norm"] > 1e6 and e.details["how"] == "size" for e in events)
    assert all(e.confidence < 0.5 for e in events)


def test_a_gradient_that_grows_out_of_proportion_is_not_told_twice():
    events = run(ExplodingGradients(), lambda t: np.full(DEPTH, 1e-3 if t < 30 else 1e5))
    assert [(e.first_step, e.last_step, e.details["how"]) for e in events] == [(30, 59, "history")] * DEPTH


def test_a_layer_whose_gradient_is_exactly_zero_has_vanished():
    """Also the last one, with none nearer to the loss, and though the loss falls."""
    profile = np.where(np.arange(DEPTH) == DEPTH - 1, 0.0, 1e-3)
    (event,) = run(VanishingGradients(), lambda _: profile, 56, loss=lambda t: 2.0 * 0.98**t)
    assert (event.layer, event.first_step, event.last_step) == (f"fc{DEPTH - 1}", 0, 55)
    assert (event.details["how"], event.details["rms"]) == ("zero", 0.0)
    assert event.confidence < 0.5
    assert run(VanishingGradients(), lambda _: profile, 19, loss=lambda t: 2.0 * 0.98**t) == []


@pytest.mark.parametrize(
    ("fed", "loss", "sure"),
    [
        (lambda t: False, lambda t: 2.0 * 0.999**t, True),
        (lambda t: t < 5, lambda t: 2.0 * 0.999**t, False),
        (lambda t: False, lambda t: 2.0 * 0.97**t, False),
    ],
    ids=["never", "at_first", "while_the_loss_falls"],
)
def test_a_layer_that_no_gradient_ever_reached_is_a_symptom_while_nothing_is_learnt(fed, loss, sure):
    last = np.arange(DEPTH) == DEPTH - 1
    (event,) = run(VanishingGradients(), lambda t: np.where(last & (not fed(t)), 0.0, 1e-3), 80, loss=loss)
    assert event.layer == f"fc{DEPTH - 1}"
    assert event.sure is sure
    assert event.details["always"] is not fed(0)


def test_gradients_of_zero_where_nothing_is_left_to_learn_are_right():
    assert (
        run(VanishingGradients(), lambda t: np.full(DEPTH, 1e-3 if t < 90 else 0.0), 160, loss=lambda t: 9.0**-t) == []
    )


def test_weights_that_are_large_or_have_grown_far():
    stream = Stream(LAYOUT)
    weight, bias = (stream.row("param", "fc1", name) for name in ("weight", "bias"))

    def edit(at):
        def change(s, table):
            s.put(table, weight, rms=1e5)
            s.put(table, bias, rms=0.05 if at < 30 else 20.0)

        return change

    events = feed(WeightScale(), LAYOUT, [stream.step(1.0, edit=edit(at)) for at in range(40)])
    told = {e.site: (e.kind, e.first_step, e.last_step, e.details["how"]) for e in events}
    assert told == {
        "param/fc1.weight": ("large_weights", 0, 39, "size"),
        "param/fc1.bias": ("large_weights", 30, 39, "growth"),
    }
    assert next(e for e in events if "weight" in e.site).details["norm"] == pytest.approx(1e5 * np.sqrt(ELEMENTS))
    assert not feed(WeightScale(), LAYOUT, [Stream(LAYOUT).step(1.0) for _ in range(40)])


def test_going_back_to_the_gradients_of_the_start_is_no_explosion():
    assert run(ExplodingGradients(), lambda t: np.full(DEPTH, 1e-2 if t < 20 or t >= 80 else 1e-6), 100) == []


def test_gradient_spike_names_step_layer_and_ratio():
    events = run(
        GradientSpike(), lambda t: np.full(DEPTH, 1e-3) * (np.array([1, 1, 1, 500, 50, 1]) if t == 70 else 1), 100
    )
    (event,) = events
    assert (event.first_step, event.last_step, event.layer) == (70, 70, "fc3")
    expected = np.sqrt(2 * (500**2 + 50**2) / (2 * 6))  # the detector sees the largest parameter of each layer
    assert event.details["ratio"] == pytest.approx(expected, rel=0.3)


def test_spike_uses_the_measured_norm_and_spares_the_baseline():
    stream = Stream(LAYOUT)
    norms = np.exp(0.2 * np.random.default_rng(0).standard_normal(200))
    norms[[100, 101, 150]] = 200.0
    events = feed(GradientSpike(), LAYOUT, [stream.step(1.0, grad_norm=float(n)) for n in norms])
    assert [(e.first_step, e.last_step) for e in events] == [(100, 101), (150, 150)]
    assert events[1].details["median"] == pytest.approx(1.0, rel=0.15)


def test_spike_of_a_converged_run_is_harmless():
    stream = Stream(LAYOUT)
    norms = np.concatenate([np.full(40, 10.0), np.full(300, 1e-4)]) * np.exp(
        0.1 * np.random.default_rng(0).standard_normal(340)
    )
    norms[300] = 0.05
    assert feed(GradientSpike(), LAYOUT, [stream.step(1.0, grad_norm=float(n)) for n in norms]) == []


@pytest.mark.parametrize("detector", ALL)
def test_layers_of_the_other_optimizer_are_not_seen_and_not_judged(detector):
    stream = Stream(LAYOUT)
    steps = []
    for t in range(80):
        hidden = [r for r in LAYOUT.rows("param_grad") if (LAYOUT.sites[r].module < "fc3") == bool(t % 2)]
        steps.append(stream.step(2.3, stream=t % 2, edit=lambda s, table, h=hidden: s.hide(table, h)))
    assert feed(detector(), LAYOUT, steps) == []
