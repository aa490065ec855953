"""One optimizer, and its state over the steps of a run."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import group_tensors, groups, tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import item, name_of
from neuraldbg.capture.guest.weak_references import TensorRef
from neuraldbg.capture.parameters.usual_norm import Usual

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor
    from torch.optim.optimizer import Optimizer

    from neuraldbg.capture.parameters.gradient_norm import Norm
    from neuraldbg.capture.parameters.outside_changes import Changed, KeptElements
    from neuraldbg.capture.statistics.device.pending import Awaited
    from neuraldbg.capture.statistics.watched_parameter import Watched


class Rates:
    """The learning rate of each tensor of an optimizer, NaN if its group has none."""

    def __init__(self, opt: Optimizer | None = None) -> None:
        self._refs: list[tuple[TensorRef, float]] = []
        for group in groups(opt):
            lr = number(item(group, "lr"))
            self._refs += [(TensorRef(x), math.nan if lr is None else lr) for x in group_tensors(group)]

    def now(self) -> dict[int, float]:
        """Return the rates of the living tensors, by identity."""
        return {ref.key: rate for ref, rate in self._refs if ref() is not None}

    def are_of(self, tensors: list[Tensor]) -> bool:
        """Return True if these are the tensors of the optimizer."""
        return {id(x) for x in tensors} == self.now().keys() and len(self._refs) > 0


class Begun(NamedTuple):
    """A step of an optimizer that native code has begun."""

    calls: int
    """Nested calls of ``step`` that are under way."""
    rate: float
    """Learning rate, NaN for none."""
    norm: float
    """Norm of the gradients, NaN if it was not read."""
    turn: int
    """Which of the plans before a step was read."""
    outside: tuple[float, float, float]
    """What has changed the weights since the last step, as ``native.changed_weights`` returns it."""


class Stream:
    """One optimizer and its state. A stream number stays with an optimizer object."""

    def __init__(self, index: int, opt: Optimizer) -> None:
        self.index = index
        self.opt = weakref.ref(opt)
        self.type = name_of(opt)
        self.steps = 0
        self.stale: float | None = None
        """Smallest share of nonzero gradients found before any backward pass since it last stepped; None if not
        checked. If two losses fill one gradient, or one is differentiated and cleared again, only the smallest counts.
        """
        self.left: tuple[int, int] | None = None
        """Address of the first stale gradient, and its version; None if there was none."""
        self.checks = True
        """True to check for stale gradients before the backward passes since it last stepped."""
        self.lr: float | None = None
        """Largest learning rate of the optimizer's groups at the last step, None if no group has one."""
        self.rates = Rates()
        """Learning rate of each tensor when facts were last read. Stored here because a program may drop its optimizer
        before the last step is closed."""
        self.norm: Norm | None = None
        """Reader of the optimizer's gradients in light steps, None before the first; replaced after each stretch of
        full steps."""
        self.usual = Usual()
        """Usual norm of a few of its gradients in light steps."""
        self.glimpse: tuple[float, int] | None = None
        """(norm of the gradients of the current light step, number of non-finite elements), None if not read."""
        self.weighed = False
        """True if all gradients of the current light step were read."""
        self.kept: KeptElements | None = None
        """Elements of its weights after the last step, None before the first."""
        self.missing: tuple[int, int] | None = None
        """(newest step that native code has taken with all gradients, number of tensors without one in it)."""
        self.turned: tuple[int, int] | None = None
        """Steps between which that number last changed."""
        self.outside: Changed | None = None
        """The weights that something else has changed before the current step, None if nothing has."""
        self.awaited_norm: Awaited | None = None
        """The pending norm of gradients on another device, None if there is none."""
        self.overflows = 0
        """Steps in a row, up to the newest of which that is known, that a fused optimizer left out because the gradient
        scaler found gradients that are not finite."""
        self.overflowed = 0
        """That number if it is known of the current step, else 0."""
        self.awaited_overflow: Awaited | None = None
        """The pending overflow of the current step on another device, None if there is none."""
        self.thread = 0
        """The thread that was followed and stepped the optimizer last."""
        self.apart = False
        """True if that thread is no longer followed: the optimizer's gradients are not read before its next step."""
        self.held: list[Watched] | None = None
        """The watched parameters that the optimizer's current step changes, None between steps."""
        self.new = True
        """True until the optimizer object has finished a step."""
        self.fact: dict[str, Any] | None = None
        """The OPTIMIZER fact of the current step, None if facts are not read."""

    def holds(self, resting: Mapping[int, Mapping[int, int]]) -> dict[int, float]:
        """Return the rates of its tensors, by identity; of those ``resting`` only if it stepped since, when it had
        as many steps as stand there by its number.
        """
        rates = self.rates.now()
        return {key: rate for key, rate in rates.items() if self.steps > resting.get(key, {}).get(self.index, -1)}

    def succeeded(self, streams: Iterable[Stream]) -> bool:
        """Return True if the optimizer is gone, and one that was made later takes the steps."""
        if self.opt() is not None:
            return False
        return any(one.index > self.index and one.steps and one.opt() is not None for one in streams)

    def resume(self, begun: Begun) -> Changed | None:
        """Take over the readings of a step that native code has begun. Return what changed the weights before it."""
        self.lr = None if math.isnan(begun.rate) else begun.rate
        self.glimpse = None if math.isnan(begun.norm) else (begun.norm, 0)
        self.weighed = self.glimpse is not None
        self.outside = self.kept.told(None, *begun.outside) if self.kept is not None else None
        return self.outside

    def tensors(self) -> list[Tensor]:
        """Return all tensors of its groups, empty once the optimizer is gone."""
        opt = self.opt()
        return tensors(opt) if opt is not None else []

    def stepped_with(self) -> None:
        """Reset ``stale`` if gradients were cleared or replaced after the backward pass, by a loop that
        sets ``.grad``.
        """
        if self.stale and self.left is not None:
            now = place(self.tensors())
            if now is None or now[0] != self.left[0] or now[1] <= self.left[1]:  # a sum is made in place
                self.stale = 0.0


def place(tensors: list[Tensor]) -> tuple[int, int] | None:
    """Return the address and version of the first gradient, None if there is none. A sum of sparse gradients is a new
    tensor.
    """
    held = (tensor_memory.readable(t.grad) for t in tensors if t.grad is not None)
    grad = next((grad for grad in held if grad is not None), None)
    return (grad.data_ptr(), grad._version) if grad is not None else None  # noqa: SLF001
