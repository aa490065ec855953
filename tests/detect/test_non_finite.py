"""NaN and infinity: the origin in data-flow order, what is affected, and what is no failure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.detect.step_stream import Stream, chain, feed

from neuraldbg.detect.non_finite import NonFinite
from neuraldbg.nouns import Edge, Layer, Layout, Site, column

LAYOUT = chain(4)


def broken(*rows, loss=math.nan, at=5, n=8, layout=LAYOUT, **scalars):
    """Steps in which the rows are non-finite from a step on."""
    stream = Stream(layout)
    bad = lambda s, table: s.put(table, list(rows), nonfinite=7.0)  # noqa: E731
    return [
        stream.step(loss if t >= at else 1.0, edit=bad if t >= at else None, **(scalars if t >= at else {}))
        for t in range(n)
    ]


def rows(kind, *modules, layout=LAYOUT):
    return [row for module in modules for row in layout.rows(kind, module)]


def by_kind(events):
    return {e.kind: e for e in events}


def test_healthy_run_is_silent():
    stream = Stream(LAYOUT)
    assert feed(NonFinite(), LAYOUT, [stream.step(1.0) for _ in range(30)]) == []


def test_forward_origin_is_the_first_layer_in_data_flow_and_comes_once():
    bad = [*rows("activation", "fc3", "act1", "fc2", "act2"), *LAYOUT.rows("param_grad"), *LAYOUT.rows("output_grad")]
    found = by_kind(feed(NonFinite(), LAYOUT, broken(*bad)))
    event = found["nonfinite_activation"]
    assert (event.layer, event.site, event.first_step, event.last_step) == ("act1", "activation/act1", 5, 7)
    assert event.details["affected"] == [f"activation/{p}" for p in ("act1", "fc2", "act2", "fc3")]
    assert event.details["last_finite"] == "activation/fc1"
    assert event.details["origin"]
    assert event.details["direction"] == "forward"
    assert event.details["nonfinite"] == 7.0
    assert not found["nonfinite_gradient"].details["origin"]
    assert found["nonfinite_loss"].first_step == 5
    assert event.confidence == 1.0


def test_the_step_of_the_numbers_is_that_at_which_they_were_measured():
    (row,) = rows("activation", "fc2")
    for event in feed(NonFinite(), LAYOUT, broken(row, *LAYOUT.rows("param_grad"), n=60)):
        assert event.last_step == 59
        assert event.details["at_step"] == event.first_step == 5


def test_data_flow_beats_the_order_of_registration():
    layers = tuple(Layer(p, "Linear", "Net", leaf=True) for p in ("late", "early"))
    sites = tuple(Site("activation", p) for p in ("late", "early"))
    layout = Layout(layers, sites, (Edge("early", "late"), Edge("late", "loss")), frozenset({"late", "early"}))
    (event,) = [e for e in feed(NonFinite(), layout, broken(0, 1, layout=layout)) if e.layer]
    assert event.layer == "early"


def test_a_container_is_affected_not_the_origin():
    layers = (
        Layer("", "Net", "Net", leaf=False),
        Layer("block", "Block", "Net", leaf=False),
        Layer("block.fc", "Linear", "Net", leaf=True),
    )
    sites = tuple(Site("activation", layer.path) for layer in layers)
    layout = Layout(layers, sites, (), frozenset(layer.path for layer in layers))
    event = by_kind(feed(NonFinite(), layout, broken(0, 1, 2, layout=layout)))["nonfinite_activation"]
    assert event.layer == "block.fc"
    assert event.details["affected"] == ["activation/block.fc", "activation/block", "activation/activation"]


def test_backward_origin_is_the_deepest_and_the_forward_is_finite():
    bad = [
        *rows("output_grad", "fc0", "act0", "fc1"),
        *LAYOUT.rows("param_grad", "fc1"),
        *LAYOUT.rows("param_grad", "fc0"),
    ]
    event = by_kind(feed(NonFinite(), LAYOUT, broken(*bad, loss=1.0)))["nonfinite_gradient"]
    assert (event.layer, event.site) == ("fc1", "output_grad/fc1")
    assert event.details["direction"] == "backward"
    assert event.details["forward_finite"]
    assert event.details["loss_finite"]
    assert event.details["last_finite"] == "output_grad/act1"


def test_input_comes_before_everything():
    bad = [LAYOUT.rows("input")[0], *LAYOUT.rows("activation")]
    found = by_kind(feed(NonFinite(), LAYOUT, broken(*bad)))
    assert found["nonfinite_input"].details["origin"]
    assert found["nonfinite_input"].transition == "data"
    assert not found["nonfinite_activation"].details["origin"]


def test_broken_weights_are_the_origin_of_the_forward():
    bad = [*LAYOUT.rows("param", "fc1"), *LAYOUT.rows("activation")]
    found = by_kind(feed(NonFinite(), LAYOUT, broken(*bad, at=0)))
    assert found["nonfinite_parameter"].details["origin"]
    assert found["nonfinite_parameter"].layer == "fc1"
    assert found["nonfinite_parameter"].first_step == 0


def test_loss_alone():
    (event,) = feed(NonFinite(), LAYOUT, broken(loss=math.inf))
    assert (event.kind, event.layer, event.details["origin"], event.details["forward_finite"]) == (
        "nonfinite_loss",
        None,
        True,
        True,
    )


def test_values_that_reach_nothing_are_contained_until_they_do():
    steps = broken(*rows("activation", "fc1"), loss=1.0, at=0, n=10)
    (event,) = feed(NonFinite(), LAYOUT, steps)
    assert (event.confidence, event.details["contained"]) == (0.3, True)
    steps += broken(*rows("activation", "fc1", "fc2"), at=0, n=40)[10:]
    event = by_kind(feed(NonFinite(), LAYOUT, steps))["nonfinite_activation"]
    assert (event.confidence, event.details["contained"]) == (1.0, False)


def test_attention_mask_input_is_healthy():
    stream = Stream(LAYOUT)
    mask = lambda s, table: s.put(table, LAYOUT.rows("input")[0], rms=0.0, nonfinite=100.0)  # noqa: E731
    assert feed(NonFinite(), LAYOUT, [stream.step(1.0, edit=mask) for _ in range(5)]) == []


def test_a_scaler_that_finds_its_scale_is_healthy_and_one_that_never_does_is_not():
    bad = LAYOUT.rows("output_grad")
    assert feed(NonFinite(), LAYOUT, broken(*bad, loss=1.0, skipped=3.0, loss_scale=8192.0)) == []
    (event,) = feed(NonFinite(), LAYOUT, broken(*bad, loss=1.0, skipped=20.0, loss_scale=1e-2))
    assert event.kind == "nonfinite_gradient"
    assert event.details["skipped"] == 20.0


def test_absmax_before_the_overflow_is_kept():
    stream = Stream(LAYOUT)
    row = rows("activation", "fc1")[0]
    steps = [stream.step(1.0, edit=lambda s, t: s.put(t, row, min=-64000.0, max=9.0))]
    steps.append(stream.step(math.nan, edit=lambda s, t: s.put(t, row, min=-65504.0, max=9.0, nonfinite=1.0)))
    event = by_kind(feed(NonFinite(), LAYOUT, steps))["nonfinite_activation"]
    assert (event.details["absmax_previous"], event.details["absmax"]) == (64000.0, 65504.0)


def test_episodes_are_separate_events():
    stream = Stream(LAYOUT)
    steps = [stream.step(math.nan if t in (3, 4, 9) else 1.0) for t in range(12)]
    events = feed(NonFinite(), LAYOUT, steps)
    assert [(e.first_step, e.last_step) for e in events] == [(3, 4), (9, 9)]


@pytest.mark.parametrize("seen", [0.0, np.nan])
def test_unseen_sites_are_not_judged(seen):
    stream = Stream(LAYOUT)

    def edit(s, table):
        s.hide(table, LAYOUT.rows("activation"))
        table[list(LAYOUT.rows("activation")), column("nonfinite")] = seen

    assert feed(NonFinite(), LAYOUT, [stream.step(1.0, edit=edit) for _ in range(5)]) == []
