"""The backward passes: the loss, its graph before it is freed, and gradients left over from the previous step."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.autograd.gaussian_kl import gaussian_kl
from neuraldbg.capture.autograd.graph_walk import follow, op_name, walk
from neuraldbg.capture.autograd.loss_terms import loss_terms
from neuraldbg.capture.autograd.risky_operations import RISKY
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.contracts.nodes import CHECKS
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import is_a, sequence, uses_up
from neuraldbg.capture.guest.tensor_kinds import node_of, readable
from neuraldbg.capture.loop.loss_values import Kept, mean_loss, value_of
from neuraldbg.capture.loop.moments import Backward
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import Edge, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.autograd.graph_walk import Walk
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.models import Models
    from neuraldbg.capture.loop.native_steps import NativeSteps

_SCALE = 128.0
"""Factor from which a power of two is a scale for half precision, and no weight of a loss."""
_WHAT = {"self": "input", "result": "result", "other": "divisor", "x1": "input"}
_LOSSES = 4096
_READ_IN_STEP = 8
"""Backward passes of one step whose graphs are read: a loop without a known optimizer never ends its step."""
Operand = tuple[str, tuple[int, ...], int]
"""(operation, path from the loss's node, row)."""


class Losses:
    """The losses of the current step, and the facts read from their graphs."""

    def __init__(
        self,
        hooks: HookManager,
        models: Models,
        cleared: Callable[[bool], bool],
        ended: Callable[[], None],
        tell: Callable[..., None],
    ) -> None:
        self._tell, self._ended = tell, ended
        """``ended`` is called after each backward pass of a full step that has reached a watched model."""
        self.light: NativeSteps
        """Native code that takes the losses of usual light steps."""
        self.hooks = hooks
        self.models = models
        self.tally = hooks.tally
        self.values: list[Kept] = []
        """(value, loss scale) of each backward pass of this step that reached a watched model."""
        self.asides: list[Kept] = []
        """(value, loss scale) of each ``autograd.grad``: a gradient penalty, or all if a loop sets ``.grad`` itself."""
        self.divided_by: dict[int, int] = {}
        """Number of micro-batches by which the program divides each loss, by stream; those that do not are left out. A
        step's loss is delivered as the mean of the losses before that division."""
        self.edges: dict[tuple[str, str], Edge] = {}
        self.terms: dict[str, Any] | None = None
        """The LOSS fact of this step without its stream, None if no graph was read."""
        self.scale_of: tuple[weakref.ref[Tensor], Kept] | None = None
        """The output of ``GradScaler.scale``, and the (value, scale) by which it is known; None if there was none. The
        value is None if it is read from the output itself."""
        self._cleared = cleared
        self.total = 0
        """Backward passes of the run so far."""
        self._number = 0
        """Backward passes of the step so far."""
        self._clear_at = -1
        """Index of the backward pass before which gradients had been cleared within a full step; -1 for none."""
        self.usual = math.inf
        """Size of a loss of a light step above which the loss is unusual."""
        self._by_hand = False
        """True once the program has scaled its loss without a GradScaler."""
        self.odd = False
        """True if a loss of the current light step is unusual."""
        self.scale_in_step = 0.0
        """Scale by which ``GradScaler.scale`` multiplied a loss in this step, 0 if it did not."""
        self._risky: dict[str, list[Operand]] = {}
        self._rows: dict[tuple[str, str, int], int | None] = {}
        self._inside = False

    @property
    def differentiating(self) -> bool:
        """True while the followed thread runs a backward pass."""
        return self._inside

    def release(self) -> None:
        """Drop the current backward pass: its thread has ended."""
        self._inside = False

    def surrounds(self, roots: str) -> Callable[..., Around]:
        """Return the wrapper of ``torch.autograd.backward`` or ``grad``, whose first argument is named ``roots``."""
        accumulates = roots == "tensors"
        switch = self.models.switch
        take, passed, owner = self.light.take, self.light.passed, self.models.owner

        def around(*args: Any, **kwargs: Any) -> Around:
            # Native code takes most losses of light steps.
            if accumulates and args and not self._inside and take(args[0]):
                try:
                    self._inside = True
                    yield
                finally:
                    self._inside = False
                    passed()
                return
            if torch.compiler.is_compiling() or not switch.on:
                return
            if not owner.claims() and not self._asks():  # a backward pass of a thread that is not followed
                with owner.differentiates_beside(counts=self.models.discover):
                    yield
                return
            # A backward pass inside a backward pass (checkpointing) is part of the outer one.
            if self._inside:
                owner.claiming = False
                return
            if not switch.in_full_step() and args and is_a(args[0], Tensor):
                yield from self._lightly(args[0], accumulates)
                return
            given = None
            root: Any = args[0] if args else kwargs.get(roots)
            if type(root) is not Tensor and uses_up(root):  # reading an iterator would consume it
                root = list(root)
                given = ((root, *args[1:]), kwargs) if args else (args, {**kwargs, roots: root})
            before = self.before(root, accumulates)
            try:  # a signal handler of the program may raise at any line
                self._inside = True
                yield given
            finally:
                self._inside = False
                self.after(before, accumulates)
                owner.claiming = False

        return around

    @guarded
    def _asks(self) -> bool:
        """Return True if the backward pass of this thread, which was not followed so far, is followed."""
        owner = self.models.owner
        if owner.lends():
            return True
        stranger = owner.strangers.get(get_ident())
        helps = stranger is not None and stranger.helps
        return owner.asks("backward", ours=helps, new=self.models.discover)

    @guarded
    def before(self, roots: Any, accumulates: bool) -> tuple[Tensor | float | None, float, Backward] | None:
        """Read the loss that is about to be differentiated. Return the parts that ``after`` keeps if the pass reaches a
        watched model, None if the loss cannot be read.
        """
        if operation.transforming():
            return None
        # Only roots whose graph we can read without running code of their class.
        single = is_a(roots, Tensor)
        if accumulates and type(roots) in tensor_memory.ORDINARY and roots.is_leaf:
            self._tell("backward_of_leaf", roots)
        tensors = [t for t in ([roots] if single else sequence(roots)) if is_a(t, Tensor) and readable(t)]
        tensors = [t for t in tensors if node_of(t) is not None and not tensor_memory.wrapped(t)]
        if not tensors:
            return None
        self.models.reached = False
        cleared = self._cleared(accumulates)
        self.total += 1
        if accumulates:
            self._clear_at = (self._number if cleared else self._clear_at) if self._number else -1
            self._number += 1
        if cleared:  # passes so far were not for this step: an adversarial example
            self.values.clear()
        found = self.read_graph(tensors[0]) if accumulates or not self.values else None
        terms = self.terms["terms"] if self.terms is not None and found is not None else None
        value = self._value(tensors[0])
        backward = Backward(tensors[0], value if type(value) is float else None, accumulates, found, terms)
        self._tell("backward_begins", backward)
        backward.walk = None  # nodes must not outlive the graph
        return *self._kept(tensors[0], value), backward

    def _lightly(self, root: Tensor, accumulates: bool) -> Around:
        """Wrap a backward pass of a light step, of which only the loss is read."""
        loss = self._glimpse(root, accumulates)
        try:
            self._inside = True
            yield
        finally:
            self._inside = False
            self.models.owner.claiming = False
            if loss is not None and (self.models.reached or not self.models.must_be_reached):
                kept = self.values if accumulates else self.asides
                if len(kept) < _LOSSES:
                    kept.append(loss)

    @guarded
    def _glimpse(self, root: Tensor, accumulates: bool) -> Kept | None:
        """Return the loss of a light step. Report an unusual one to the readers that search the origin of a NaN."""
        value: Tensor | float | None = native.loss(root) if native is not None else None
        if value is None and (not readable(root) or node_of(root) is None or operation.transforming()):
            return None
        self.models.reached = False
        self._cleared(accumulates)
        self.total += 1
        if accumulates:
            if self._number == self._clear_at:
                self.values.clear()
            self._number += 1
        value = self._value(root) if value is None else value
        scaled = self._by_hand or self.scale_in_step or self.scale_of is not None
        kept: Kept = self._kept(root, value) if scaled else (value, 1.0)
        loss = kept[0]
        if type(loss) is float and not -self.usual < loss / kept[1] < self.usual:  # false for NaN
            self.odd = True
            self.models.tell_of_glimpse()
            self._tell("backward_begins", Backward(root, loss, accumulates, None, None))
        return kept

    @guarded
    def after(self, loss: tuple[Tensor | float | None, float, Backward] | None, accumulates: bool) -> None:
        """Keep the loss if the backward pass reached a watched model."""
        if loss is None or not self.models.switch.here():
            return
        if self.models.entered and not self.models.reached:
            owner = self.models.owner  # a new owner may differentiate calls that were not followed
            self.models.must_be_reached |= owner.open or not owner.strangers
            owner.misses()
            self.terms = None
            return
        if not self.models.owner.trained:
            self.models.owner.trains()
        kept = self.values if accumulates else self.asides
        if len(kept) < _LOSSES:
            kept.append(loss[:2])
        self._ended()
        self._tell("backward_ends", loss[2])

    @property
    def backwards(self) -> int:
        """Number of backward passes of this step that reached a watched model."""
        return len(self.kept())

    def loss(self, *, closure: bool, stream: int) -> float | None:
        """Return the step's loss as it will be delivered, None if there was none.

        Micro-batches are averaged; of a closure's evaluations the first counts, made with the step's own weights.
        """
        found = mean_loss(self.kept(), closure=closure)
        return None if found is None else found[0] * self.divided_by.get(stream, 1)

    def kept(self) -> list[Kept]:
        """Return the losses of the step so far."""
        return self.values or self.asides

    def take(self) -> list[Kept]:
        """Return the losses of a light step, and begin the next step."""
        kept, self.values, self.asides = self.kept(), [], []
        self.scale_in_step = 0.0
        self._number = 0
        self.odd = False
        return kept

    @property
    def open(self) -> int:
        """Number of backward passes since the last step."""
        return self._number

    @property
    def plain(self) -> bool:
        """True if a loss needs no unscaling and every backward pass belongs to a step: native code may take it."""
        return not (self._by_hand or self.scale_in_step or self.scale_of is not None) and self._clear_at < 0

    def resume(self, number: int, total: float) -> None:
        """Continue a light step of which native code has taken ``number`` losses with the sum ``total``."""
        self.values = [(total / number, 1.0)] * number if number else []
        self._number = number
        self.total += number

    def begin_step(self) -> None:
        """Drop the losses of the previous step."""
        self.values.clear()
        self.asides.clear()
        self._number = 0
        self.scale_in_step = 0.0
        self.terms = None

    def _value(self, root: Tensor) -> Tensor | float | None:
        if self.scale_of is not None and is_a(self.scale_of[1][0], Tensor) and self.scale_of[0]() is root:
            return self.scale_of[1][0]
        value = value_of(root)
        if value is None:
            self.hooks.table.unread.note("losses", root, "")
        return value

    def note_scaled(self, scaled: Tensor, scale: float, loss: Any) -> None:
        """Remember the output of ``GradScaler.scale`` and its scale, and the value of the loss itself where the product
        cannot tell it: it overflows while the scaler looks for its scale.
        """
        value = None
        if is_a(loss, Tensor) and (placement.lies(scaled) or not math.isfinite(number(scaled) or 0.0)):
            value = value_of(loss)
        self.scale_of = weakref.ref(scaled), ((None, scale) if value is None else (value, 1.0))
        self.scale_in_step = scale

    def _kept(self, root: Tensor, value: Tensor | float | None) -> Kept:
        """Return the loss of a backward pass whose root has a value."""
        if self.scale_of is not None and self.scale_of[0]() is root:
            known, scale = self.scale_of[1]
            return (value if known is None else known), scale
        return value, self._scale(root)

    def _scale(self, root: Tensor) -> float:
        if self.scale_in_step:  # a sum of scaled losses
            return self.scale_in_step
        factor = _by_hand(root)
        self._by_hand |= factor != 1.0
        return factor

    def read_graph(self, root: Tensor) -> Walk | None:
        nodes = self.hooks.nodes if self.backwards < _READ_IN_STEP else None
        node = node_of(root)
        signature = node.name() if node is not None else ""
        found: Walk | None = None
        if nodes is not None:
            found = walk(node, nodes, frozenset(RISKY), CHECKS)
            for edge in found.as_edges():
                self.edges.setdefault((edge.source, edge.target), edge)
            terms = loss_terms(found.loss_nodes, nodes)
            names = list(dict.fromkeys(op_name(node) for node in found.loss_nodes))
            self.terms = {"ops": names[:24], "terms": terms}
            divergence, weight = gaussian_kl(found.loss_nodes)
            if divergence:
                self.terms |= {"gaussian_kl": divergence, "kl_weight": weight}
            if policy := _policy(found.loss_nodes):
                self.terms |= {"policy": policy}
            self._risky[signature] = self._watch_operands(node, found.risky)
        for name, path, row in self._risky.get(signature, ()):
            operand = _operand(node, name, path)
            if operation.observable(operand):
                self.hooks.table.observe(operand, row)
        return found

    def _watch_operands(self, root: Any, risky: list[tuple[str, str, tuple[int, ...]]]) -> list[Operand]:
        """Return the risky operations with a row each, named after the layer that it feeds."""
        numbers: Counter[tuple[str, str]] = Counter()
        watched: list[Operand] = []
        for name, layer, path in risky:
            if _operand(root, name, path) is None:
                continue
            key = (name, layer, numbers[name, layer])
            numbers[name, layer] += 1
            if key not in self._rows:
                module = "" if layer == "loss" else layer
                site = Site("op", module, key[2], f"{name}.{_WHAT[RISKY[name].operand]}")
                self._rows[key] = self.hooks.table.add(site)
            row = self._rows[key]
            if row is not None:
                watched.append((name, path, row))
        return watched


def _operand(root: Any, name: str, path: tuple[int, ...]) -> Tensor | None:
    """Return the saved tensor that shows whether a risky operation is about to fail, None if there is none."""
    node = follow(root, path)
    if node is None or op_name(node) != name:
        return None
    if name == "pow" and not ((power := number(node._saved_exponent)) is not None and power < 1):  # noqa: SLF001
        return None  # a square has no pole
    return saved(node, RISKY[name].operand)


def _policy(nodes: list[Any]) -> int:
    from neuraldbg.capture.autograd.policy_gradient import policy_gradient  # noqa: PLC0415 (imported when it is needed)

    return policy_gradient(nodes)


def _by_hand(root: Tensor) -> float:
    """Return the power of two by which a program multiplies its loss itself, for half precision; 1 if it does not."""
    node = node_of(root)
    if node is None or type(node).__name__ != "MulBackward0":
        return 1.0
    other = saved(node, "other")
    if other is None or other.device.type != "cpu" or other.numel() != 1 or other.requires_grad:
        return 1.0
    factor = float(other)
    return factor if factor >= _SCALE and math.frexp(factor)[0] == 0.5 else 1.0
