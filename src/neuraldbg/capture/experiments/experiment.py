"""The contract of an experiment: a cheap trial on a copy of a model, at one moment of the run.

A member module of ``capture/experiments`` defines ``EXPERIMENT``; registration is one line in
``experiments/__init__.py``. It gets a ``Bench``: the copy of the model, small copies of the arguments of one training
call, and the known facts of the batch. It returns a JSON object for the EXPERIMENT fact, or None if there is nothing to
try. Nothing that it does reaches the user's run: the copy shares no tensor with the model, and the states of all random
number generators are restored.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import types
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from neuraldbg import clocks
from neuraldbg.capture.guest.own_code import installed
from neuraldbg.capture.guest.program_objects import bases, class_member, kind_name, label, members, package_of
from neuraldbg.capture.guest.purity import TRUSTED, TooLong, Unfit
from neuraldbg.capture.guest.tensor_kinds import heard
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

SECONDS = 0.5
"""Seconds that all experiments of one moment may take."""
SEED = 20_240_229
_SCALARS = (str, bytes, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.Size)


@dataclass(frozen=True)
class Experiment:
    """One experiment: a name, a function, and its cost."""

    name: str
    run: Callable[[Bench], dict[str, Any] | None]
    """Returns the finding. Raises Unfit if there can be none."""
    forwards: int
    """Forward passes at most: the experiment is not started if these would take too long."""
    late: bool = False
    """True if it is made once only, when the run has settled, and if its loss has not fallen."""
    fresh: bool = False
    """True if it needs a copy with the model's weights of its own, after the one that changes them."""


class Rate(NamedTuple):
    """The optimizer that a program trains a model with."""

    optimizer: str
    """Name of its class."""
    lr: float
    """Largest learning rate of its groups."""
    momentum: float


@dataclass(eq=False)
class Bench:
    """The objects that an experiment works on: copy of the model, arguments, targets."""

    model: str
    module: nn.Module
    """The copy of the model, in eval mode."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: tuple[Target, ...] = ()
    steady: bool = False
    """True if the step before had another batch of the same size: the rows are samples, not one long series."""
    constant: bool = False
    """True if all samples of the batch are equal: ignoring such an input loses nothing."""
    kept: set[str] = field(default_factory=set)
    """Inputs that are never changed, since the model rejects other values: lengths must be sorted."""
    seconds: float = SECONDS
    began: float = field(default_factory=clocks.perf_counter)
    rate: Rate | None = None
    """Optimizer of the model, None if none is known."""

    @property
    def rows(self) -> int:
        """Size of axis 0 of the first tensor, 0 if there is none."""
        first = next((x for _, x in self.inputs()), None)
        return int(first.shape[0]) if first is not None and first.dim() else 0

    def inputs(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of the arguments: ("0", t) and ("mask", t)."""
        yield from leaves({**{str(i): value for i, value in enumerate(self.args)}, **self.kwargs})

    def is_target(self, x: Tensor) -> bool:
        """Return True if an argument equals a target of the loss: a model that computes its own loss gets
        the targets.
        """
        known = [t.value for t in self.targets if t.value is not None and t.value.numel() == x.numel()]
        return x.numel() > 1 and any(bool((value.reshape(-1) == x.reshape(-1)).all()) for value in known)

    def call(self, change: Callable[[str, Tensor], Tensor] | None = None, seed: int = SEED) -> list[tuple[str, Tensor]]:
        """Call the copy of the model on a copy of the arguments, changed leaf by leaf; return its floating output
        tensors. Raises Unfit if it cannot be called.
        """
        self._hurry()
        try:
            output = self._run(change, seed)
        except Unfit:
            raise
        except Exception as error:
            let_pass(error, "making an experiment")
            lengths = {name for name, x in self.inputs() if x.dim() == 1 and not x.is_floating_point()}
            if change is None or not lengths or lengths <= self.kept:
                raise Unfit(f"its copy cannot be called ({type(error).__name__})") from error
            self.kept |= lengths
            return self.call(change, seed)
        return [(name, x.detach()) for name, x in leaves(output) if x.is_floating_point() and x.numel()]

    def gradients(self, change: Callable[[str, Tensor], Tensor], but: set[str]) -> list[Tensor]:
        """Return the gradients of randomly weighted outputs with respect to the floating tensors among the changed
        arguments, except those named in ``but``. Raises Unfit.
        """
        self._hurry()
        given: list[Tensor] = []

        # The tensors that the model really gets are the ones to differentiate by.
        def noted(name: str, x: Tensor) -> Tensor:
            x = change(name, x)
            if name in but or not x.is_floating_point():
                return x
            given.append(x.detach().clone().requires_grad_())
            return given[-1]

        try:
            # saved-tensor hooks of the program would pack our tensors, too
            with torch.enable_grad(), torch.autograd.graph.disable_saved_tensors_hooks("a copy is differentiated"):
                outputs = [x for _, x in leaves(self._run(noted, graded=True)) if x.requires_grad and x.numel()]
                weighted = [(x * _weights(x)).sum() for x in outputs]
                found: Sequence[Tensor | None] = ()
                if weighted and given:
                    found = torch.autograd.grad(weighted, given, allow_unused=True)
        except Unfit:
            raise
        except Exception as error:
            let_pass(error, "making an experiment")
            raise Unfit(f"its copy cannot be differentiated ({type(error).__name__})") from error
        return [x for x in found if x is not None]

    def graded(self) -> list[tuple[str, Tensor]]:
        """Call the copy of the model on a copy of the arguments, with the same random numbers each time; return its
        floating output tensors, with their graph. Raises Unfit if it cannot be called.
        """
        self._hurry()
        try:
            output = self._run(None, graded=True)
        except Unfit:
            raise
        except Exception as error:
            let_pass(error, "making an experiment")
            raise Unfit(f"its copy cannot be called ({type(error).__name__})") from error
        return [(name, x) for name, x in leaves(output) if x.is_floating_point() and x.numel()]

    def _hurry(self) -> None:
        if clocks.perf_counter() - self.began > self.seconds:
            raise TooLong("it takes too long")

    def _run(self, change: Callable[[str, Tensor], Tensor] | None, seed: int = SEED, *, graded: bool = False) -> Any:
        _seed(seed)
        args = {str(i): value for i, value in enumerate(self.args)}

        def taken(name: str, x: Tensor) -> Tensor:
            return (change(name, x) if change and name not in self.kept else x).clone()

        changed = rebuilt({**args, **self.kwargs}, taken)
        positional = [changed.pop(str(i)) for i in range(len(self.args))]
        with torch.set_grad_enabled(graded):
            return self.module(*positional, **changed)


