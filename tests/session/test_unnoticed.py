"""What a program does with tensors, functions and warnings of torch goes on as if nobody watched."""

from __future__ import annotations

import contextlib
import gc
import pickle
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))


@pytest.mark.parametrize("probes", [True, False])
def test_a_checkpointed_loss_is_computed_as_often_as_without(probes: bool):
    def train(watch: Any) -> tuple[int, int, list[float]]:
        calls, model = 0, small()

        def loss(x: Tensor, y: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return F.cross_entropy(model(x), y)

        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with watch(model):
            for _ in range(6):
                optimizer.zero_grad()
                checkpoint(loss, torch.randn(16, 8), torch.randint(3, (16,)), use_reentrant=False).backward()
                optimizer.step()
        return calls, int(model[1].num_batches_tracked), model[1].running_mean.tolist()

    bare = train(lambda model: contextlib.nullcontext())
    assert train(lambda model: NeuralDbg(model, probes=probes)) == bare


@pytest.mark.parametrize("inside", [False, True])
def test_packed_tensors_are_unpacked_once(inside: bool):
    store: dict[int, Tensor] = {}

    def pack(x: Tensor) -> int:
        store[len(store)] = x.clone()
        return len(store) - 1

    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def region() -> Any:
        return torch.autograd.graph.saved_tensors_hooks(pack, store.pop)

    with contextlib.ExitStack() as stack:
        if inside:  # the region began before the session
            stack.enter_context(region())
        stack.enter_context(NeuralDbg(model))
        for _ in range(4):
            optimizer.zero_grad()
            with contextlib.nullcontext() if inside else region():
                loss = F.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
            loss.backward()
            optimizer.step()
    assert not store


def test_losses_beside_a_packed_region_are_still_read():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with NeuralDbg(model) as dbg:
        for _ in range(4):
            optimizer.zero_grad()
            out = checkpoint(model, torch.randn(16, 8), use_reentrant=False)
            F.cross_entropy(out, torch.randint(3, (16,))).backward()
            optimizer.step()
    term = dbg.record().fact("loss")["terms"][0]
    assert term["target_shape"] == [16]


def test_loss_functions_are_themselves():
    handled = {F.mse_loss: "mine"}

    class Own(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handled[func] if func in handled else super().__torch_function__(func, types, args, kwargs or {})

    before = F.cross_entropy
    with NeuralDbg(nn.Linear(2, 2)):
        assert F.cross_entropy is before
        assert pickle.loads(pickle.dumps(F.cross_entropy)) is before
        assert F.mse_loss(torch.ones(2).as_subclass(Own), torch.ones(2)) == "mine"


def test_tensors_can_be_swapped():
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with NeuralDbg(model):
            optimizer.zero_grad()
            model.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert model.weight.dtype == torch.float64


def test_a_warning_is_shown_where_and_as_often_as_without():
    def shown(watch: Any) -> list[tuple[str, int]]:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with warnings.catch_warnings(record=True) as met, watch(model):
            warnings.simplefilter("default")
            globals().pop("__warningregistry__", None)
            for step in range(6):
                warnings.warn("the program's own", UserWarning, stacklevel=1)
                optimizer.zero_grad()
                y = model(torch.ones(8, 4))
                if step == 3:  # a gradient that is no number: the pass is made again
                    y = torch.sqrt(y * 0)
                F.mse_loss(y, torch.zeros(8)).backward()
                optimizer.step()
        return [(one.filename, one.lineno) for one in met]

    assert shown(NeuralDbg) == shown(lambda model: contextlib.nullcontext())


@pytest.mark.parametrize("kind", ["complex", "sparse"])
def test_a_root_of_another_kind_costs_nothing(kind: str):
    model = nn.Linear(4, 4, dtype=torch.cfloat if kind == "complex" else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with NeuralDbg(model) as dbg:
        for _ in range(8):
            optimizer.zero_grad()
            if kind == "complex":
                root = model(torch.randn(4, 4, dtype=torch.cfloat)).sum()
                root.backward(torch.ones_like(root))
            else:
                root = model(torch.randn(4, 4)).to_sparse()
                root.backward(torch.ones(4, 4).to_sparse())
            optimizer.step()
    run = dbg.record()
    assert (run.steps, run.info.coverage["errors"]) == (8, 0)
    assert len(run.scalar("loss")) == 8


def test_replaced_heads_and_failed_batches_are_let_go():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 3))
    heads, batch = [], torch.randn(8, 17)
    with NeuralDbg(model):
        for _ in range(40):
            model[1] = nn.Linear(16, 3)
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(torch.randn(8, 16)), torch.randint(3, (8,))).backward()
                optimizer.step()
            heads.append(weakref.ref(model[1].weight))
        with pytest.raises(RuntimeError, match="shapes"):
            model(batch)
        alive = weakref.ref(batch)
        del batch
        gc.collect()
        assert alive() is None
        assert sum(head() is not None for head in heads) <= 6  # however quick the steps were


def test_a_loop_without_an_optimizer_is_not_read_for_ever():
    model = small()
    with NeuralDbg(model) as dbg:
        for _ in range(100):
            model.zero_grad()
            F.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,))).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.01 * p.grad)
        assert dbg._capture is not None
        assert not dbg._capture.scene.reading


def test_an_output_that_is_saved_warns_of_nothing(tmp_path: Any):
    model = small()
    with NeuralDbg(model), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(model(torch.randn(4, 8)), tmp_path / "output.pt")


def test_a_session_may_begin_where_tensors_are_made_on_meta():
    model = small()
    with torch.device("meta"):
        session = NeuralDbg(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with session:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    assert session.record().steps == 3
    assert session.record().info.coverage["errors"] == 0


def test_what_was_packed_before_is_no_news():
    model = small()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), NeuralDbg(model) as packed:
        model(torch.randn(4, 8)).sum().backward()
    with NeuralDbg(small()) as plain:
        model(torch.randn(4, 8)).sum().backward()
    said = [any("packed" in note for note in dbg.record().info.coverage["notes"]) for dbg in (packed, plain)]
    assert said == [True, False]
