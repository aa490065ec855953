"""No experiment runs where it would be heard: a function of torch is the program's, a mode or a hook is active, inputs
are of a class of the program's, or the model's code reaches for something that the program shares.

Each program draws from a generator of its own, somewhere. What is left of it, and the losses, must be as without us.
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import gc
import random
import types
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.own_code import not_its_own, torch_is_heard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

STEPS = 5
NOISE = random.Random(0)


def noise() -> float:
    return NOISE.random() * 1e-3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.fc(x)))


def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        noise()
        return original(*args, **kwargs)

    return patched


class Called:
    def __init__(self, original: Any) -> None:
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        noise()
        return self.original(*args, **kwargs)


@contextlib.contextmanager
def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    own = name in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


class Quiet(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        noise()
        return super().forward(x)


PATCHES: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "F.linear": (F, "linear", wrapped),
    "nn.Linear.forward": (nn.Linear, "forward", wrapped),
    "nn.Module.__call__": (nn.Module, "__call__", wrapped),
    "nn.Module._call_impl": (nn.Module, "_call_impl", wrapped),
    "nn.Module.__getattr__": (nn.Module, "__getattr__", wrapped),
    "torch.relu": (torch, "relu", wrapped),
    "Tensor.__add__": (Tensor, "__add__", wrapped),
    "Tensor.clone": (Tensor, "clone", wrapped),
    "nn.init": (nn.init, "zeros_", wrapped),
    "torch.special": (torch.special, "expit", wrapped),
    "torch.linalg": (torch.linalg, "norm", wrapped),
    "torch._C._nn": (torch._C._nn, "linear", wrapped),
    "an object that is called": (F, "gelu", Called),
    "a bound method": (F, "silu", lambda original: Called(original).__call__),
    "a partial": (F, "elu", lambda original: functools.partial(wrapped(original))),
    "inside of torch.no_grad": (F, "selu", lambda original: torch.no_grad()(wrapped(original))),
    "a class": (nn, "Linear", lambda _: Quiet),
    "a built-in that draws": (torch, "rand", lambda _: NOISE.random),
    "a property": (nn.BatchNorm1d, "wired", lambda _: property(lambda self: noise())),
    "a static method": (torch.autograd.Function, "vmap", lambda original: staticmethod(wrapped(original))),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_function_that_is_not_torchs_own_is_found(name: str) -> None:
    owner, attribute, make = PATCHES[name]
    nn.BatchNorm1d.wired = None  # type: ignore[attr-defined]
    try:
        assert not_its_own("torch") == ""
        with patched(owner, attribute, make):
            assert not_its_own("torch").endswith(f".{attribute}")
    finally:
        del nn.BatchNorm1d.wired  # type: ignore[attr-defined]


def test_what_we_have_put_there_is_looked_through() -> None:
    with NeuralDbg(Net()):
        assert not_its_own("torch") == ""
    with patched(nn.Module, "__call__", wrapped), NeuralDbg(Net()):
        assert not_its_own("torch") == "Module.__call__"


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        noise()
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        noise()
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def global_hook(register: Callable[..., Any]) -> Iterator[None]:
    def hook(*_: Any) -> None:
        noise()

    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


class Own(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        noise()
        return super().__torch_function__(func, kinds, args, kwargs or {})


@torch.library.custom_op("neuraldbg_tests::noisy", mutates_args=())
def noisy_operator(x: Tensor) -> Tensor:
    return x + noise()


noisy_operator.register_autograd(lambda ctx, grad: grad)


class UsesOperator(Net):
    def forward(self, x: Tensor) -> Tensor:
        return noisy_operator(super().forward(x))


class UsesOps(Net):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.neuraldbg_tests.noisy(super().forward(x))


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def __iter__(self) -> Iterator[nn.Module]:
        noise()
        return iter((self.first, self.second))


class WalksParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts()

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class ClassGenerator(Net):
    rng = NOISE

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.rng.random() * 1e-3


class Helped(Net):
    def forward(self, x: Tensor) -> Tensor:
        return helper(super().forward(x))


@functools.wraps(F.relu)
def helper(x: Tensor) -> Tensor:
    return x + noise()


class WithoutGradients(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + offset(x)


@torch.no_grad()
def offset(x: Tensor) -> Tensor:
    return x.new_full((), noise())


class Asks(Net):
    """Copies of it ask for ``__deepcopy__``, which goes through this."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            noise()
        return super().__getattr__(name)


