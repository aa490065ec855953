"""The forward hook of one module: its readings of an output, in eager mode and inside a compiled graph."""

from __future__ import annotations

import contextlib
from threading import get_ident
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from neuraldbg.capture.compiled import traced_hook
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import Tally, guarded, hook_of
from neuraldbg.capture.guest.native import native, set_hook
from neuraldbg.capture.guest.own_hooks import LeftOut
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.statistics import layer_types, operation
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.capture.guest.own_hooks import OwnHook
    from neuraldbg.capture.layers.read_state import ReadState

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public way tells a recomputation from a forward pass)
_tracing = torch._C._get_tracing_state  # noqa: SLF001


def inert(hook: Any) -> bool:
    """Return True if a hook is the inert replacement of ours in a copied model."""
    return type(hook) is MethodType and type(hook.__self__) is contextlib.nullcontext


class Slot:
    """The rows of one output tensor of one call of a module."""

    __slots__ = ("_hook", "_slow", "activation", "gradient", "hooked")

    def __init__(self, activation: int | None, gradient: int | None) -> None:
        self.activation = activation
        self.gradient = gradient
        self.hooked = -1  # the forward pass in which the gradient hook was last set
        self._hook: Callable[[Tensor], None] | None = None
        self._slow: Callable[[Tensor], None] | None = None

    def hook(self, owner: ReadState, *, binned: bool = False) -> Callable[[Tensor], None] | None:
        """Return the hook of the gradient, made when first needed; None if it has no row. ``binned`` returns the hook
        in Python, which counts histograms.
        """
        if self._slow is None and self.gradient is not None:
            self._slow = hook_of(owner.observe_grad, self.gradient)
            self._hook = _gradient_hook(owner, self.gradient, self._slow)
        return self._slow if binned else self._hook


