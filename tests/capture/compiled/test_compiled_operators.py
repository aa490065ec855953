"""What compiled graphs hold: samples, and operators in native code that do what the ones in Python do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from neuraldbg.capture.compiled import operators
from neuraldbg.capture.compiled.traced_hook import Graph
from neuraldbg.capture.guest.native import native as native_kernel
from neuraldbg.capture.statistics import operation

native = pytest.mark.skipif(not operators.NATIVE, reason="no native operators with this torch, or no kernel")
shapes = st.lists(st.integers(1, 18), min_size=0, max_size=4)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])


@pytest.fixture
def graph():
    made = Graph(table(), np.zeros(2), 64, "observe", raised)
    yield made
    made.close()


def raised(doing: str) -> None:
    raise  # noqa: PLE0704 (only called while an exception is handled)


def table() -> torch.Tensor:
    return torch.from_numpy(np.tile(operation.BLANK, (4, 1)))


@given(shapes, dtypes, st.integers(1, 5000))
@settings(max_examples=200, deadline=None)
def test_a_sample_is_small_new_and_made_of_the_tensor(shape, dtype, cap):
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    x = numbers.to(dtype)
    taken = operators.sample(x, cap)
    assert 1 <= taken.numel() <= cap
    assert taken.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert set(taken.double().flatten().tolist()) <= set(x.double().flatten().tolist())
    if x.numel() <= cap:
        assert torch.equal(taken.double(), x.double())
    else:
        places = operators.sample(numbers.double(), cap).flatten()
        assert places.unique().numel() == places.numel()
        assert taken.numel() >= min(cap, x.numel()) / 2 ** len(shape)


@pytest.mark.parametrize(
    ("shape", "cap", "left"),
    [
        ((32, 64, 32, 32), 4096, (4, 64, 4, 4)),
        ((128, 256), 4096, (16, 256)),
        ((8, 128, 256), 4096, (4, 4, 256)),
        ((128, 1024), 1024, (16, 4, 16)),  # features in runs of 16
        ((8, 128, 768), 1024, (4, 4, 4, 16)),
        ((128, 300), 1024, (8, 75)),  # no number of runs
        ((128, 96), 1024, (8, 96)),  # all features first
        ((32, 256, 14, 14), 1024, (4, 64, 4, 1)),
        ((100_000,), 4096, (4000,)),
        ((2, 50_000), 4096, (2, 125, 16)),
    ],
)
def test_a_sample_leaves_features_and_enough_positions_that_none_speaks_alone(shape, cap, left):
    assert operators.sample(torch.zeros(shape), cap).shape == left


@pytest.mark.parametrize("features", [256, 272, 768, 4096, 50_000])
def test_features_that_are_taken_in_runs_are_spread_over_all(features):
    taken = operators.sample(torch.arange(features).expand(128, -1).double(), 1024)
    assert taken.shape[-1] == 16
    assert taken.numel() <= 1024
    starts = taken[0, :, 0].tolist()
    assert torch.equal(taken - taken[..., :1], torch.arange(16).expand_as(taken))
    apart = {b - a for a, b in itertools.pairwise(starts)}
    assert len(apart) == 1
    assert starts[0] < max(apart)
    assert features - 16 - starts[-1] < max(apart)


@pytest.mark.parametrize("features", [256, 384, 512, 768, 1024, 1600, 2304, 4096])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_features_that_are_taken_in_runs_lie_at_other_places_of_each_head(features, width):
    taken = operators.sample(torch.arange(features).expand(128, -1), 1024)
    starts = taken[0, :, 0]
    assert starts.numel() >= 3
    assert (starts % width).unique().numel() == min(starts.numel(), width // 16)


@native
@given(shapes, dtypes, st.booleans(), st.sampled_from([0.0, 1.5]), st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_native_operators_do_what_those_in_python_do(shape, dtype, strided, bound, odd):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(odd)).to(dtype)
    if x.dim() and odd < 4:
        x.view(-1)[0] = (math.nan, math.inf, 0.0, 1e-7)[odd]
    if strided and x.dim() > 1:
        x = x.transpose(0, 1)[:, ::2]
    rows = []
    for served in (True, False):
        clock, graph_table = np.zeros(2), table()
        made = Graph(graph_table, clock, 64, "observe", raised)
        places = torch.tensor([2.0, 3.0, bound, 0.25], dtype=torch.float64)
        totals, bounds = [x.numel() + 5, x.numel()], [bound, 0.25, 0.0, 0.0]
        if served:
            operators.observe([x, x], graph_table, made.handle, [0, 1], totals, bounds)
            operators.observe_at(x, graph_table, made.handle, places, x.numel())
            zero = operators.observe_gradient_at(x, made.handle, places, x.numel())
            zero += operators.observe_gradients([x, x], made.handle, [0, -1], [x.numel() + 5, x.numel()])
            assert clock[0] > 0
        else:
            operators.observe_in_python([x, x], graph_table, made.handle, [0, 1], totals, bounds)
            operators.observe_at_in_python(x, graph_table, made.handle, places, x.numel())
            zero = operators.observe_gradient_at_in_python(x, made.handle, places, x.numel())
            zero += operators.observe_gradients_in_python([x, x], made.handle, [0, -1], [x.numel() + 5, x.numel()])
        assert torch.equal(zero, torch.zeros(()))
        rows.append(graph_table.numpy().copy())
        made.close()
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-6, atol=1e-3)  # float32 sums of up to 10^5


@pytest.mark.parametrize("served", [pytest.param(True, marks=native), False])
def test_what_rests_or_is_closed_reads_nothing(graph, served):
    observe = operators.observe if served else operators.observe_in_python
    observe_gradients = operators.observe_gradients if served else operators.observe_gradients_in_python
    x = torch.ones(8)
    graph.rest(resting=True)
    observe([x], graph.table, graph.handle, [0], [8], [0.0, 0.0])
    assert observe_gradients([x], graph.handle, [1], [8]).item() == 0.0
    assert graph.table[0, operation.COUNT] == 0
    graph.rest(resting=False)
    observe([x], graph.table, graph.handle, [0], [8], [0.0, 0.0])
    observe_gradients([x], graph.handle, [1], [8])
    assert graph.table[:2, operation.COUNT].tolist() == [8, 8]
    graph.close()
    observe([x], graph.table, graph.handle, [0], [8], [0.0, 0.0])
    observe_gradients([x], graph.handle, [1], [8])
    observe_gradients([x], 2**40, [1], [8])
    assert graph.table[:2, operation.COUNT].tolist() == [8, 8]


@native
@pytest.mark.parametrize("mode", ["real", "fake"])
def test_whoever_traces_sees_the_operators_of_a_table_that_rests(graph, mode):
    graph.rest(resting=True)

    def read(x):
        operators.observe([x], graph.table, graph.handle, [0], [8], [0.0, 0.0])
        return operators.observe_gradients([x], graph.handle, [1], [8])

    traced = make_fx(read, tracing_mode=mode, _allow_non_fake_inputs=True)(torch.ones(8))
    called = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
    assert called == ["neuraldbg.observe.default", "neuraldbg.observe_gradients.default"]
    graph.rest(resting=False)
    traced(torch.ones(8))
    assert graph.table[:2, operation.COUNT].tolist() == [8, 8]


@native
def test_a_call_that_reads_nothing_takes_any_arguments_that_the_operator_does(graph):
    graph.rest(resting=True)
    x = torch.ones(8)
    assert (
        operators.observe(xs=[x], table=graph.table, handle=graph.handle, rows=[0], totals=[8], bounds=[0.0, 0.0])
        is None
    )
    assert operators.observe([], graph.table, graph.handle, [], [], []) is None
    for wrong in ([x], "x", [8]), ([x], graph.handle, [0]):
        with pytest.raises((RuntimeError, TypeError)):
            operators.observe_gradients(*wrong)


@native
def test_what_is_returned_is_the_callers(graph):  # compilers write into it, autograd hangs its graph on it
    graph.rest(resting=True)
    places = torch.zeros(4, dtype=torch.float64)
    for read in (
        lambda: operators.observe_gradients([torch.ones(8)], graph.handle, [0], [8]),
        lambda: operators.observe_gradient_at(torch.ones(8), graph.handle, places, 8),
    ):
        first, second = read(), read()
        first.fill_(5.0).requires_grad_()
        assert second.item() == read().item() == 0.0
        assert not read().requires_grad
        assert first.data_ptr() != second.data_ptr()


@native
def test_a_shortcut_refuses_what_it_could_not_read():
    for size, handle in (0, 0), (2, 2), (2, -1):
        with pytest.raises(ValueError, match="handle"):
            native_kernel.Shortcut(len, len, None, size, handle)
    with pytest.raises(TypeError):
        native_kernel.Shortcut(len, len, None, "2", 1)


@native
@pytest.mark.parametrize("resting", [True, False])
def test_arguments_are_let_go(graph, resting):
    graph.rest(resting=resting)
    x, places = torch.randn(100), torch.zeros(4, dtype=torch.float64)
    before = x._use_count(), graph.table._use_count(), places._use_count()
    for _ in range(3):
        operators.observe([x, x], graph.table, graph.handle, [0, 1], [100, 100], [0.0] * 4)
        operators.observe_at(x, graph.table, graph.handle, places, 100)
        operators.observe_gradients([x, x], graph.handle, [0, -1], [100, 100])
        operators.observe_gradient_at(x, graph.handle, places, 100)
    assert (x._use_count(), graph.table._use_count(), places._use_count()) == before