def _weights(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(SEED), device="cpu").to(x.device, x.dtype)


@dataclass(frozen=True)
class Target:
    """The target of one term of the loss."""

    kind: str
    shape: tuple[int, ...]
    value: Tensor | None = None
    """A copy, None if the target is large."""
    output: str = ""
    """Model and name of the output that it is compared with, as ``output_name`` writes them; empty if not known."""
    way: tuple[Callable[[Tensor], Tensor], ...] = ()
    """The changes of shape from that output to what the loss compares: of classes the scores (N, C, ...)."""
    ignore: int = -100
    """Class id that a loss of classes ignores."""

    def compared(self, model: str, name: str, output: Tensor) -> Tensor | None:
        """Return what the loss compares with the target, made of an output of the copy; None if that is another one,
        or if the target is not known.
        """
        if self.output != output_name(model, name) or self.value is None:
            return None
        try:
            return functools.reduce(lambda x, move: move(x), self.way, output)
        except RuntimeError as error:  # the copy gave another shape
            let_pass(error, "making an experiment")
            return None

    def scores(self, model: str, name: str, output: Tensor) -> Tensor | None:
        """Return the scores of a loss of classes in the order of its targets, shape (positions, C), made of an output
        of the copy; None if the target is not compared with that output.
        """
        made = self.compared(model, name, output) if self.kind.startswith("nll") else None
        if made is None or self.value is None:
            return None
        rows = made.movedim(1, -1).flatten(0, -2) if made.dim() > 1 else made[None]
        return rows if len(rows) == self.value.numel() else None


def output_name(model: str, name: str) -> str:
    """Return the name of one output of one model."""
    return f"{model}:{name}"