def _gradient_hook(owner: ReadState, row: int, slow: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    if native is None:
        return slow
    table, clock = owner.table, owner.tally.clock
    address = table.rows.address + row * operation.ROW
    keep = (table.raw, clock)
    hook: Callable[[Tensor], None] = native.Gradient(address, clock.ctypes.data, table.cap, 0.0, 0.0, keep, slow)
    return hook


Told: TypeAlias = "Probe | Several | Visit"
"""Callables that take the outputs of a module without a hook."""


class Several:
    """Calls all probes of a module that is a part of several models."""

    reads: ClassVar[bool] = True
    arrives: Callable[[nn.Module, Any], None] | None = None

    def __init__(self, *probes: Probe) -> None:
        self.probes = probes

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Read the output once for each probe."""
        for probe in self.probes:
            probe(module, args, output)


class Visit:
    """Calls a reader's functions around the calls of one module, without a hook, beside the module's probe."""

    def __init__(
        self,
        direct: dict[int, Told],
        module: nn.Module,
        arrives: Callable[[nn.Module, Any], None],
        leaves: Callable[[nn.Module, Any, Any], None],
        *,
        aside: bool = False,
    ) -> None:
        self._direct, self._key, self._arrives, self._leaves = direct, id(module), arrives, leaves
        self._aside = aside
        self._inner = direct.get(self._key)
        direct[self._key] = self

    @property
    def reads(self) -> bool:
        """False if the functions are no reader's and there is no probe below: nothing is unread if they cannot run."""
        return self._inner is not None and self._inner.reads if self._aside else True

    def arrives(self, module: nn.Module, args: Any) -> None:
        """Call the reader before the module's call."""
        if self._inner is not None and self._inner.arrives is not None:
            self._inner.arrives(module, args)
        try:
            self._arrives(module, args)
        except RecursionError:
            if not self._aside:
                raise

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Call the reader after the module's call."""
        if self._inner is not None:
            self._inner(module, args, output)
        try:
            self._leaves(module, args, output)
        except RecursionError:
            if not self._aside:
                raise

    def remove(self) -> None:
        """Stop calling the reader."""
        above = self._direct.get(self._key)
        if above is self:
            if self._inner is None:
                del self._direct[self._key]
            else:
                self._direct[self._key] = self._inner
        while isinstance(above, Visit):
            if above._inner is self:  # noqa: SLF001
                above._inner = self._inner  # noqa: SLF001
            above = above._inner  # noqa: SLF001


class Probe(LeftOut):
    """The forward hook of one module."""

    unseen: ClassVar[bool] = True
    reads: ClassVar[bool] = True
    """True if a reading is lost where a call is nested so deeply that there is no room for it."""
    arrives: Callable[[nn.Module, Any], None] | None = None
    """Called before the module's call if outputs are read without hooks, None if not needed."""

    def __init__(self, owner: ReadState, path: str, module: nn.Module) -> None:
        self.owner = owner
        self.path = path
        self.cap = owner.settings.block_cap
        self.bound, self.centre = layer_types.saturation(module)
        self.counts_units = is_a(module, (*layer_types.RECTIFIERS, nn.Linear, *_conv_and_norm()))
        self.always_units = is_a(module, layer_types.RECTIFIERS)
        self.slots: dict[tuple[int, str], Slot] = {}
        self.first = self.slot(0, "")
        self.row = self.first.activation if self.first.activation is not None else -1
        self.grad_row = self.first.gradient if self.first.gradient is not None else -1
        self.plan = traced_hook.Plan(owner.graph, self.row, self.grad_row, self.bound, self.centre)
        self.removable: OwnHook | None = None
        self.calls = self.recalls = 0
        self.seen_pass = -1
        self.quick: Callable[[Any], int] | None = None
        """Native reader of the first call of a pass, None until a first output was read."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Read the output; in a traced graph, return it with a tap on its gradient."""
        if torch.compiler.is_compiling():
            return traced_hook.see(self.plan, output)
        owner = self.owner
        if not owner.active or _tracing() is not None:
            return None
        again = _graph_task() != -1  # inside a backward pass: activation checkpointing recomputes the forward
        if owner.thread not in (None, get_ident()) and not (again and owner.here()):  # in any thread of autograd's
            return None
        first = self.quick is not None and self.seen_pass != owner.passes and not again
        plain = first and owner.nodes is None and not owner.binned
        try:
            done = plain and self.read_quickly(module, output)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            done = False
            owner.tally.caught("reading layers")
        if not done:
            self.read(module, output, again=again)
        if owner.trail is not None:
            owner.trail(self.path, module, args, output)
        return None

    def read_quickly(self, module: nn.Module, output: Any) -> bool:
        """Read the first output of a pass by native code. Return False if the output is no ordinary tensor."""
        done = self.quick(output) if self.quick is not None else 0
        if not done:
            return False
        owner = self.owner
        self.seen_pass, self.calls, self.recalls = owner.passes, 1, 0
        if done > 1:
            self.first.hooked = owner.passes
        if self.counts_units and owner.reads_units:
            self.read_first_units(module, output)
        return True

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.owner.tally

    @guarded
    def read(self, module: nn.Module, output: Any, *, again: bool = False) -> None:
        """Read the output in eager mode; ``again`` if a backward pass recomputes the forward."""
        owner = self.owner
        # Call indices begin again in each pass.
        if self.seen_pass != owner.passes:
            self.seen_pass, self.calls, self.recalls = owner.passes, 0, 0
        if again:
            self.recomputed(output)
            return
        call = min(self.calls, owner.settings.max_calls - 1)
        self.calls += 1
        owner.called.setdefault(self.path)
        # One tensor is the usual case; only nested outputs are walked.
        for leaf, x in (("", output),) if type(output) is Tensor else leaves(output):
            held = operation.shown(x)
            if held is None and not self._missed(x):
                continue
            slot = self.slot(call, leaf)
            if slot.activation is None:
                continue
            if held is not None:
                owner.table.observe(held, slot.activation, self.bound, self.centre)
                if self.counts_units and owner.reads_units:
                    self.read_units(module, held, slot.activation)
            self.follow(x, slot)
        # From the next pass on native code may read the first output.
        if self.quick is None and native is not None and self.row >= 0 and output is not None:
            negated = type(output) is Tensor and output.is_neg()  # native code ignores the lazy negation bit
            self.quick = None if negated else self.quick_reader()

    def _missed(self, x: Tensor) -> bool:
        """Count an output that cannot be read, other than of counts or masks. Return True if its gradient may be
        readable all the same: that of an AsyncCollectiveTensor is an ordinary tensor.
        """
        if not tensor_memory.measures(x) or not operation.hidden(x):
            return False
        self.owner.table.unread.note("outputs", x, self.path or type(x).__name__)
        if tensor_memory.readable(x) is not None:
            return False
        return type(x) in tensor_memory.ORDINARY or type(x).__module__.partition(".")[0] == "torch"

    def quick_reader(self) -> Callable[[Any], int]:
        """Return the native reader that does the same as ``read`` for the ordinary first output of a pass."""
        table, clock = self.owner.table, self.owner.tally.clock
        address, keep = table.rows.address + self.row * operation.ROW, (table.raw, clock)
        made = native.Output(
            address, clock.ctypes.data, self.cap, self.bound, self.centre, keep, self.first.hook(self.owner)
        )
        read: Callable[[Any], int] = made.read
        return read

    def recomputed(self, output: Any) -> None:
        """Set the gradient hooks that the first forward could not: reentrant checkpointing runs it without grad."""
        call = min(self.recalls, self.owner.settings.max_calls - 1)
        self.recalls += 1
        for leaf, x in leaves(output):
            slot = self.slots.get((call, leaf))
            if slot is not None and slot.hooked != self.owner.passes:
                self.follow(x, slot)

    def follow(self, x: Tensor, slot: Slot) -> None:
        """Hook the gradient at an output, and mark its node while the loss graph is to be read."""
        node = node_of(x)
        if node is None:  # a leaf would keep the hook for ever
            return
        hook = slot.hook(self.owner, binned=self.owner.binned)
        if hook is not None:
            set_hook(x, hook)
            slot.hooked = self.owner.passes
        nodes = self.owner.nodes
        if nodes is not None:
            nodes.put(node, self.path)

    @guarded
    def read_first_units(self, module: nn.Module, x: Tensor) -> None:
        """Read the unit activity of the first output of a pass."""
        self.read_units(module, x, self.row)

    def read_units(self, module: nn.Module, x: Tensor, row: int) -> None:
        """Read the unit activity of an output."""
        axis = layer_types.unit_axis(module, x)
        if axis is None:
            return
        units = self.owner.table.units
        units.add(row, x.shape[axis], self.owner.step)
        units.observe(row, x, axis)

    def refine(self, following: Iterable[str]) -> None:
        """Limit unit activity to layers before a rectifier, and count saturation before a functional
        sigmoid or tanh.
        """
        names = set(following)
        self.quick = None
        if not self.always_units:
            self.counts_units = self.counts_units and bool(names & {"relu", "relu6", "threshold"})
        for name in names & layer_types.PRE_ACTIVATION.keys():
            if not self.bound:
                self.bound, self.centre = layer_types.PRE_ACTIVATION[name], 0.0

    def slot(self, call: int, leaf: str) -> Slot:
        """Return the rows for a call and an output leaf, made when first needed."""
        slot = self.slots.get((call, leaf))
        if slot is None:
            table = self.owner.table
            activation = table.add(Site("activation", self.path, call, leaf))
            gradient = table.add(Site("output_grad", self.path, call, leaf)) if activation is not None else None
            slot = self.slots[(call, leaf)] = Slot(activation, gradient)
        return slot


def _conv_and_norm() -> tuple[type[nn.Module], ...]:
    return (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001
