"""Views against what the record holds, looked up cell by cell in plain python."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from tests.show.made_diagnoses import EXPLODING, HEALTHY, record
from tests.show.static.figure_layout import texts

from neuraldbg.errors import ConfigError, UnknownLayer
from neuraldbg.nouns import (
    STATS,
    Chain,
    ChainEdge,
    ChainNode,
    Diagnosis,
    Edge,
    Event,
    History,
    Hypothesis,
    Layer,
    Layout,
    RunRecord,
    Site,
    column,
)
from neuraldbg.nouns.histogram import BINS, EDGES, HIGHEST, ZERO, StepHistograms
from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.format.safe_text import counted
from neuraldbg.show.static.crash import crash_figure
from neuraldbg.show.static.draw import figure as draw
from neuraldbg.show.views import VIEWS, view
from neuraldbg.show.views.crash import picture
from neuraldbg.show.views.moments import failure_of, guilty_of
from neuraldbg.show.views.picking import medians
from neuraldbg.show.views.view import Choice

KINDS = ("activation", "param_grad", "param", "update")
PLAIN = replace(HEALTHY, events=())


def made(layers=4, rows=40, *, seed=0, light=0.3, thinned=10, broken=0.02):
    """A record of random numbers: some rows are thinned, some light, some sites unseen, some values not finite."""
    random = np.random.default_rng(seed)
    paths = [f"block{i}.fc" for i in range(layers)]
    sites = [Site("activation", p, dtype="float32") for p in paths]
    sites += [Site(k, p, name=n, dtype="float32") for k in KINDS[1:] for p in paths for n in ("weight", "bias")]
    width = np.ones(rows, np.int64)
    width[:thinned] = random.integers(2, 9, thinned)
    steps = np.concatenate([[0], np.cumsum(width)[:-1]])
    mean = random.standard_normal((rows, len(sites), len(STATS))).astype(np.float32)
    mean[:, :, column("rms")] = np.abs(mean[:, :, column("rms")])
    total = random.integers(1, 50, len(sites)).astype(np.float32)
    mean[:, :, column("total")] = mean[:, :, column("count")] = total
    mean[:, :, column("units")] = 16
    for stat in ("zeros", "dead", "saturated", "under", "over"):
        mean[:, :, column(stat)] = random.integers(0, 10, (rows, len(sites)))
    mean[:, :, column("nonfinite")] = random.random((rows, len(sites))) < broken
    unseen = random.random((rows, len(sites))) < 0.1
    unseen[random.random(rows) < light] = True
    mean[unseen] = 0
    moments = [column(s) for s in ("mean", "std", "rms", "min", "max")]
    mean[np.ix_(*map(range, mean.shape[:2]), moments)] = np.where(unseen[..., None], np.nan, mean[:, :, moments])
    spread = np.where(width[:, None, None] > 1, random.random(mean.shape), 0).astype(np.float32)
    spread[:, :, [column("total"), column("count"), column("units"), column("nonfinite")]] = 0
    spread[unseen] = 0
    low, high = mean - spread, mean + spread
    scalars = {"loss": random.random(rows), "duration": random.random(rows)}
    history = History(steps, width, steps * 0.1, steps * 0, np.ones(rows, bool), mean, low, high, scalars)
    layout = Layout(
        tuple(Layer(p, "Linear", "Net", leaf=True, params=("weight", "bias")) for p in paths),
        tuple(sites),
        tuple(
            Edge(a, b, ("tanh" if i % 2 else "relu",)) for i, (a, b) in enumerate(itertools.pairwise([*paths, "loss"]))
        ),
        frozenset(paths),
    )
    return RunRecord(layout=layout, history=history, steps=int(width.sum()))


def cell(run, kind, layer, stat, first, last):
    """What the steps first..last hold of a layer, by looking at every row and site."""
    found = []
    h = run.history
    for t in range(len(h)):
        if not (first <= h.steps[t] <= last):
            continue
        row = []
        for i, site in enumerate(run.layout.sites):
            if site.kind != kind or site.module != layer or h.high[t, i, column("count")] == 0:
                continue
            row.append({s: (float(h.low[t, i, k]), float(h.high[t, i, k])) for k, s in enumerate(STATS)})
        if not row:
            continue
        if stat == "norm":
            found.append(math.sqrt(sum(r["rms"][1] ** 2 * r["total"][1] for r in row)))
        elif stat in {"nonfinite", "zeros", "saturated", "under", "over", "dead"}:
            among = "units" if stat == "dead" else "count"
            found.append(100 * sum(r[stat][1] for r in row) / sum(r[among][1] for r in row))
        elif stat == "min":
            found.append(min(r["min"][0] for r in row))
        elif stat == "mean":
            found.append(max((v for r in row for v in r["mean"]), key=abs))
        else:
            found.append(max(r[stat][1] for r in row))
    if not found:
        return math.nan
    return min(found) if stat == "min" else max(found, key=abs) if stat == "mean" else max(found)


@pytest.mark.parametrize("stat", ["norm", "mean", "min", "max", "rms", "zeros", "dead", "nonfinite"])
@pytest.mark.parametrize("columns", [500, 7])
def test_a_heat_map_holds_what_the_record_holds(stat, columns):
    run = made()
    kind = "activation" if stat == "dead" else "param_grad"
    shown = view("heatmap", run, PLAIN, Choice(kind=kind, stat=stat, columns=columns))
    alive = run.layout.rectified if stat == "dead" else run.layout.by_path
    assert shown.layers == tuple(layer.path for layer in run.layout.layers if layer.path in alive)
    assert len(shown.steps) <= columns
    for i, layer in enumerate(shown.layers):
        for c, (first, width) in enumerate(zip(shown.steps, shown.width, strict=True)):
            span = (first, first + width - 1)
            assert shown.values[i, c] == pytest.approx(cell(run, kind, layer, stat, *span), rel=1e-5, nan_ok=True)
            assert shown.nonfinite[i, c] == (stat != "nonfinite" and cell(run, kind, layer, "nonfinite", *span) > 0)


def test_a_map_reaches_to_the_end_of_the_run():
    run = made(light=0.0, thinned=0, rows=30)
    ended = replace(run, steps=37)  # it went on with light steps, in which no layer was read
    for name in ("heatmap", "updates"):
        shown = view(name, ended, PLAIN)
        assert (shown.steps[-1], shown.width[-1], shown.end) == (29, 1, 37)
        assert "30 of 37 steps, to limit the overhead; the last was step 29" in " ".join(shown.notes)
        assert view(name, ended, PLAIN, Choice(last=33)).end == 34
        assert view(name, ended, PLAIN, Choice(last=20)).steps[-1] == 20
        assert view(name, run, PLAIN).steps[-1] == 29


@pytest.mark.parametrize("columns", [3, 10, 37, 240])
def test_columns_cover_every_step_that_was_read_once(columns):
    run = made(rows=200, thinned=50)
    shown = view("heatmap", run, PLAIN, Choice(columns=columns))
    read = run.history.steps[run.history.read]
    covered = [int(((shown.steps <= s) & (s < shown.steps + shown.width)).sum()) for s in read]
    assert covered == [1] * len(read)


@pytest.mark.parametrize("columns", [2, 9, 60])
def test_a_spike_of_one_step_never_disappears(columns):
    grad = np.ones((400, 3))
    grad[217, 1] = 5e6
    run = record(("a", "b", "c"), np.ones(400), grad, grad * 0 + 1)
    shown = view("heatmap", run, PLAIN, Choice(columns=columns))
    at = np.unravel_index(np.argmax(shown.values), shown.values.shape)
    assert shown.layers[at[0]] == "b"
    assert shown.values[at] == pytest.approx(5e6)
    assert shown.steps[at[1]] <= 217 < shown.steps[at[1]] + shown.width[at[1]]


def test_of_many_layers_those_that_matter_are_kept():
    names = tuple(f"layer{i}" for i in range(300))
    grad = np.ones((50, 300))
    grad[20, 123] = 1e4
    run = record(names, np.ones(50), grad, grad, nonfinite_from={"layer77": 40})
    event = Event("gradient_spike", "gradient_health", 3, 3, "layer211")
    shown = view("heatmap", run, replace(HEALTHY, events=(event,)), Choice(rows=12))
    assert len(shown.layers) == 12
    assert {"layer123", "layer77", "layer211", "layer0", "layer299"} <= set(shown.layers)
    assert list(shown.layers) == sorted(shown.layers, key=names.index)
    assert "12 of 300 layers" in " ".join(shown.notes)


def test_update_ratios_are_norms_over_norms():
    run = made(light=0, thinned=0)
    shown = view("updates", run, PLAIN)
    for i, layer in enumerate(shown.layers):
        for c, step in enumerate(shown.steps):
            size = cell(run, "param", layer, "norm", step, step)
            expected = cell(run, "update", layer, "norm", step, step) / size if size > 0 else math.nan
            assert shown.values[i, c] == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_the_flow_is_that_of_the_step_or_the_last_read_before_it():
    run = made(thinned=0)
    read = run.history.steps[run.history.read]
    unread = int(next(s for s in run.history.steps if s > read[3] and s not in read))
    shown = view("flow", run, PLAIN, Choice(step=unread))
    before = int(read[read < unread][-1])
    assert shown.step == before
    assert [bar.name for bar in shown.bars] == [f"step {read[0]}", f"step {before}"]
    assert f"Step {unread} was not read: step {before} is shown" in shown.notes[0]
    for i, layer in enumerate(shown.layers):
        assert shown.bars[1].values[i] == pytest.approx(
            cell(run, "param_grad", layer, "norm", before, before), rel=1e-5, nan_ok=True
        )


@pytest.mark.parametrize("seed", range(4))
def test_the_flow_finds_the_readings_nearest_to_its_ends_however_far_they_are(seed):
    """Most layers are read in few steps, one never: beside a search of all steps, one by one."""
    run, random = made(rows=300, thinned=0, light=0, broken=0.01, seed=seed), np.random.default_rng(seed)
    tables = run.history.high.copy()
    for i, layer in enumerate(run.layout.layers):
        gone = random.random(300) > (0, 0.01, 0.1, 1)[i]
        for row in run.layout.rows("param_grad", layer.path):
            tables[gone, row, column("count")] = 0
    run = replace(run, history=replace(run.history, mean=tables, low=tables, high=tables))
    at = int(random.integers(100, 300))
    shown = view("flow", run, PLAIN, Choice(step=at))
    for i, layer in enumerate(shown.layers):
        rows = run.layout.rows("param_grad", layer)
        read = [t for t in range(at + 1) if (tables[t, rows, column("count")] > 0).any()]
        for bar, t in zip(shown.bars, (read[:1], read[-1:]), strict=True):
            seen = [r for r in rows if t and tables[t[0], r, column("count")] > 0]
            bad = any(tables[t[0], r, column("nonfinite")] > 0 for r in seen)
            expected = math.inf if bad else math.nan if not t else cell(run, "param_grad", layer, "norm", t[0], t[0])
            assert bar.values[i] == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_medians_of_rows_are_those_of_numpy():
    random = np.random.default_rng(0)
    for columns in (0, 1, 2, 7, 40):
        values = random.standard_normal((30, columns))
        seen = random.random((30, columns)) < random.random((30, 1))
        expected = [np.median(row[there]) if there.any() else 0.0 for row, there in zip(values, seen, strict=True)]
        assert medians(values, seen).tolist() == pytest.approx(expected)


def test_layers_that_are_not_finite_or_of_another_optimizer_are_said():
    loss, ones = np.ones(6), np.ones((6, 3))
    run = record(("a", "b", "c"), loss, ones, ones, nonfinite_from={"b": 4})
    shown = view("flow", run, PLAIN, Choice(step=5))
    assert np.isinf(shown.bars[1].values[1])
    assert "NaN or infinite, and so without a bar: b" in shown.notes
    high = run.history.high.copy()
    for row in run.layout.rows("param_grad", "c"):
        high[::2, row, column("count")] = 0
    for row in run.layout.rows("param_grad", "a"):
        high[1::2, row, column("count")] = 0
    turns = replace(run, history=replace(run.history, mean=high, low=high, high=high))
    shown = view("flow", turns, PLAIN, Choice(step=3))
    assert np.isfinite(shown.bars[0].values).all()
    assert np.isfinite(shown.bars[1].values).all()
    assert shown.notes == ("Of a the last reading is of step 2",)
    first = view("flow", turns, PLAIN, Choice(step=0))
    assert np.isnan(first.bars[0].values[2])
    assert first.missing == "not read"
    assert first.notes == ("Not read up to step 0, but later: gradient of the parameters of c",)


def test_a_model_that_is_not_finite_has_no_healthy_layer_and_no_living_units():
    run = made(light=0, thinned=0)
    high = run.history.high.copy()
    high[20:, :, column("nonfinite")] = 3
    high[:20, :, column("nonfinite")] = 0
    run = replace(run, history=replace(run.history, mean=high, low=high, high=high))
    assert {node.role for node in view("dataflow", run, PLAIN).nodes if node.layer} == {"bad"}
    assert "NaN or infinite values from step 2" in view("dataflow", run, PLAIN).nodes[0].detail
    units = view("units", run, PLAIN, Choice(step=39))
    assert not any(np.isfinite(bar.values).any() for bar in units.bars)
    assert "NaN or infinite" in units.notes[0]
    shares = view("heatmap", run, PLAIN, Choice(stat="nonfinite"))
    assert not shares.nonfinite.any()
    assert np.nanmax(shares.values) > 0


def test_a_layer_that_is_called_loss_is_not_the_loss():
    layers = tuple(Layer(path, "Linear", "Net", leaf=True, params=("weight",)) for path in ("a", "loss", "b"))
    edges = (Edge("a", "loss"), Edge("loss", "b"), Edge("b", "loss"))
    run = RunRecord(layout=Layout(layers, (), edges, frozenset({"a", "loss", "b"})))
    shown = view("dataflow", run, PLAIN)
    assert [node.id for node in shown.nodes] == ["a", "loss", "b", "(loss)"]
    assert {(link.source, link.target) for link in shown.links} == {("a", "loss"), ("loss", "b"), ("b", "(loss)")}


def test_a_layer_that_is_not_shown_leaves_no_other_guilty():
    run = record(("conv1", "conv2"), np.ones(5), np.ones((5, 2)), np.ones((5, 2)))
    first = replace(EXPLODING.hypotheses[0], layer="relu9")
    assert view("heatmap", run, replace(EXPLODING, hypotheses=(first,))).guilty == ()


@pytest.mark.parametrize("stat", ["dead", "saturated", "units"])
def test_units_are_of_outputs(stat):
    with pytest.raises(ConfigError, match="--kind activation"):
        view("heatmap", made(), PLAIN, Choice(kind="param", stat=stat))


def test_open_bins_of_a_histogram_end_where_the_values_do():
    counts = np.zeros((1, BINS), np.int64)
    counts[0, [0, ZERO, BINS - 1]] = 2, 5, 3
    run = record(("a",), np.ones(3), np.ones((3, 1)), np.ones((3, 1)))
    (row,) = run.layout.rows("param_grad", "a")
    run = replace(run, histograms=(StepHistograms.of(1, [row], counts),))
    shown = view("distribution", run, PLAIN, Choice(layer="a"))
    assert np.isfinite(shown.edges).all()
    assert (np.diff(shown.edges) > 0).all()
    assert shown.shares[:, 1] == pytest.approx([0.2, 0.5, 0.3])  # the empty bins around zero are one
    assert shown.edges[[1, 2]].tolist() == [-(2.0**HIGHEST), 2.0**HIGHEST]
    assert "everything beyond 4.29e+09" in " ".join(shown.notes)


def test_the_flow_without_a_choice_is_that_of_the_failure():
    loss = np.array([2.0, 2.0, 2.0, np.nan, np.nan])
    run = record(("a", "b"), loss, np.ones((5, 2)), np.ones((5, 2)))
    assert view("flow", run, EXPLODING).step == 3
    assert view("flow", run, HEALTHY).step == 4


def test_units_are_shares_in_per_cent():
    run = made(light=0, thinned=0, broken=0)
    shown = view("units", run, PLAIN, Choice(step=5))
    for bar, layers, stat in zip(
        shown.bars, (run.layout.rectified, run.layout.bounded), ("dead", "saturated"), strict=True
    ):
        for i, layer in enumerate(shown.layers):
            rows = run.layout.rows("activation", layer)
            last = max(t for t in range(6) if (run.history.high[t, rows, column("count")] > 0).any())
            expected = cell(run, "activation", layer, stat, last, last) if layer in layers else math.nan
            assert bar.values[i] == pytest.approx(expected, rel=1e-5, nan_ok=True)
        assert np.isfinite(bar.values).any()
    assert shown.scale.unit == "%"


def test_a_layer_that_nothing_rectifies_has_no_dead_units():
    run = made(light=0, thinned=0)
    edges = (Edge("block0.fc", "block1.fc", ("addmm",)), *run.layout.edges[1:])
    run = replace(run, layout=replace(run.layout, edges=edges))
    shown = view("heatmap", run, PLAIN, Choice(kind="activation", stat="dead"))
    assert shown.layers == ("block2.fc",)
    assert np.isfinite(shown.values).any()
    assert "of each rectified layer" in shown.title
    none = view("heatmap", run, PLAIN, Choice(kind="activation", stat="dead", layer="block0.fc"))
    assert none.empty == "nothing was read of the output of any rectified layer in these steps"
    assert "block0.fc" not in view("units", run, PLAIN).layers


def test_memory_knows_the_size_of_a_dtype_and_leaves_out_what_it_does_not():
    run = made(thinned=0)
    sites = (replace(run.layout.sites[0], dtype="float16"), replace(run.layout.sites[1], dtype="quint4"))
    run = replace(run, layout=replace(run.layout, sites=(*sites, *run.layout.sites[2:])))
    shown = view("memory", run, PLAIN)
    params, _, outputs = shown.bars
    total = run.history.high[:, :, column("total")].max(axis=0)
    assert outputs.values[0] == 2 * total[0]
    assert math.isnan(outputs.values[1])
    assert "quint4" in " ".join(shown.notes)
    rows = run.layout.rows("param", shown.layers[2])
    assert params.values[2] == 4 * sum(total[row] for row in rows)


def test_a_series_is_that_of_the_record_with_its_range():
    run = made()
    shown = view("series", run, PLAIN, Choice(layer="block1.fc", kind="param_grad", stat="rms"))
    assert [line.name for line in shown.lines] == ["block1.fc.weight", "block1.fc.bias"]
    (row,) = run.layout.rows("param_grad", "block1.fc", "weight")
    for values, reduce in ((shown.lines[0].values, "mean"), (shown.lines[0].low, "min"), (shown.lines[0].high, "max")):
        np.testing.assert_array_equal(values, run.series(row, "rms", reduce).values)
    assert shown.notes[0] == "Lines are means over several steps; bands span minimum to maximum"


def test_only_the_chosen_steps_are_shown():
    run = made(thinned=0)
    choice = Choice(first=10, last=19)
    assert all(10 <= s <= 19 for s in view("heatmap", run, PLAIN, choice).steps)
    (line,) = view("loss", run, PLAIN, choice).lines
    assert line.steps.tolist() == list(range(10, 20))


def test_the_losses_of_two_optimizers_are_two_lines():
    run = made(thinned=0)
    stream = np.arange(len(run.history)) % 2
    run = replace(run, history=replace(run.history, stream=stream))
    shown = view("loss", run, PLAIN)
    assert [line.name for line in shown.lines] == ["loss of optimizer 0", "loss of optimizer 1"]
    assert [line.steps[0] for line in shown.lines] == [0, 1]


def test_a_loss_that_is_not_finite_is_a_mark_not_a_gap():
    loss = np.array([2.0, 1.0, np.nan, np.inf, 1.0])
    run = record(("a",), loss, np.ones((5, 1)), np.ones((5, 1)))
    (line,) = view("loss", run, EXPLODING).lines
    assert line.nonfinite.tolist() == [2, 3]
    assert np.isnan(line.values[2:4]).all()
    marks = view("loss", run, EXPLODING).marks
    assert [(m.role, m.step) for m in marks][:1] == [("failure", 2)]
    assert {m.label for m in marks if m.role == "event"} == {e.kind.replace("_", " ") for e in EXPLODING.events}


def test_a_distribution_gives_moments_and_extremes():
    run = made()
    shown = view("distribution", run, PLAIN, Choice(layer="block2.fc", kind="param", columns=5))
    (row,) = run.layout.rows("param", "block2.fc", "weight")
    h = run.history
    for c, (first, width) in enumerate(zip(shown.steps, shown.width, strict=True)):
        inside = h.read & (h.steps >= first) & (h.steps < first + width)
        for values, found in (
            (shown.low, np.nanmin(h.low[inside, row, column("min")])),
            (shown.high, np.nanmax(h.high[inside, row, column("max")])),
            (shown.mean, np.nanmean(h.mean[inside, row, column("mean")])),
        ):
            assert values[c] == pytest.approx(found, rel=1e-5)


def test_the_chain_runs_downwards():
    chain = Chain(
        (
            ChainNode("a", "cause", "A"),
            ChainNode("b", "event", "B"),
            ChainNode("c", "event", "C"),
            ChainNode("d", "symptom", "D"),
        ),
        (ChainEdge("a", "b"), ChainEdge("a", "c"), ChainEdge("b", "d"), ChainEdge("c", "d")),
    )
    shown = view("chain", made(), replace(PLAIN, chain=chain))
    at = {node.id: (node.x, node.y) for node in shown.nodes}
    assert at["a"][1] < at["b"][1] == at["c"][1] < at["d"][1]
    assert at["b"][0] != at["c"][0]
    assert all(0 <= value <= 1 for place in at.values() for value in place)


def test_the_data_flow_says_what_is_wrong_where():
    run = made(broken=0)
    event = Event("dead_units", "activation_regime", 7, 9, "block2.fc")
    shown = view("dataflow", run, replace(PLAIN, events=(event,)))
    assert [(node.id, node.role) for node in shown.nodes] == [
        ("block0.fc", "healthy"),
        ("block1.fc", "healthy"),
        ("block2.fc", "bad"),
        ("block3.fc", "healthy"),
        ("loss", "healthy"),
    ]
    assert [(link.source, link.target) for link in shown.links][-1] == ("block3.fc", "loss")
    assert shown.nodes[2].step == 7
    assert "dead units from step 7" in shown.nodes[2].detail


@pytest.mark.parametrize(("layers", "most"), [(500, 60), (40, 10)])
def test_a_deep_model_is_grouped_and_says_so(layers, most):
    shown = view("dataflow", made(layers=layers, rows=3, thinned=0), PLAIN, Choice(rows=most))
    assert len(shown.nodes) <= most
    assert f"{layers} layers" in shown.notes[0]
    assert {link.target for link in shown.links} <= {node.id for node in shown.nodes}


@pytest.mark.parametrize("member", VIEWS, ids=lambda member: member.name)
def test_an_empty_run_says_what_is_missing(member):
    nothing = Diagnosis("inconclusive", "nothing was seen")
    shown = view(member.name, RunRecord(), nothing)
    assert shown.name == member.name
    assert shown.empty
    assert shown.title


@pytest.mark.parametrize("member", [m for m in VIEWS if "layer" in m.takes], ids=lambda member: member.name)
def test_a_name_that_is_no_layer_is_an_error_with_the_nearest(member):
    with pytest.raises(UnknownLayer, match=r"block1\.fc"):
        view(member.name, made(), PLAIN, Choice(layer="block1.fd"))


@pytest.mark.parametrize("choice", [Choice(stat="nrom"), Choice(kind="weights")])
def test_an_unknown_choice_lists_what_there_is(choice):
    with pytest.raises(ConfigError, match=r"norm, total|param_grad, output_grad"):
        view("heatmap", made(), PLAIN, choice)
    with pytest.raises(ConfigError, match="chain, dataflow, distribution"):
        view("pie", made(), PLAIN)


def test_the_layer_that_was_hit_is_its_own_and_not_the_block_around_it():
    events = (Event("update_ratio_high", "update_ratio", 3, 3, "net.0.fc.weight"),)
    drawn = {"net", "net.0", "net.0.fc", "net.0.fc2", "net.1"}
    assert guilty_of(replace(EXPLODING, hypotheses=(), chain=Chain((), ()), events=events), drawn) == (
        ("net.0.fc",),
        "hit first",
    )
    assert guilty_of(replace(EXPLODING, hypotheses=(), chain=Chain((), ()), events=events), {"net.0", "net.1"})[0] == (
        "net.0",
    )
    blocks = (replace(events[0], layer="net.0"),)
    inner = {"net.0.fc", "net.0.fc2", "net.1.fc"}
    found = guilty_of(replace(EXPLODING, hypotheses=(), chain=Chain((), ()), events=blocks), inner)[0]
    assert found == ("net.0.fc", "net.0.fc2")


def test_an_event_that_the_cause_does_not_explain_is_neither_hit_first_nor_the_failure():
    events = (Event("dead_units", "activation_regime", 260, 371, "enc.3", confidence=0.62),)
    cause = Hypothesis("mode_collapse", "loss", 0.86, "x", step=0, explains=("loss_plateau",))
    judged = Diagnosis("suspect", "x", events=events, hypotheses=(cause,))
    assert guilty_of(judged, {"enc.3", "mu"}) == ((), "")
    assert failure_of(made(), judged) == (0, "mode collapse, step 0")
    explained = replace(judged, hypotheses=(replace(cause, explains=("dead_units",)),))
    assert guilty_of(explained, {"enc.3", "mu"}) == (("enc.3",), "hit first")
    assert failure_of(made(), explained) == (260, "dead units in enc.3, step 260")
    of_data = replace(explained, hypotheses=(replace(explained.hypotheses[0], category="data"),))
    assert guilty_of(of_data, {"enc.3", "mu"}) == ((), "")  # the batch came to all layers
    spike = replace(judged, events=(*events, Event("loss_spike", "loss", 40, 41)))
    assert failure_of(made(), spike)[0] == 0  # the run goes on, and its cause is about something else
    assert failure_of(made(), replace(spike, verdict="failing"))[0] == 40


def sparse(*steps, end=20_000):
    """A run of light steps, of which a few were read."""
    run = record(("a",), np.ones(end), np.ones((end, 1)), np.ones((end, 1)))
    table = run.history.mean.copy()
    table[np.isin(np.arange(end), steps, invert=True)] = 0.0
    return replace(run, history=replace(run.history, mean=table, low=table, high=table))


def test_every_reading_of_a_long_run_is_wide_enough_to_be_seen():
    """Single readings: two beside each other at a border of columns, one alone, and the last step but one."""
    steps = (0, 83, 84, 85, 8_192, 19_998)
    shown = view("heatmap", sparse(*steps), PLAIN)
    assert np.isfinite(shown.values).all()
    covered = [any(a <= step < a + w for a, w in zip(shown.steps, shown.width, strict=True)) for step in steps]
    assert covered == [True] * len(steps)
    assert np.diff(shown.steps).min() >= 20_000 / 240 / 2
    axes = draw(shown).axes[0]
    (cells,) = [part for part in axes.collections if isinstance(part, QuadMesh)]
    edges, values = cells.get_coordinates()[0, :, 0], np.ma.filled(cells.get_array(), np.nan)[0]
    wide = np.diff(edges)[np.isfinite(values)]
    assert len(wide) == len(shown.steps)
    assert wide.min() >= 20_000 / 480
    assert edges[-1] >= 19_999.5


def test_units_of_a_model_without_bounded_layers_are_only_dead():
    run = made(light=0.0, thinned=0)
    names = [bar.name for bar in view("units", run, PLAIN).bars]
    assert names[0].startswith("dead")
    assert any(name.startswith("saturated") for name in names) == bool(run.layout.bounded)


@pytest.mark.parametrize("name", ["heatmap", "updates"])
def test_the_note_on_columns_is_of_all_steps_that_the_map_shows(name):
    run = replace(made(light=0.0, thinned=0, rows=300), steps=400)  # the last 100 steps were not read
    shown = view(name, run, PLAIN, Choice(columns=20))
    assert f"Each column covers about {400 // 20} of 400 steps" in " ".join(shown.notes)
    assert set(shown.width) == {20}
    assert shown.end == 400


def pausing(steps=4_000, pause=(1_430, 2_850)):
    """A run of which one step in ten is read, none in the pause, and none of the last tenth."""
    run = record(("a", "b"), np.ones(steps), np.ones((steps, 2)), np.ones((steps, 2)))
    read = np.arange(steps) % 10 == 0
    read[pause[0] + 1 : pause[1]] = read[9 * steps // 10 :] = False
    history = run.history
    tables = [np.where(read[:, None, None], table, 0) for table in (history.mean, history.low, history.high)]
    made = replace(history, mean=tables[0], low=tables[1], high=tables[2])
    return replace(run, history=made)


def test_a_line_breaks_where_nothing_was_read_for_long():
    run = pausing()
    shown = view("series", run, PLAIN, Choice(layer="a"))
    (line,) = shown.lines
    assert line.steps[np.isnan(line.values)].tolist() == [1_431]
    assert (np.diff(line.steps) > 0).all()
    for most in (60, 100):
        few = thinned(line, most)
        assert few.steps[np.isnan(few.values)].tolist() == [1_431]
    told = " ".join(shown.notes)
    assert "of 4,000 steps, to limit the overhead; the last was step 3,590" in told
    assert "The last reading" not in told
    some = view("series", run, PLAIN, Choice(layer="a", last=3_800))
    assert "The last reading is of step 3,590" in " ".join(some.notes)
    grad = np.ones((400, 2))
    every = view("series", record(("a", "b"), np.ones(400), grad, grad), PLAIN, Choice(layer="a"))
    assert not np.isnan(every.lines[0].values).any()
    assert every.notes == ()


@pytest.mark.parametrize("fell", [PLAIN, EXPLODING])
def test_the_crash_picture_breaks_its_lines_there_too(fell):
    run = pausing()
    shown = picture(run, fell)
    for raw in (1, 10_000):
        for line in replace(shown, raw=raw).lines(shown.gradients):
            gone = line.steps[np.isnan(line.values)]
            inside = shown.first <= 1_431 <= shown.last
            assert gone.tolist() == ([1_431] if inside else [])
            assert not ((line.steps > 1_431) & (line.steps < 2_850)).any()


def test_the_crash_picture_says_what_points_of_several_steps_are():
    words = [text for text, _ in texts(crash_figure(made(thinned=10), PLAIN))]
    assert any("Lines are means over several steps; bands" in " ".join(text.split()) for text in words)
    assert not any("means" in text for text, _ in texts(crash_figure(made(thinned=0), PLAIN)))


def test_a_layer_without_parameters_is_said_to_have_none():
    run = made()
    bare = Layer("relu", "ReLU", "Net", leaf=True)
    run = replace(run, layout=replace(run.layout, layers=(*run.layout.layers, bare)))
    shown = view("distribution", run, PLAIN, Choice(layer="relu"))
    assert shown.empty == "relu has no parameters"
    assert shown.notes == ()
    assert "no finite value" in view("distribution", run, PLAIN, Choice(layer="relu", kind="activation")).empty
    assert not view("distribution", run, PLAIN, Choice(layer="block1.fc")).empty


def test_units_of_a_run_that_ended_in_nan_are_those_of_its_last_finite_step():
    run = made(light=0, thinned=0, broken=0)
    table = run.history.mean.copy()
    table[30:, :, column("nonfinite")] = 1
    run = replace(run, history=replace(run.history, mean=table, low=table, high=table))
    shown = view("units", run, PLAIN)
    assert shown.step == 29
    assert shown.title.endswith(", step 29")
    assert np.isfinite(shown.bars[0].values).any()
    assert any("later readings are NaN or infinite" in note for note in shown.notes)
    assert view("units", run, PLAIN, Choice(step=35)).title.endswith(", step 35")
    healthy = view("units", made(light=0, thinned=0, broken=0), PLAIN)
    assert (healthy.step, healthy.notes) == (39, ())


def test_one_step_is_one_step():
    counts = np.zeros((1, BINS), np.int64)
    counts[0, np.searchsorted(EDGES, 1.0, side="right") - 1] = 1
    run = record(("a",), np.ones(3), np.ones((3, 1)), np.ones((3, 1)))
    (row,) = run.layout.rows("param_grad", "a")
    run = replace(run, histograms=(StepHistograms.of(1, [row], counts),))
    shown = view("distribution", run, PLAIN, Choice(layer="a"))
    assert "Histograms of at most 1 value were recorded in 1 step" in " ".join(shown.notes)
    assert [counted(n, "step") for n in (0, 1, 2, 1_200)] == ["0 steps", "1 step", "2 steps", "1,200 steps"]