class CopiesItself(Net):
    def __deepcopy__(self, memo: Any) -> CopiesItself:
        noise()
        return self


class Goes(Net):
    def __del__(self) -> None:
        noise()


class HoldsModule(Net):
    def __init__(self) -> None:
        super().__init__()
        self.tools = types.ModuleType("tools")
        self.tools.noise = noise  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.tools.noise()


class Level(enum.Enum):
    LOW = 1

    def draw(self) -> float:
        return noise()


class Levels(Net):
    def __init__(self) -> None:
        super().__init__()
        self.level = Level.LOW

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.level.draw()


class Rows(list):  # type: ignore[type-arg]
    def __reduce_ex__(self, protocol: Any) -> Any:
        noise()
        return super().__reduce_ex__(protocol)


class HoldsRows(Net):
    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows([1, 2])


class BuiltinHelper(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + neuraldbg_noise()  # type: ignore[name-defined] # noqa: F821


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation=helper, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x[:, None])[:, 0])


class Noisy(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight + noise()


def parametrized() -> nn.Module:
    model = Net()
    parametrize.register_parametrization(model.fc, "weight", Noisy())
    return model


class Pair(namedtuple("Pair", "x y")):  # noqa: PYI024, SLOT002 (as programs write it)
    def __new__(cls, x: Any, y: Any) -> Self:
        noise()
        return super().__new__(cls, x, y)


class TakesPair(Net):
    def forward(self, pair: Any) -> Tensor:
        return super().forward(pair[0])


class SetsFlag(Net):
    def forward(self, x: Tensor) -> Tensor:
        torch.backends.cudnn.benchmark = noise() > 1
        return super().forward(x)


def training(watch: Any, model: nn.Module, around: Any, given: Callable[[Tensor], Any]) -> list[Tensor]:
    opt, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    with around, watch(model):
        for _ in range(STEPS):
            x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
            loss = F.cross_entropy(model(given(x)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach().clone())
    return losses


def same(x: Tensor) -> Any:
    return x


MODULE = torch.nn.modules.module
PACKED = (lambda x: (noise(), x)[1], lambda x: (noise(), x)[1])
SURROUNDINGS: dict[str, tuple[Callable[[], Any], str]] = {
    "F.linear": (lambda: patched(F, "linear", wrapped), "torch is not its own"),
    "Linear.forward": (lambda: patched(nn.Linear, "forward", wrapped), "torch is not its own"),
    "Module.__call__": (lambda: patched(nn.Module, "__call__", wrapped), "torch is not its own"),
    "torch.relu": (lambda: patched(torch, "relu", wrapped), "torch is not its own"),
    "a TorchFunctionMode": (Mode, "TorchFunctionMode"),
    "a TorchDispatchMode": (Dispatch, "TorchDispatchMode"),
    "forward hooks": (lambda: global_hook(MODULE.register_module_forward_hook), "hooks are set on all modules"),
    "backward hooks": (lambda: global_hook(MODULE.register_module_full_backward_hook), "hooks are set on all modules"),
    "saved tensors": (lambda: torch.autograd.graph.saved_tensors_hooks(*PACKED), "packs what is saved"),
    "a built-in": (lambda: patched_builtin(), "NOISE"),  # noqa: PLW0108 (defined below)
}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor], Any], str]] = {
    "a custom operator": (UsesOperator, same, "shared with the program"),
    "torch.ops": (UsesOps, same, "operator of its own"),
    "__iter__ of a part": (WalksParts, same, "shared with the program|noise"),
    "a generator of the class": (ClassGenerator, same, "rng, which is shared"),
    "a helper that looks like torch's": (Helped, same, "NOISE"),
    "a helper inside of torch.no_grad": (WithoutGradients, same, "NOISE"),
    "__getattr__": (Asks, same, "NOISE"),
    "__deepcopy__": (CopiesItself, same, "copies itself"),
    "__del__": (Goes, same, "when it goes"),
    "a module": (HoldsModule, same, "holds the module"),
    "a method of an enum": (Levels, same, "NOISE"),
    "__reduce_ex__ of a list": (HoldsRows, same, "copies itself|holds a Rows"),
    "a function in a layer of torch's": (Encoder, same, "NOISE"),
    "a parametrization": (parametrized, same, "NOISE"),
    "tensors of a class": (Net, lambda x: x.as_subclass(Own), "class of their own|tensors of a special kind"),
    "a named tuple": (TakesPair, lambda x: Pair(x, 0), "given a Pair"),
    "a setting of torch": (SetsFlag, same, "changes a setting|NOISE"),
}


