"""The reader of gradient accumulation: divisors of the losses of a step, and gradients cleared between backward passes.

A loss that is divided by the number of micro-batches is delivered as if it were not (``Losses.divided_by``): the sum of
the divided losses is the mean of the losses that a person prints.

A backward pass is *wiped* if its gradients are gone before the next one begins, no optimizer stepped in between and no
other code used them: the weights are unchanged (no SAM), the input has no gradient of its own (no adversarial example),
and the gradients are not set manually afterwards (no gradient surgery).
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.autograd.graph_walk import op_name
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import is_parameter
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.tensor_kinds import node_of, readable
from neuraldbg.capture.parameters.stale_gradients import values
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch
    from neuraldbg.capture.statistics.watched_parameter import Watched

_PROBES = 2
"""Parameters of a model, its smallest, by which gradients are followed."""
_MODELS = 4
_FIRST = 8
"""Steps in which gradients are followed in any case."""
_HEAD = 256
"""Elements of a parameter that are copied to detect a change of the weights."""
_CHAIN = 12
"""Nodes at the root of a loss's graph in which a constant divisor is searched."""
_NEAR = 24
"""Nodes behind an input in which a leaf of the user's is searched."""
_EXACT = 1e-6
"""Relative error of a divisor that was written as a factor."""
_PASSING = ("neg", "view", "squeeze", "tocopy", "clone")
"""Operations that keep the value of a loss, but for its sign."""
State = tuple[int, int] | None
"""(address of a gradient, its version), None for no gradient."""


