"""All detectors together: settings, needs, order, growth of the layout, bounds on memory and on time."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.step_stream import Stream, chain, decay, feed

from neuraldbg.detect import DETECTORS
from neuraldbg.detect.watch import FIRST, LATEST, Watch
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import KINDS, STATS, TRANSITIONS, Event, Layout, Step


def test_detectors_are_sorted_documented_and_well_named():
    names = [cls.name for cls in DETECTORS]
    assert names == sorted(names)
    for cls in DETECTORS:
        module = inspect.getmodule(cls)
        assert module is not None
        assert module.__name__.endswith(cls.name)
        assert len(module.__doc__ or "") > 100
        assert cls.needs <= set(KINDS)


def test_every_threshold_names_its_source():
    for cls in DETECTORS:
        for name, field in type(cls().thresholds).fields.items():
            assert "ource" in (field.description or "") or "Neural Observer" in (field.description or ""), (
                cls.name,
                name,
            )


def test_overrides_and_their_errors():
    watch = Watch({"loss_plateau": {"steps": 500}})
    (plateau,) = [d for d in watch.detectors if d.name == "loss_plateau"]
    assert plateau.thresholds.steps == 500  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="vanishing_gradients"):
        Watch({"vanishing_gradient": {}})
    with pytest.raises(ConfigError, match=r"known: .*floor"):
        Watch({"vanishing_gradients": {"flor": 1e-9}})
    with pytest.raises(ConfigError, match="share"):
        Watch({"dead_units": {"share": 7}})


def test_needs_is_the_union():
    assert Watch().needs == {"input", "activation", "op", "output_grad", "param_grad", "param", "update"}


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), n=st.sampled_from([1, 10, 150]), noise=st.sampled_from([0.0, 0.1, 0.5]))
def test_a_healthy_run_has_no_event(seed, n, noise):
    layout = chain(5)
    stream = Stream(layout, seed, noise)
    values = decay(n) + 0.05 * stream.rng.standard_normal(n)
    events = feed(Watch(), layout, [stream.step(float(v)) for v in values])
    assert [e for e in events if not e.details.get("after_learning")] == []


def test_events_are_ordered_by_step_and_then_by_data_flow():
    layout = chain(6)
    stream = Stream(layout)

    def edit(s, table):
        s.put(
            table, [r for r in layout.rows("param_grad") if layout.sites[r].module in ("fc0", "fc1", "fc2")], rms=1e-12
        )

    watch = Watch()
    events = feed(watch, layout, [stream.step(2.3, edit=edit) for _ in range(30)])
    assert [e.layer for e in events if e.kind == "vanishing_gradients"] == ["fc0", "fc1", "fc2"]
    assert all(e.last_step == 29 for e in events)
    assert all(e.transition in TRANSITIONS and 0 <= e.confidence <= 1 for e in events)
    assert watch.events == watch.events


def test_lasting_events_are_retold_rarely_and_are_up_to_date_when_asked():
    layout = chain(3)
    stream = Stream(layout)
    watch = Watch()
    told = []
    for _ in range(2000):
        rows = layout.rows("activation", "act0")
        told += watch.observe(stream.step(2.3, edit=lambda s, t, r=rows: s.put(t, r, dead=64.0)), layout)
        assert len(told) < 200 + 100
    (dead,) = [e for e in watch.events if e.kind == "dead_units"]
    assert dead.last_step == 1999


def test_state_survives_a_layout_that_grows():
    small, large = chain(2), None
    grown = chain(4, prefix="more.")
    large = Layout(
        small.layers + grown.layers, small.sites + grown.sites, small.edges + grown.edges, small.called | grown.called
    )
    watch = Watch()
    first, second = Stream(small), Stream(large)
    second.index = 30

    def edit(s, table):
        s.put(table, s.row("activation", "act0"), dead=64.0)
        s.put(table, s.row("update", "fc1", "weight"), rms=0.0)

    for _ in range(30):
        watch.observe(first.step(2.3, edit=edit), small)
    for _ in range(30):
        watch.observe(second.step(2.3, edit=edit), large)
    found = {e.kind: e for e in watch.events if e.kind != "loss_plateau"}
    assert set(found) == {"dead_units", "unchanged_parameters"}
    assert {e.last_step for e in found.values()} == {59}
    assert found["unchanged_parameters"].first_step == 0


def test_a_table_shorter_than_the_layout_is_read_as_far_as_it_goes():
    layout = chain(4)
    stream = Stream(layout)
    step = stream.step(1.0)
    watch = Watch()
    for rows in (0, 3, len(layout.sites)):
        cut = Step(rows, 0, 0.0, step.table[:rows], step.scalars)
        assert watch.observe(cut, layout) == []


def test_first_events_of_a_kind_are_never_dropped():
    class Noisy:
        name = "noisy"
        needs: frozenset[str] = frozenset()

        def observe(self, step, layout):
            kinds = ["common", "rare"] if step.index == 900 else ["common"]
            return [Event(kind, "loss", step.index, step.index) for kind in kinds]

        def ongoing(self):
            return []

    watch = Watch()
    watch.detectors = (Noisy(),)  # type: ignore[assignment]
    layout = chain(2)
    for step in (Step(i, 0, 0.0, np.zeros((1, len(STATS)))) for i in range(1000)):
        watch.observe(step, layout)
    common = [e.first_step for e in watch.events if e.kind == "common"]
    assert common == [*range(FIRST), *range(1000 - LATEST, 1000)]
    assert watch.dropped == {"common": 1000 - FIRST - LATEST}
    assert [e.first_step for e in watch.events if e.kind == "rare"] == [900]


def test_a_step_of_300_sites_is_cheap():
    layout = chain(30)
    stream = Stream(layout)
    steps = [stream.step(float(v), grad_norm=1.0, update_ratio=1e-3) for v in decay(200)]
    watch = Watch()
    times = []
    for step in steps:
        began = time.perf_counter()
        watch.observe(step, layout)
        times.append(time.perf_counter() - began)
    assert len(layout.sites) >= 299
    assert np.median(times) < 2e-3  # 160 us on the machine of record; a loose bound, as this is no benchmark
