"""Callables that stand for functions of torch, the function for ``Module.__call__``, and hooks that nothing saves."""

from __future__ import annotations

import copy
import copyreg
import gc
import inspect
import io
import pickle
import sys
import traceback
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.capture.captured_run import capture_run
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.compiled import recompile
from neuraldbg.capture.guest import native, stand_in
from neuraldbg.capture.guest.module_call import stands_in, under
from neuraldbg.capture.guest.own_code import not_its_own
from neuraldbg.capture.guest.own_hooks import OwnHook, numbers_apart

Make = Callable[[Callable[..., Any], Callable[..., Any]], Any]
NATIVE = pytest.mark.skipif(native.native is None, reason="without the kernel there is a frame of ours")
WAYS = [pytest.param(stand_in.stand_in, id="native", marks=NATIVE), pytest.param(stand_in.in_python, id="python")]


def adds(a: int, b: int = 2, *, c: int = 3) -> int:
    """Add."""
    if a < 0:
        raise ValueError(a)
    return a + b + c


class Around:
    """A generator function, and what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, a: int, *args: Any, **kwargs: Any) -> stand_in.Around:
        if a == 0:
            return
        try:
            self.told.append((yield ((a + 1, *args), kwargs) if a > 100 else None))
        except GeneratorExit:
            self.told.append("closed")
            raise
        finally:
            self.told.append("out")


@pytest.mark.parametrize("make", WAYS)
def test_a_call_is_surrounded_and_its_arguments_may_be_others(make: Make) -> None:
    around = Around()
    call = make(adds, around)
    assert call(1, c=5) == 8
    assert around.told == [8, "out"]
    assert call(0) == 5  # nothing to do
    assert call(101) == 107
    assert around.told == [8, "out", 107, "out"]


@pytest.mark.parametrize("make", WAYS)
def test_errors_are_the_functions_own(make: Make) -> None:
    around = Around()
    call = make(adds, around)
    with pytest.raises(ValueError, match="-1"):
        call(-1)
    assert around.told == ["closed", "out"]
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"z": 2})):
        with pytest.raises(TypeError) as theirs:
            adds(*args, **kwargs)
        with pytest.raises(TypeError) as ours:
            call(*args, **kwargs)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("make", WAYS)
def test_an_interrupt_within_our_half_passes_with_what_it_interrupted(make: Make) -> None:
    def around(a: int) -> stand_in.Around:
        try:
            yield
        finally:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        make(adds, around)(-1)
    before = caught.value.__context__
    assert isinstance(before, ValueError) or (before is not None and isinstance(before.__context__, ValueError))
    with pytest.raises(KeyboardInterrupt):
        make(adds, around)(1)


@NATIVE
def test_nothing_of_ours_is_on_the_stack_or_in_a_traceback() -> None:
    def depth(a: int) -> int:
        return len(inspect.stack(0)) if a else 1 // a

    call = stand_in.stand_in(depth, Around())
    assert call(1) == depth(1)
    with pytest.raises(ZeroDivisionError) as caught:
        stand_in.stand_in(lambda a: depth(0), Around())(1)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_nothing_of_ours_is_on_the_stack_or_in_a_traceback", "<lambda>", "depth"]


@NATIVE
def test_it_looks_like_the_function() -> None:
    call = stand_in.stand_in(adds, Around())
    assert inspect.signature(call) == inspect.signature(adds)
    assert (call.__name__, call.__doc__, call.__code__) == ("adds", "Add.", adds.__code__)
    assert isinstance(call, types.FunctionType)
    assert inspect.getsource(call) == inspect.getsource(adds)
    assert repr(call) == repr(adds)
    assert weakref.ref(call)() is call
    assert copy.deepcopy(call) is call
    call.note = 1
    assert adds.__dict__.pop("note") == 1
    assert stand_in.below(stand_in.stand_in(call, Around())) is adds
    assert stand_in.below(len) is len


@NATIVE
def test_a_function_is_a_method_of_its_class_and_a_built_in_is_none() -> None:
    class Held:
        method = stand_in.stand_in(lambda *args: args, lambda *args: iter(()))
        built_in = stand_in.stand_in(len, Around())

    held = Held()
    assert held.method(1) == (held, 1)
    assert held.method.__self__ is held
    assert Held.method(2) == (2,)
    with pytest.raises(TypeError):
        held.built_in()


@NATIVE
def test_those_of_a_session_are_pickled_by_name_and_gone_afterwards() -> None:
    places: list[tuple[Any, str]] = [
        (torch, "load"),
        (torch.serialization, "load"),
        (torch.autograd, "backward"),
        (nn.Module, "zero_grad"),
        (nn.utils, "clip_grad_value_"),
        (torch.optim.lr_scheduler.LRScheduler, "step"),
        (torch._C._nn, "mse_loss"),
    ]
    before = [getattr(*place) for place in places]
    with NeuralDbg(nn.Linear(1, 1)):
        for place, original in zip(places, before, strict=True):
            function = getattr(*place)
            assert stand_in.below(function) is original
            assert function is not original
            assert pickle.loads(pickle.dumps(function)) is function
    assert [getattr(*place) for place in places] == before


def test_another_tools_function_is_found_below_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "zero_grad", lambda module, set_to_none=True: None)
    with NeuralDbg(nn.Linear(1, 1)):
        assert not_its_own("torch") == "Module.zero_grad"
    monkeypatch.undo()
    with NeuralDbg(nn.Linear(1, 1)):
        assert stands_in(nn.Module.__call__)
        assert under(nn.Module.__call__) is nn.Module._wrapped_call_impl
        assert not_its_own("torch") == ""


def test_modules_hold_nothing_of_ours_while_nothing_is_compiled() -> None:
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    found: list[int] = []

    def program() -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            net(torch.randn(2, 3)).sum().backward()
            opt.step()
            found.extend(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())

    seen = capture_run(program, net)
    assert set(found) == {0}
    assert seen.norm("activation", "1") > 0


@pytest.mark.parametrize("layers", [246, 60])
def test_a_model_may_be_nested_as_deeply_as_without_us(layers: int) -> None:
    net: nn.Module = nn.Linear(2, 2)
    for _ in range(layers):
        net = nn.Sequential(net)

    def deepest() -> int:
        """Return how deep a pass can be begun at all."""
        low, high = 0, sys.getrecursionlimit()
        while low < high - 1:
            middle = (low + high) // 2
            try:
                under_calls(middle, lambda: net(torch.ones(1, 2)))
                low = middle
            except RecursionError:
                high = middle
        return low

    bare = deepest()
    with NeuralDbg(net, discover=False), pytest.MonkeyPatch.context() as patch:
        patch.setattr("neuraldbg.capture.guest.guard.Tally.strict", False, raising=False)
        assert abs(deepest() - bare) <= 2


def under_calls(number: int, act: Callable[[], Any]) -> Any:
    """Call with so many frames below."""
    return act() if number == 0 else under_calls(number - 1, act)


def saved(module: nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    return buffer.getvalue()


def test_hooks_of_ours_are_in_no_pickle_and_no_copy() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    theirs = net[1].register_forward_hook(print)
    expected = saved(net), pickle.dumps(OrderedDict(a=1)), theirs.id
    hook = OwnHook(net[1]._forward_hooks, lambda *_: None)
    other = OwnHook(net._forward_pre_hooks, lambda *_: None)
    assert len(net[1]._forward_hooks) == 2
    assert (saved(net), pickle.dumps(OrderedDict(a=1)), theirs.id) == expected
    assert list(copy.deepcopy(net)[1]._forward_hooks.values()) == [print]
    assert list(pickle.loads(pickle.dumps(net))[1]._forward_hooks) == [theirs.id]
    hook.remove()
    assert OrderedDict in copyreg.dispatch_table
    other.remove()
    assert OrderedDict not in copyreg.dispatch_table
    assert list(net[1]._forward_hooks) == [theirs.id]
    hook.put()
    assert list(net[1]._forward_hooks) == [theirs.id, hook.id]
    hook.remove()


def test_hooks_that_die_without_being_taken_off_leave_copies_and_pickles_as_they_are() -> None:
    net = nn.Linear(1, 1)
    OwnHook(net._forward_hooks, print)
    del net
    gc.collect()
    net = nn.Linear(1, 1)
    hook = OwnHook(net._forward_hooks, print)
    assert copy.deepcopy(net.state_dict()).keys() == net.state_dict().keys()
    hook.remove()
    assert OrderedDict not in copyreg.dispatch_table


def test_a_programs_own_way_to_pickle_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, OrderedDict, lambda held: (dict, (), None, None, iter(held.items())))  # type: ignore[misc]
    net = nn.Linear(1, 1)
    hook = OwnHook(net._forward_hooks, print)
    assert copy.deepcopy(net._forward_hooks) == {}
    assert type(copy.deepcopy(OrderedDict(a=1))) is dict
    hook.remove()
    assert type(copy.deepcopy(OrderedDict(a=1))) is dict


def test_handles_of_the_program_have_the_numbers_that_they_have_without_us() -> None:
    first = nn.Linear(1, 1).register_forward_hook(print).id
    with numbers_apart():
        assert nn.Linear(1, 1).register_forward_hook(print).id > first + 1_000_000
    net = nn.Linear(1, 1)
    with NeuralDbg(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(1, 1)).sum().backward()
        opt.step()
        assert net.register_forward_hook(print).id == first + 1


def test_compiled_models_are_saved_without_our_hooks() -> None:
    def program(found: list[bytes], hooks: int) -> None:
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        call = torch.compile(net, backend="eager")
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            call(torch.randn(2, 3)).sum().backward()
            opt.step()
            assert len(net[0]._forward_hooks) == hooks
            found.append(saved(net))
            assert not any(m._forward_hooks or m._forward_pre_hooks for m in copy.deepcopy(net).modules())

    bare: list[bytes] = []
    watched: list[bytes] = []
    program(bare, 0)
    capture_run(lambda: program(watched, 1))
    assert watched == bare
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.Tanh]):
        assert torch.load(io.BytesIO(watched[-1]), weights_only=True)(torch.ones(1, 3)).shape == (1, 3)
    torch._dynamo.reset()


def test_dynamo_that_another_thread_is_about_to_import_has_compiled_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch._dynamo.convert_frame", "torch._dynamo.eval_frame"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert not recompile.anything_compiled()
    assert not recompile.asked_to_compile()


def test_functions_of_the_class_that_a_script_names_are_torchs_own() -> None:
    with NeuralDbg(nn.Linear(1, 1)):
        ours = torch._C._nn.mse_loss
        assert stand_in.below(ours) is not ours or native.native is None

        @torch.jit.script
        def loss(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.mse_loss(doubled(x), x)

        assert torch._C._nn.mse_loss is ours
    assert float(loss(torch.ones(2))) == 1.0


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2
