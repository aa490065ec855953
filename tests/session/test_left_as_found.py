"""Whatever happens, a session that ended has left torch, and the model, as it found them."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch
from tests.session.seeded_trainings import Mlp, vectors
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, TrainingHalted
from neuraldbg.capture import Capture
from neuraldbg.capture.loop.models import Models

PATCHED = (
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (nn.Module, "__call__"),
    (torch.nn.utils.clip_grad, "_clip_grads_with_norm_"),
    (torch.amp.GradScaler, "scale"),
    (torch.amp.GradScaler, "step"),
    (torch.Tensor, "backward"),
    (torch.optim.Optimizer, "step"),
    (torch.optim.Optimizer, "zero_grad"),
)


def hook_dicts(model: nn.Module) -> list[Any]:
    """The keys and values of every hook dictionary: of modules, of parameters, of torch as a whole."""
    found: list[Any] = []
    for module in model.modules():
        found += [(name, dict(value)) for name, value in vars(module).items() if name.endswith("_hooks")]
    found += [p._backward_hooks for p in model.parameters()]
    found += [getattr(p, "_post_accumulate_grad_hooks", None) or None for p in model.parameters()]
    for place in (sys.modules["torch.optim.optimizer"], torch.nn.modules.module):
        found += [(name, dict(v)) for name, v in vars(place).items() if name.startswith("_global_") and _is_dict(v)]
    return found


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def functions() -> dict[str, Any]:
    return {f"{owner.__name__}.{name}": vars(owner)[name] for owner, name in PATCHED}


class Boom(Exception):
    """What the loop raises."""


def loop(model: nn.Module, steps: int = 3, fail: BaseException | None = None, scale: float = 1.0) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x, y = vectors()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * (scale if step == 2 else 1.0)
        loss.backward()
        if fail is not None and step == 1:
            raise fail
        optimizer.step()


def check(model: nn.Module, program: Any, raises: type[BaseException] | None = None) -> None:
    model_vars = {name: set(vars(m)) for name, m in model.named_modules()}
    before = (hook_dicts(model), functions())
    if raises is None:
        program()
    else:
        with pytest.raises(raises):
            program()
    assert hook_dicts(model) == before[0]
    after = functions()
    assert [name for name, value in before[1].items() if after[name] is not value] == []
    assert {name: set(vars(m)) for name, m in model.named_modules()} == model_vars


@pytest.mark.parametrize("discover", [False, True])
@pytest.mark.parametrize("error", [None, Boom("no"), KeyboardInterrupt(), SystemExit(3)])
def test_after_a_loop_that_ends_or_raises(error: BaseException | None, discover: bool) -> None:
    model = Mlp()

    def program() -> None:
        with NeuralDbg(None if discover else model, discover=discover, snapshots=["*"]):
            loop(model, fail=error)

    check(model, program, type(error) if error is not None else None)


def test_after_training_was_halted() -> None:
    model = Mlp()

    def program() -> None:
        with NeuralDbg(model, halt=True):
            loop(model, scale=float("nan"))

    check(model, program, TrainingHalted)


@pytest.mark.parametrize(("owner", "where"), [(Capture, "start"), (Models, "watch")])
def test_after_a_start_that_failed(monkeypatch: pytest.MonkeyPatch, owner: type, where: str) -> None:
    model = Mlp()
    real = getattr(owner, where)

    def broken(self: Any, *args: Any) -> None:
        real(self, *args)
        raise Boom

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, broken)
        check(model, NeuralDbg(model).start, Boom)
    with NeuralDbg(model) as dbg:  # and the next session is not told that one is running
        loop(model)
    assert dbg.steps == 3


def test_after_a_nested_session() -> None:
    model = Mlp()

    def program() -> None:
        with NeuralDbg(model) as outer:
            loop(model)
            with NeuralDbg(Mlp()):
                pass
            loop(model)
            assert outer.steps == 6

    check(model, program)


def test_a_session_stopped_inside_a_pass_or_a_backward() -> None:
    """Whatever runs when the user stops: the frames of ours that are still on the stack stay harmless."""

    class Stopper(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if stop == "forward":
                dbg.stop()
            if stop == "backward":
                x.register_hook(lambda grad: dbg.stop())
            return x

    for stop in ("forward", "backward"):  # noqa: B007 (the module above reads it)
        model = nn.Sequential(nn.Linear(8, 8), Stopper(), nn.Linear(8, 3))
        dbg = NeuralDbg(model)

        def program(model: nn.Module = model, dbg: NeuralDbg = dbg) -> None:
            dbg.start()
            loop(model)

        check(model, program)


def test_stopping_twice_and_starting_again() -> None:
    model = Mlp()
    dbg = NeuralDbg(model)
    dbg.start()
    loop(model)
    dbg.stop()
    first = dbg.diagnose()
    dbg.stop()
    loop(model)
    assert dbg.diagnose() is first
    assert dbg.steps == 3


def test_a_patch_of_another_tool_survives() -> None:
    """Put over ours while the session runs: it stays, ours below it does nothing any more."""
    original = torch.autograd.backward
    try:
        with NeuralDbg(Mlp()) as dbg:
            ours = torch.autograd.backward

            def theirs(*args: Any, **kwargs: Any) -> Any:
                return ours(*args, **kwargs)

            torch.autograd.backward = theirs
        assert torch.autograd.backward is theirs
        loop(Mlp())
        assert dbg.steps == 0
        assert dbg.record().info.coverage["backwards"] == 0
    finally:
        torch.autograd.backward = original


def test_nothing_holds_model_optimizer_or_graph_after_the_end() -> None:
    import weakref

    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with NeuralDbg(discover=True) as dbg:
        x, y = vectors()
        out = model(x)
        gone = [weakref.ref(optimizer), weakref.ref(out)]
        F.cross_entropy(out, y).backward()
        optimizer.step()
        del optimizer, out
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    assert dbg.diagnose().verdict


def test_finding_the_model_by_its_variables_disturbs_no_variable() -> None:
    model = Mlp()
    kept = locals()
    with NeuralDbg(discover=True) as dbg:
        loop(model)
        assert kept["model"] is model
    assert dbg.record().info.models == ("model",)


@pytest.mark.parametrize("collects", [True, False])
def test_attaching_to_many_layers_waits_for_no_search_through_all_objects(collects):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(600)))
    began = []
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    gc.set_threshold(700, 1, 1)  # a search through all at nearly every one through the newest
    gc.callbacks.append(lambda phase, info: began.append(info["generation"]) if phase == "start" else None)
    dbg = NeuralDbg(model)
    try:
        began.clear()
        dbg.start()
        assert len(began) < 4  # not one for each few hundred objects
        assert gc.isenabled() is collects
    finally:
        gc.callbacks.pop()
        gc.set_threshold(700, 10, 10)
        (gc.enable if was else gc.disable)()
        dbg.stop()
