"""Light steps: only scalars, nothing concluded of what was not read, and next to no cost."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.detect.step_stream import Stream, chain, decay

from neuraldbg.detect import DETECTORS
from neuraldbg.detect.dead_units import DeadUnits
from neuraldbg.detect.episodes import Episode, Episodes
from neuraldbg.detect.watch import Watch
from neuraldbg.nouns import STATS

LIGHT = ("loss", "loss_nonfinite", "lr", "grad_norm", "duration", "overhead")
LAYOUT = chain(5)


def lightened(step):
    """What is left of a step whose sites were not read."""
    scalars = {name: value for name, value in step.scalars.items() if name in LIGHT}
    return replace(step, table=np.zeros((0, len(STATS))), scalars=scalars)


def bursts(steps, first=0, every=16, burst=4):
    """The first steps full, then some in a row every so often."""
    return [s if s.index < first or (s.index - first) % every < burst else lightened(s) for s in steps]


def watched(steps, layout=LAYOUT):
    watch = Watch()
    for step in steps:
        watch.observe(step, layout)
    return watch.events


def healthy(n, edit=None, **scalars):
    stream = Stream(LAYOUT)
    return [
        stream.step(float(v), edit=edit if edit is None else edit(t), grad_norm=0.3, update_ratio=1e-3, **scalars)
        for t, v in enumerate(decay(n))
    ]


@pytest.mark.parametrize("every", [8, 16, 64])
@pytest.mark.parametrize("first", [0, 50])
def test_a_healthy_run_has_no_events_however_little_is_read(first, every):
    assert watched(bursts(healthy(400), first, every)) == ()


def test_a_run_of_light_steps_alone():
    assert watched([lightened(s) for s in healthy(300)]) == ()


def test_light_steps_may_come_before_any_layer_is_known():
    steps = healthy(60)
    watch = Watch()
    for step in steps:
        watch.observe(lightened(step) if step.index < 30 else step, LAYOUT)
    assert watch.events == ()
    assert watch.read == 59


def test_only_detectors_of_scalars_see_light_steps():
    assert {cls.name for cls in DETECTORS if cls.light} == {
        "gradient_spike", "loss_divergence", "loss_plateau", "loss_spike", "non_finite",
    }  # fmt: skip


def vanished(t, at):
    return (lambda s, table: s.put(table, s.layout.rows("param_grad"), rms=1e-12)) if t >= at else None


@pytest.mark.parametrize("every", [16, 64])
def test_an_event_that_lasts_over_gaps_ends_at_the_last_step_read(every):
    stream = Stream(LAYOUT)
    steps = [stream.step(2.3, edit=vanished(t, 100), grad_norm=0.3, update_ratio=1e-3) for t in range(301)]
    thin = bursts(steps, 50, every)
    read = [s.index for s in thin if not s.light and s.index >= 100]
    found = [e for e in watched(thin) if e.kind == "vanishing_gradients"]
    assert {e.layer for e in found} == {f"fc{i}" for i in range(5)}
    assert {(e.first_step, e.last_step) for e in found} == {(read[0], read[-1])}


def test_units_that_die_are_told_by_the_steps_read():
    def dead(t):
        put = lambda s, table: s.put(table, s.row("activation", "act1"), dead=64.0, dead_since=21)  # noqa: E731
        return put if t >= 40 else None

    found = [e for e in watched(bursts(healthy(200, dead), 30, 16)) if e.kind == "dead_units"]
    assert [(e.layer, e.first_step, e.last_step) for e in found] == [("act1", 21, 193)]


def test_steps_in_a_row_are_steps_read():
    steps = bursts(healthy(100, lambda _: lambda s, table: s.put(table, s.row("activation", "act1"), dead=64.0)))
    watch = Watch()
    begins = next(s.index for s in steps if any(e.kind == "dead_units" for e in watch.observe(s, LAYOUT)))
    seen = sum(not s.light for s in steps if s.index <= begins)
    assert seen == DeadUnits().thresholds.steps


def test_bad_in_one_burst_alone_is_not_bad_for_long():
    stream = Stream(LAYOUT)
    low = lambda t: 16 * 6 + 50 <= t < 16 * 6 + 54  # noqa: E731
    steps = [
        stream.step(2.3, edit=vanished(0, 0) if low(t) else None, grad_norm=0.3, update_ratio=1e-3) for t in range(300)
    ]
    assert not [e for e in watched(bursts(steps, 50, 16)) if e.kind == "vanishing_gradients"]


def test_steps_that_went_by_count_between_bad_readings_only():
    bad, none = np.array([True]), np.array([False])
    episodes = Episodes("x", "loss", enter_steps=20)
    episodes.resize([("fc", "x")])
    say = lambda _: (1.0, {})  # noqa: E731
    for at, missed in ((0, 0), (1, 0), (2, 0), (3, 0)):
        assert episodes.observe(at, bad, none, say, missed=missed) == []
    event = episodes.observe(20, bad, none, say, missed=16)[0]  # five readings of twenty-one steps
    assert (event.first_step, event.last_step) == (0, 20)
    episodes = Episodes("x", "loss", enter_steps=20)
    episodes.resize([("fc", "x")])
    for at, missed in ((0, 0), (1, 0), (18, 16)):
        episodes.observe(at, bad, none, say, missed=missed)
    episodes.observe(19, none, bad, say, missed=16)
    for at in range(40, 44):  # what went by before they began is not theirs
        assert episodes.observe(at, bad, none, say, missed=36) == []


def test_one_episode_counts_like_many():
    one, say = Episode("x", "loss", enter_steps=20), lambda: (1.0, {})
    for at in range(4):
        assert one.observe(at, True, False, say) == []
    assert one.observe(20, True, False, say, missed=16)[0].first_step == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_in_a_light_step(value):
    stream = Stream(LAYOUT)
    steps = [stream.step(value if t >= 70 else 1.0, grad_norm=0.3) for t in range(90)]
    found = {e.kind: e for e in watched(bursts(steps, 50, 64))}
    event = found["nonfinite_loss"]
    assert (event.first_step, event.last_step, event.layer, event.confidence) == (70, 89, None, 1.0)
    assert event.details["unread"]
    assert event.details["origin"]
    assert "nonfinite_gradient" not in found


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_in_a_light_step_has_no_layer(value):
    stream = Stream(LAYOUT)
    steps = [stream.step(1.0, grad_norm=value if t == 70 else 0.3) for t in range(90)]
    (event,) = watched(bursts(steps, 50, 64))
    assert (event.kind, event.first_step, event.last_step, event.layer) == ("nonfinite_gradient", 70, 70, None)
    assert event.details["unread"]


def test_what_was_broken_in_a_light_step_is_named_once_it_is_read():
    stream = Stream(LAYOUT)
    ruined = [*LAYOUT.rows("param"), *LAYOUT.rows("param_grad")]
    bad = lambda s, table: s.put(table, ruined, nonfinite=7.0)  # noqa: E731
    steps = [
        stream.step(math.nan if t >= 70 else 1.0, edit=bad if t >= 70 else None, grad_norm=math.nan if t >= 70 else 0.3)
        for t in range(120)
    ]
    found = {e.kind: e for e in watched(bursts(steps, 50, 64))}
    assert found["nonfinite_loss"].first_step == found["nonfinite_gradient"].first_step == 70
    assert (found["nonfinite_parameter"].first_step, found["nonfinite_parameter"].layer) == (114, "fc0")


def test_a_gradient_spike_in_a_light_step_is_told_without_a_layer():
    stream = Stream(LAYOUT)
    steps = [stream.step(1.0, grad_norm=40.0 if t == 80 else 0.3 + 0.01 * (t % 5)) for t in range(120)]
    (event,) = [e for e in watched(bursts(steps, 50, 64)) if e.transition == "gradient_health"]
    assert (event.kind, event.first_step, event.last_step, event.layer) == ("gradient_spike", 80, 80, None)


def test_small_batches_have_no_spikes_of_single_steps_though_light_steps_do_not_tell_the_size():
    stream = Stream(LAYOUT)
    rng = np.random.default_rng(0)
    values = 1.0 + 0.05 * rng.standard_normal(120)
    values[100] = 6.0
    for size, kinds in ((4.0, set()), (64.0, {"loss_spike"})):
        steps = [stream.step(float(v), grad_norm=0.3, batch_size=size) for v in values]
        assert {e.kind for e in watched(bursts(steps, 30, 64))} - {"loss_plateau"} == kinds


def test_light_steps_are_cheap():
    steps = [lightened(s) if s.index > 60 else s for s in healthy(1060)]
    watch = Watch()
    times = []
    for step in steps:
        began = time.perf_counter()
        watch.observe(step, LAYOUT)
        times.append(time.perf_counter() - began)
    assert np.median(times[100:]) < 1e-4  # 10 us on a quiet machine; a loose bound, as this is no benchmark