@contextlib.contextmanager
def patched_builtin() -> Iterator[None]:
    builtins.neuraldbg_noise = noise  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del builtins.neuraldbg_noise  # type: ignore[attr-defined]


def unmoved(make: Callable[[], nn.Module], around: Callable[[], Any], given: Callable[[Tensor], Any]) -> set[str]:
    """Train bare and watched, and require the same of losses and generator. Returns why there was no experiment."""
    found: list[Any] = []
    models: list[nn.Module] = []  # alive until both have run
    sessions: list[NeuralDbg] = []

    def watch(model: nn.Module) -> NeuralDbg:
        sessions.append(NeuralDbg(model, overhead=None))
        return sessions[-1]

    for each in (lambda model: contextlib.nullcontext(), watch):
        torch.manual_seed(0)
        NOISE.seed(0)
        models.append(make())
        found.append((training(each, models[-1], around(), given), NOISE.getstate()))
    (losses, state), (losses_now, state_now) = found
    assert all(map(torch.equal, losses, losses_now))
    assert state == state_now
    facts = [fact.value for fact in sessions[0].record().facts if fact.key == "experiment"]
    assert facts
    assert not any(fact["judged"] for fact in facts)
    return {str(fact["reason"]) for fact in facts}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_no_experiment_where_it_would_be_heard(name: str) -> None:
    around, reason = SURROUNDINGS[name]
    said = unmoved(BuiltinHelper if name == "a built-in" else Net, around, same)
    assert all(any(part in text for part in reason.split("|")) for text in said), said


@pytest.mark.parametrize("name", MODELS)
def test_no_experiment_on_what_the_program_shares(name: str) -> None:
    make, given, reason = MODELS[name]
    said = unmoved(make, contextlib.nullcontext, given)
    gc.collect()  # what draws as it goes must not do so in the next test
    assert all(any(part in text for part in reason.split("|")) for text in said), said


def test_an_operator_that_is_implemented_in_python_is_found() -> None:
    library = torch.library.Library("aten", "IMPL")
    assert torch_is_heard() == ""
    with pytest.warns(UserWarning, match="Overriding"):
        library.impl("erfinv", lambda x: x, "CPU")
    try:
        assert "erfinv" in torch_is_heard()
    finally:
        library._destroy()
        del library
    assert torch_is_heard() == ""


@pytest.mark.parametrize("around", [lambda: torch.device("cpu"), contextlib.nullcontext])
def test_a_default_device_is_no_reason(around: Callable[[], Any]) -> None:
    """``torch.set_default_device`` is a TorchFunctionMode, of torch's own."""
    model = Net()
    with around(), NeuralDbg(model, overhead=None) as dbg:
        training(lambda model: contextlib.nullcontext(), model, contextlib.nullcontext(), same)
    facts = [fact.value for fact in dbg.record().facts if fact.key == "experiment"]
    assert any(fact["judged"] for fact in facts), facts
