"""One optimizer and what is known of it, over the steps of a run."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import group_tensors, groups, tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import item, name_of
from neuraldbg.capture.guest.weak_references import TensorRef
from neuraldbg.capture.parameters.usual_norm import Usual

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim.optimizer import Optimizer

    from neuraldbg.capture.parameters.gradient_norm import Norm
    from neuraldbg.capture.statistics.device.pending import Awaited
    from neuraldbg.capture.statistics.watched_parameter import Watched


class Rates:
    """The learning rate of each tensor of an optimizer, NaN where its group has none."""

    def __init__(self, opt: Optimizer | None = None) -> None:
        self._refs: list[tuple[TensorRef, float]] = []
        for group in groups(opt):
            lr = number(item(group, "lr"))
            self._refs += [(TensorRef(x), math.nan if lr is None else lr) for x in group_tensors(group)]

    def now(self) -> dict[int, float]:
        """Return those of the tensors that are alive, by identity."""
        return {ref.key: rate for ref, rate in self._refs if ref() is not None}

    def are_of(self, tensors: list[Tensor]) -> bool:
        """Return True if these are the tensors."""
        return {id(x) for x in tensors} == self.now().keys() and len(self._refs) > 0


class Stream:
    """One optimizer and what is known of it. A stream number stays with an optimizer object."""

    def __init__(self, index: int, opt: Optimizer) -> None:
        self.index = index
        self.opt = weakref.ref(opt)
        self.type = name_of(opt)
        self.steps = 0
        self.stale: float | None = None
        """Smallest share of nonzero gradients found before any backward since it last stepped; None if not looked at.
        Where two losses fill one gradient, or one is differentiated and cleared again, only the smallest tells."""
        self.left: tuple[int, int] | None = None
        """Where the first of those gradients lay, and how often it had been written to."""
        self.checks = True
        """Whether to look before the backwards since it last stepped."""
        self.lr: float | None = None
        """Largest learning rate of its groups at its last step."""
        self.rates = Rates()
        """Learning rate of each tensor when facts were last read. Kept here because a program may drop its optimizer
        before the last step is closed."""
        self.norm: Norm | None = None
        """What reads its gradients in light steps, made anew after each stretch of full ones."""
        self.usual = Usual()
        """What the norm of a few of its gradients is in light steps."""
        self.glimpse: tuple[float, int] | None = None
        """Norm of the gradients of the current light step, and how many elements are not finite."""
        self.weighed = False
        """Whether all gradients of the current light step were read."""
        self.awaited_norm: Awaited | None = None
        """The same where gradients lie on another device."""
        self.thread = 0
        """The thread that stepped it last while that was followed."""
        self.apart = False
        """Whether that thread is not followed any more: nobody looks at the gradients before it steps again."""
        self.held: list[Watched] | None = None
        """The watched parameters that its step under way changes."""
        self.new = True
        """Whether its optimizer object has not finished a step yet."""
        self.fact: dict[str, Any] | None = None
        """The OPTIMIZER fact of the current step, where facts are read."""

    def tensors(self) -> list[Tensor]:
        """All tensors of its groups, empty once the optimizer is gone."""
        opt = self.opt()
        return tensors(opt) if opt is not None else []

    def stepped_with(self) -> None:
        """Take leftovers back that were cleared or replaced after the backward, as by a loop that sets ``.grad``."""
        if self.stale and self.left is not None:
            now = place(self.tensors())
            if now is None or now[0] != self.left[0] or now[1] <= self.left[1]:  # a sum is made in place
                self.stale = 0.0


def place(tensors: list[Tensor]) -> tuple[int, int] | None:
    """Return where the first gradient lies and how often it was written to; a sparse one is made anew by each sum."""
    held = (tensor_memory.readable(t.grad) for t in tensors if t.grad is not None)
    grad = next((grad for grad in held if grad is not None), None)
    return (grad.data_ptr(), grad._version) if grad is not None else None  # noqa: SLF001