def rebuilt(value: Any, put: Callable[[str, Tensor], Tensor], name: str = "", depth: int = 0) -> Any:
    """Return a copy of nested arguments with each tensor replaced. Raises Unfit for a value that is not safe."""
    kind = type(value)
    if kind in (Tensor, torch.nn.Parameter):
        return put(name, value)
    if kind in _SCALARS:
        return value
    if depth > 4:
        raise Unfit("its arguments are nested too deeply")
    inner = f"{name}." if name else ""
    if kind is dict and not all(type(key) in (str, int) for key in value):
        raise Unfit("it is given a dict with keys of a class of their own")
    if kind is dict:
        return {key: rebuilt(item, put, f"{inner}{label(key)}", depth + 1) for key, item in value.items()}
    if kind in (tuple, list):
        return kind(rebuilt(item, put, f"{inner}{i}", depth + 1) for i, item in enumerate(value))
    if issubclass(kind, tuple) and _named(kind):  # such as PackedSequence, whose constructor checks its tensors
        parts = enumerate(tuple.__iter__(value))
        return tuple.__new__(kind, [rebuilt(item, put, f"{inner}{i}", depth + 1) for i, item in parts])
    if issubclass(kind, Tensor):
        raise Unfit(f"it is given tensors of a class of their own ({kind_name(kind)})")
    raise Unfit(f"it is given a {kind_name(kind)}")


def _named(kind: type) -> bool:
    """Return True if a class is a named tuple without methods of the program's."""
    if type(class_member(kind, "_fields")) is not tuple:
        return False
    every = [member for base in bases(kind) if base is not tuple for member in members(base).values()]
    methods = [m.__func__ if type(m) in (staticmethod, classmethod) else m for m in every if type(m) is not property]
    own = any(type(m) is types.FunctionType and not installed(m, TRUSTED) for m in methods)
    return not own and (len(methods) == len(every) or package_of(kind) in TRUSTED)


def _seed(seed: int) -> None:
    """Seed every generator that ``undisturbed`` restores.

    Not ``torch.manual_seed``: before CUDA is initialised that leaves a seed for later, replacing the user's.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(seed)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextlib.contextmanager
def generators_restored() -> Iterator[None]:
    """Restore in the end the states of the random number generators of Python, numpy and torch."""
    numpy = sys.modules.get("numpy.random")
    python, legacy = random.getstate(), numpy.get_state() if numpy is not None else None
    cpu = torch.random.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    with contextlib.ExitStack() as after:  # each is restored, though a signal handler may raise at any of them
        if cuda is not None:
            after.callback(torch.cuda.set_rng_state_all, cuda)
        after.callback(torch.random.set_rng_state, cpu)
        if numpy is not None:
            after.callback(numpy.set_state, legacy)
        after.callback(random.setstate, python)
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore in the end the states of the random number generators; show no warning; keep the caches of autocast and
    of ``parametrize.cached`` unchanged: a copy has the same key there as its original module.
    ``torch.set_default_device`` applies to a copy as it does to the program.
    """
    caches = torch.is_autocast_cache_enabled()
    with generators_restored(), contextlib.ExitStack() as after:
        after.callback(torch.set_autocast_cache_enabled, caches)
        torch.set_autocast_cache_enabled(False)
        after.callback(_set_parametrized, *_set_parametrized(0, {}))
        with _unwarned(), heard():
            yield


def _set_parametrized(enabled: int, cache: dict[Any, Any]) -> tuple[int, dict[Any, Any]]:
    """Set the cache of ``parametrize.cached``, and return its former state."""
    held: Any = torch.nn.utils.parametrize
    before = held._cache_enabled, held._cache  # noqa: SLF001 (no public name)
    held._cache_enabled, held._cache = enabled, cache  # noqa: SLF001
    return before


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Hide warnings of an experiment from the user, who may get the same ones later: then they must count as new.

    ``warnings.catch_warnings`` would make Python forget which warnings it has shown before.
    """
    shown, met = warnings.showwarning, []
    warnings.showwarning = lambda message, category, filename, lineno, *_: met.append(
        (str(message), category, filename, lineno)
    )
    try:
        yield
    finally:
        warnings.showwarning = shown
        for text, category, filename, lineno in met:
            for module in list(sys.modules.values()):
                known = getattr(module, "__warningregistry__", None)
                if known and getattr(module, "__file__", None) == filename:
                    known.pop((text, category, lineno), None)
