"""Steps that are looked at together give what they give one by one, to the bit, and healthy ones are passed over."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import deque
from collections.abc import Mapping

import numpy as np
import pytest
from tests.detect.random_phases import weather
from tests.detect.step_stream import Stream, chain, decay
from tests.families import some

from neuraldbg.detect import DETECTORS
from neuraldbg.detect.block import FEW, follow
from neuraldbg.detect.lookahead import Ahead
from neuraldbg.detect.watch import Watch

SEEDS = range(60)
PASSING = [cls for cls in DETECTORS if hasattr(cls, "pass_over")]
SCRATCH = {"readings", "thresholds", "_layout", "_step", "_held", "_median"}
"""What is no state: shared, settings, caches, and what `UpdateRatio` says anew in each step before it is read."""


def state(value):
    """All that a detector holds, as a value that can be compared to the bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return [(repr(key), state(each)) for key, each in sorted(value.items(), key=lambda item: repr(item[0]))]
    if isinstance(value, list | tuple | deque):
        return [state(each) for each in value]
    names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
    if names and not callable(value):
        return [(name, state(getattr(value, name))) for name in names if name not in SCRATCH]
    return repr(value)


def states(watch):
    courses = watch._readings.progress
    return [(d.name, state(d)) for d in watch.detectors] + [("progress", state(courses._of))]


def groups(run, rng):
    """Cut a run as capture does: steps together have one layout and as many rows, and are some at most."""
    alike = itertools.groupby(run, key=lambda each: (id(each[1]), len(each[0].table)))
    for rest in (list(group) for _, group in alike):
        while rest:
            size = int(rng.choice([1, 4, 7, 16, 24]))
            yield rest[:size]
            del rest[:size]


def expect(watch, group):
    watch.expect([step for step, _ in group], group[0][1], np.stack([step.table for step, _ in group]))


def told(watch, group):
    """What each step gives, and now and then what has been told of the run up to it."""
    return [
        (repr(watch.observe(step, layout)), watch.read, repr(watch.events) if step.index % 7 == 0 else "")
        for step, layout in group
    ]


def differs(run, seed):
    """Where the two ways differ, None if nowhere. States are compared where a block ends."""
    rng, alone, together = np.random.default_rng(seed), Watch(), Watch()
    for group in groups(run, rng):
        expect(together, group)
        pairs = list(zip(told(alone, group), told(together, group), strict=True))
        if group[-1] is run[-1] or rng.random() < 0.2:
            pairs += zip(states(alone), states(together), strict=True)
        for one, other in pairs:
            if one != other:
                return group[0][0].index, one, other
    whole = alone.events, alone.dropped
    return None if repr(whole) == repr((together.events, together.dropped)) else whole


class Eager(Ahead):
    """Asks a detector anew at every step, also where it has just had something to tell."""

    def _passes(self, number, at):
        pass_over = self._pass_over[number]
        passes = super()._passes(number, at)
        self._pass_over[number] = pass_over
        return passes


@pytest.mark.parametrize("seed", some(SEEDS, 4))
def test_blocks_give_what_single_steps_give(seed, monkeypatch):
    monkeypatch.setattr("neuraldbg.detect.watch.Ahead", Eager if seed % 3 else Ahead)
    with np.errstate(all="ignore"):
        assert differs(weather(seed, 400), seed) is None


def test_the_weather_has_all_that_detectors_know():
    kinds = set()
    for seed in SEEDS:
        watch = Watch()
        with np.errstate(all="ignore"):
            for step, layout in weather(seed, 400):
                watch.observe(step, layout)
        kinds |= {event.kind for event in watch.events}
    assert kinds == {
        "activation_scale", "dead_units", "exploding_gradients", "gradient_spike", "loss_divergence", "loss_plateau",
        "loss_spike", "nonfinite_activation", "nonfinite_gradient", "nonfinite_input", "nonfinite_loss",
        "nonfinite_parameter", "saturated_units", "unchanged_parameters", "update_ratio_high", "update_ratio_low",
        "vanishing_gradients",
    }  # fmt: skip


@pytest.mark.parametrize("cls", PASSING, ids=lambda cls: cls.name)
def test_a_detector_that_passes_over_too_much_is_found_out(cls, monkeypatch):
    monkeypatch.setattr(cls, "pass_over", lambda self, block, first: len(block) - first)
    with np.errstate(all="ignore"):
        assert any(differs(weather(seed, 400), seed) is not None for seed in SEEDS)


@pytest.mark.parametrize("seed", range(5))
def test_healthy_steps_are_passed_over(seed):
    run = weather(seed, 600, faults=False)[: 16 * 37]
    watch, observed = Watch(), dict.fromkeys([cls.name for cls in DETECTORS], 0)
    for detector in watch.detectors:
        detector.observe = counted(observed, detector)  # type: ignore[method-assign]
    for at in range(0, len(run), 16):
        group = run[at : at + 16]
        expect(watch, group)
        told(watch, group)
    seen = {name: observed[name] - 64 for name in observed}  # the first are learnt from one by one
    assert all(seen[cls.name] <= 0 for cls in PASSING), seen
    assert len(PASSING) == 10


def counted(observed, detector):
    observe = detector.observe

    def count(step, layout):
        observed[detector.name] += 1
        return observe(step, layout)

    return count


def test_steps_that_come_in_between_or_never_do_not_matter():
    layout, stream = chain(3), Stream(chain(3))
    steps = [stream.step(float(v), grad_norm=0.3, update_ratio=1e-3) for v in decay(100)]
    watch = Watch()
    for step in steps[:60]:
        watch.observe(step, layout)
    expect(watch, [(step, layout) for step in steps[60:80]])
    assert watch.observe(steps[60], layout) == []
    assert watch.observe(steps[90], layout) == []  # as where a callback asks for the steps that closed meanwhile
    assert watch.observe(steps[61], layout) == []
    expect(watch, [(step, layout) for step in steps[80:90]])  # the rest was never given
    for step in steps[80:90]:
        assert watch.observe(step, layout) == []


def test_the_course_of_the_loss_is_followed_whoever_passes_over():
    stream = Stream(chain(3))
    steps = [stream.step(float(v), grad_norm=0.3, update_ratio=1e-3) for v in decay(160)]
    watch = Watch()
    watch.detectors = tuple(d for d in watch.detectors if not d.name.startswith("loss"))
    for at in range(0, 160, 16):
        group = steps[at : at + 16]
        expect(watch, [(step, stream.layout) for step in group])
        for step in group:
            watch.observe(step, stream.layout)
            assert watch._readings.progress._of[0].count == step.index + 1


def test_the_tables_of_a_block_are_let_go_with_its_last_step():
    stream = Stream(chain(3))
    steps = [stream.step(1.0, grad_norm=0.3, update_ratio=1e-3) for _ in range(16)]
    tables = np.stack([step.table for step in steps])
    gone = weakref.ref(tables)
    watch = Watch()
    watch.expect(steps, stream.layout, tables)
    del tables
    for step in steps:
        watch.observe(step, stream.layout)
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("places", [0, 1, 3, 7, 8, 9, FEW, FEW + 1, 100])
def test_a_level_follows_to_the_bit(places):
    rng = np.random.default_rng(places)
    norms = np.exp(rng.standard_normal((24, places)) * 5)
    for memory in (50, 50.0, 7):
        level, expected = np.zeros(places), np.zeros(places)
        for row in norms:
            expected += (np.log(row.copy()) - expected) / memory
        follow(level, np.log(norms[:10]), memory)
        follow(level, np.log(norms[10:]), memory)
        assert level.tobytes() == expected.tobytes()