class Accumulation(Reader):
    """Reads the ACCUMULATION fact, and the scalar ``wiped``."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._probes: list[Watched] = []
        self._size = -1
        self._many = False
        """True once a step had more than one backward pass: only then are gradients followed after the first steps."""
        self._before: list[State] = []
        self._filled: list[tuple[Watched, State, Tensor | None]] = []
        """(probe that the last backward filled, state of its gradient, copy of the weight's head)."""
        self._backwards = self._forwards = self._wiped = 0
        self._by_hand = self._aside = False
        self._divisors: list[tuple[str, float]] = []
        self._outermost: set[float] | None = None
        """Products of the constants, from the outermost, that divide every loss of this step; None before the first."""
        self._logged: dict[int, set[str]] = {}

    def patches(self) -> Iterable[Patch]:
        """Return the wrapper of ``GradScaler.step``: a skipped step has used its gradients to find the overflow."""
        return [(torch.amp.GradScaler, "step", self._scaler_steps)]

    def _scaler_steps(self, *_: Any, **__: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._restart)

    # -- moments ------------------------------------------------------------------------------------------------

    def resumes(self) -> None:
        """Drop the state of passes before the gap."""
        self._restart()

    def call_begins(self, call: Call) -> None:
        """Count passes, and detect an input that is differentiated itself."""
        if not call.grad or call.evaluating:
            return
        self._forwards += call.first
        given = call.args[0] if len(call.args) == 1 and is_a(call.args[0], Tensor) and readable(call.args[0]) else None
        if given is not None and not given.requires_grad and not call.kwargs:  # the usual inputs
            return
        found = [given] if given is not None else [x for _, x in leaves((call.args, call.kwargs))]
        if any(x.requires_grad and self._foreign(x) for x in found):
            self._aside = True

    def backward_begins(self, backward: Backward) -> None:
        """Check if the gradients of the previous backward pass are gone."""
        if not backward.accumulates:
            self._aside = False
            return
        self._many |= self._backwards > 0
        if self._filled:
            self._look_back()
        if self.scene.reading and len(self._divisors) < 8:
            self._divisors.append(_root(backward.root, self._scaled()))
            found = _outermost(backward.root, self._scaled())
            self._outermost = found if self._outermost is None else self._outermost & found
        if self._many or self.scene.step < _FIRST:
            self._before = [_state(w.ref) for w in self._candidates()]

    def backward_ends(self, backward: Backward) -> None:
        """Remember the gradients of this pass."""
        if not backward.accumulates:
            return
        self._backwards += 1
        self._filled.clear()
        if self._aside:  # made for the input, not for the weights
            self._aside = False
            self._backwards -= 1
            return
        if not self._many and self.scene.step >= _FIRST:
            return  # a loop with one backward pass per step so far
        for w, before in zip(self._probes, self._before, strict=False):
            now, weight = _state(w.ref), tensor_memory.readable(w.ref)
            if now is not None and now != before and weight is not None:
                self._filled.append((w, now, operation.spaced(weight.detach(), 1, _HEAD).clone()))

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Log the counts of the step; gradients that were replaced manually count as used."""
        many = self._backwards > 1
        if many and self._wiped and self._filled and not {"clip", "clip_value", "unscale"} & set(self.scene.order):
            # a fused or foreach step has not written to them yet
            self._by_hand |= any(_state(w.ref) != left for w, left, _ in self._filled) and not self._scaled()
        wiped = 0 if self._by_hand else self._wiped
        if many and not self._by_hand:
            self.scene.scalars["wiped"] = wiped
        if self._outermost is not None:
            self._divides(stream.index, self._outermost)
        seen = self._logged.setdefault(stream.index, set())
        if many and self._divisors and len(seen) < 4:
            divisors = {divisor for _, divisor in self._divisors}
            value = {
                "stream": stream.index,
                "backwards": self._backwards,
                "forwards": self._forwards,
                "wiped": wiped,
                "divisor": min(divisors),
                "kinds": sorted({kind for kind, _ in self._divisors}),
                "by_hand": self._by_hand,
            }
            seen.add(str(value))
            self.scene.log(FactKey.ACCUMULATION, value)
        self._restart()

    def _restart(self) -> None:
        self._backwards = self._forwards = self._wiped = 0
        self._by_hand = self._aside = False
        self._filled.clear()
        self._divisors.clear()
        self._outermost = None

    # -- looking ------------------------------------------------------------------------------------------------

    def _divides(self, stream: int, found: set[float]) -> None:
        """Note by how many micro-batches the losses of a stream are divided. The last step of an epoch may have fewer
        than it divides by, so that a divisor that still fits is kept.
        """
        known = self.scene.losses.divided_by
        whole = {divisor: round(divisor) for divisor in found if isfinite(divisor)}  # after a NaN a factor is NaN
        fitting = {near for divisor, near in whole.items() if abs(divisor - near) < _EXACT * divisor}
        if known.get(stream) not in fitting:
            known.pop(stream, None)
            if self._backwards > 1 and self._backwards in fitting and not self._by_hand:
                known[stream] = self._backwards

    def _candidates(self) -> list[Watched]:
        """Return the smallest parameters of each model that require gradients; chosen again when there are new ones."""
        by_id = self.scene.params.by_id
        if len(by_id) != self._size or self.scene.reading:
            self._size = len(by_id)
            models: dict[str, list[Watched]] = {}
            for w in by_id.values():
                if w.ref.requires_grad and not w.rows:
                    models.setdefault(w.model, []).append(w)
            self._probes = [
                w for found in list(models.values())[:_MODELS]
                for w in sorted(found, key=lambda w: w.ref.numel())[:_PROBES]
            ]  # fmt: skip
        return self._probes

    def _look_back(self) -> None:
        gone = 0
        for w, left, head in self._filled:
            grad = None if w.ref.grad is None else values(w.ref.grad)
            if grad is None and w.ref.grad is not None:
                return  # unreadable: not known
            if grad is not None and placement.lies(grad) and _state(w.ref) == left:
                return  # unchanged, which is known without a synchronisation
            if grad is not None and bool(torch.count_nonzero(grad.detach())):
                return  # still there: it accumulates
            gone += 1
            weight = tensor_memory.readable(w.ref)
            if head is not None and weight is not None:
                moved = not torch.equal(operation.spaced(weight.detach(), 1, _HEAD), head)
                self._by_hand = self._by_hand or moved  # the weight has changed meanwhile
        self._wiped += gone > 0
        self._filled.clear()

    def _scaled(self) -> bool:
        return self.scene.losses.scale_in_step > 0

    def _foreign(self, x: Tensor) -> bool:
        """Return True if a tensor that requires gradients comes from a leaf that is no parameter: x, x plus a delta."""
        made = node_of(x)
        if made is None:
            return id(x) not in self.scene.params.by_id
        if not self.scene.models.discover:
            return True  # another model, whose optimizer is not seen either
        queue: list[Node] = [made]
        for count, node in enumerate(queue):
            if count == _NEAR:
                return False
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) not in self.scene.params.by_id:
                return not is_parameter(variable)
            queue.extend(parent for parent, _ in node.next_functions if parent is not None)
        return False


def _state(tensor: Tensor) -> State:
    grad = tensor.grad
    if grad is None:
        return None
    held = tensor_memory.readable(grad)
    return (0 if held is None else held.data_ptr(), grad._version)  # noqa: SLF001


def _root(loss: Tensor, scaled: bool) -> tuple[str, float]:
    """Return the operation that a loss ends in, and the constant that divides it above or beside that.

    A term that is added (a penalty) may be divided or not: the largest divisor of all branches counts.
    """
    found = 1.0
    kind = ""
    queue: list[tuple[Node, float, bool]] = [(node_of(loss), 1.0, scaled)]
    for count, (node, by, scale) in enumerate(queue):
        if count == _CHAIN or node is None:
            break
        name = op_name(node)
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        constant = None
        if name in ("div", "mul") and len(parents) == 1:
            constant = _constant(node, name)
        if constant is not None:
            outermost = scale and name == "mul"  # by the loss scale, not by the user
            queue.append((parents[0], by if outermost else by * constant, scale and not outermost))
        elif name in ("add", "sub", "neg", "view", "squeeze", "tocopy", "clone"):
            queue.extend((parent, by, scale) for parent in parents)
        else:
            found, kind = max(found, by), kind or name
    return kind, found


def _outermost(loss: Tensor, scaled: bool) -> set[float]:
    """Return the products of the constants that divide a loss as a whole, from the outermost one inwards.

    A sum that is divided is a mean written by hand: its last constant is no number of micro-batches.
    """
    products: list[float] = []
    node: Node | None = node_of(loss)
    for _ in range(_CHAIN):
        if node is None:
            break
        name = op_name(node)
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        constant = _constant(node, name) if name in ("div", "mul") and len(parents) == 1 else None
        if constant is not None and not (scaled and name == "mul" and not products):
            products.append(constant * (products[-1] if products else 1.0))
        elif constant is None and name not in _PASSING:
            return set(products[:-1] if name == "sum" else products)
        else:
            scaled = scaled and constant is None
        node = parents[0] if len(parents) == 1 else None
    return set(products)


def _constant(node: Node, name: str) -> float | None:
    """Return the divisor that a constant division or multiplication amounts to, None if not known."""
    other = saved(node, "other")
    if other is None or other.requires_grad:
        other = saved(node, "self") if name == "mul" else None
    if other is None or other.requires_grad or other.numel() != 1:
        return None
    value = abs(float(other.detach()))
    if value == 0.0:
        return None
    return value if name == "div" else 1 / value


READER = Accumulation
