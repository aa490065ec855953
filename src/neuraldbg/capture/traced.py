"""What a graph of torch.compile holds of us: samples of outputs and of gradients, and the operators that read them.

A sample is taken by operations that the compiler knows, so that it fuses them with what made the tensor, and writes
down no more than the sample. Samples of outputs are kept until the outermost watched module returns, and read by one
operator there: an operator in the middle would keep apart what the compiler fuses, and have it save for the backward
pass what it would compute again. Gradients are read by one operator, too (``gathered``), whose result is the gradient
of a ``leaf`` of ours: nothing of the program's waits for it, and no compiler can leave it out. Where a part of a model
is compiled by itself, each is read at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor

from neuraldbg.capture import device_op, elsewhere, op
from neuraldbg.capture.gathered import gather, token
from neuraldbg.capture.kernel import native
from neuraldbg.capture.leaves import leaves
from neuraldbg.capture.quiet import quieten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt
    from torch import nn


Sample: TypeAlias = tuple[Tensor, int, int, float, float]
"""Of an output: what was taken of it, row, elements, bound and centre of saturation."""


def _observe(
    xs: list[Tensor], table: Tensor, handle: int, rows: list[int], totals: list[int], bounds: list[float]
) -> None:
    """Add the statistics of samples to rows of ``table``, shape (rows, op.WIDTH).

    ``totals`` are the elements of what they are samples of, ``bounds`` bound and centre of saturation of each in turn.
    """
    if handle not in _open:
        return
    for x, row, total, bound, centre in zip(xs, rows, totals, bounds[::2], bounds[1::2], strict=True):
        _read(x, table, row, total, bound, centre)


def _observe_gradients(grads: list[Tensor], handle: int, rows: list[int], totals: list[int]) -> Tensor:
    """Read samples of gradients. Returns a zero, the gradient of the leaf.

    The table is named by its handle: a tensor saved for backward may not be written to before it is used.
    """
    table = _open.get(handle)
    if table is not None:
        for grad, row, total in zip(grads, rows, totals, strict=True):
            if row >= 0:
                _read(grad, table, row, total)
    return torch.zeros((), dtype=torch.float32, device="cpu")


def _observe_at(x: Tensor, table: Tensor, handle: int, places: Tensor, total: int) -> None:
    """The same of one sample, by the ``places`` of a ``Plan``."""
    row, _, bound, centre = places.tolist()
    if handle in _open and row >= 0:
        _read(x, table, int(row), total, bound, centre)


def _observe_gradient_at(grad: Tensor, handle: int, places: Tensor, total: int) -> Tensor:
    return _observe_gradients([grad], handle, [int(places[1])], [total])


def _read(x: Tensor, table: Tensor, row: int, total: int, bound: float = 0.0, centre: float = 0.0) -> None:
    if x.numel() and not elsewhere.lies(x):
        rows = op.rows_of(table)
        op.observe_cpu(x, rows, row, 0, bound, centre)
        rows.values[row, op.TOTAL] += total - x.numel()


def _sample(x: Tensor, cap: int) -> Tensor:
    """Return at most about ``cap`` elements of a tensor, a new one: evenly spaced along the axes, all channels or
    features as long as they fit. Where an axis may have any size nothing is assumed of it.
    """
    sizes = [_size(n) for n in x.shape]
    steps = _steps(sizes, cap)
    fixed = [isinstance(n, int) for n in x.shape]  # an offset on an axis of any size would be a condition on that
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if step > 1:
            start = min(step // 2, size - 1) if fixed[axis] else 0
            x = torch.ops.aten.slice.Tensor(x, axis, start, None, step)
    # Else a sample would be a view, and what it is a view of would have to be written down.
    return x.float() if x.dtype in _HALVES else x.neg().neg()


def _size(n: Any) -> int:
    """Return a size, and of a size that is not fixed the one it has now."""
    return n if isinstance(n, int) else n.node.hint if n.node.has_hint() else 1


def _steps(sizes: Sequence[int], cap: int) -> list[int]:
    """Return from which element to which to go along each axis. Channels are the second axis of four or more, features
    the last of fewer; the others are thinned out first, each to no less than a few.
    """
    steps = [1] * len(sizes)
    kept = 1 if len(sizes) >= _IMAGES else len(sizes) - 1
    others = [axis for axis in range(len(sizes)) if axis != kept]
    for least, axes in ((_FEW, others), (1, others), (1, [kept])):
        for axis in axes:
            now = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
            left = math.prod(now)
            if left > cap:
                steps[axis] *= max(1, min(-(-left // cap), now[axis] // least))
    return steps


_HALVES = (torch.float16, torch.bfloat16)
_IMAGES = 4
"""Axes from which on the second is one of channels."""
_FEW = 4
"""Positions that are left along an axis, as long as others can be thinned out."""


# Defined without torch.library.custom_op, whose checks at each call take several times as long as all that is done.
_LIBRARY = torch.library.Library("neuraldbg", "DEF")
# Both read any layout: told so, the compiler copies nothing into the layout that eager mode would give it.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LIBRARY.define("sample(Tensor x, int cap) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define(
    "observe(Tensor[] xs, Tensor(a!) table, int handle, int[] rows, SymInt[] totals, float[] bounds) -> ()", tags=_TAGS
)
_LIBRARY.define("observe_gradients(Tensor[] grads, int handle, int[] rows, SymInt[] totals) -> Tensor", tags=_TAGS)
_LIBRARY.define("observe_at(Tensor x, Tensor(a!) table, int handle, Tensor places, SymInt total) -> ()", tags=_TAGS)
_LIBRARY.define("observe_gradient_at(Tensor grad, int handle, Tensor places, SymInt total) -> Tensor", tags=_TAGS)
_LIBRARY.impl("sample", _sample, "CompositeImplicitAutograd")
_LIBRARY.impl("observe", _observe, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradients", _observe_gradients, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_at", _observe_at, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradient_at", _observe_gradient_at, "CompositeExplicitAutograd")
sample = torch.ops.neuraldbg.sample.default
observe = torch.ops.neuraldbg.observe.default
observe_gradients = torch.ops.neuraldbg.observe_gradients.default
observe_at = torch.ops.neuraldbg.observe_at.default
observe_gradient_at = torch.ops.neuraldbg.observe_gradient_at.default


def _served() -> bool:
    """Have native code stand in for the operators on tensors of the CPU. Returns whether it does."""
    if native is None:
        return False
    try:
        library = ctypes.CDLL(str(next(Path(torch.__file__).with_name("lib").glob("*torch_cpu.*"))))
        native.serve({name: ctypes.cast(library[name], ctypes.c_void_p).value for name in native.functions()})
    except (StopIteration, OSError, AttributeError, RuntimeError):  # a torch before 2.10, or another build of it
        return False
    return True


NATIVE = _served()
"""Whether native code does what the operators do on tensors of the CPU."""


def _a_zero(*_: object) -> Tensor:
    return torch.empty((), dtype=torch.float32, device="cpu")


for _name in ("observe", "observe_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", lambda *_: None, lib=_LIBRARY)
for _name in ("observe_gradients", "observe_gradient_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", _a_zero, lib=_LIBRARY)


class _Tap(torch.autograd.Function):
    """Identity whose backward samples the gradient: how a traced graph sees it, where a tensor hook would break it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, handle: int, row: int, cap: int) -> Tensor:
        ctx.handle, ctx.row, ctx.cap = handle, row, cap
        return x.clone()  # returning the input itself would break in-place operations after it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return grad, gather(grad, ctx.handle, ctx.row, ctx.cap), None, None, None


class _TapAt(torch.autograd.Function):
    """The same where the row is data, and the gradient is read at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, leaf: Tensor, places: Tensor, handle: int, cap: int) -> Tensor:
        ctx.handle, ctx.cap = handle, cap
        ctx.save_for_backward(places)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        read = observe_gradient_at(sample(grad, ctx.cap), ctx.handle, places, grad.numel())
        return grad, read, None, None, None


class Graph:
    """What is gathered while a graph is traced. Hooks of the watched models open and close it.

    ``table`` has shape (rows, op.WIDTH); the seconds spent are added to ``clock``, shape (1,). Compiled graphs find
    this by its ``handle``, all in the same way: what they find in several ways they would compare at every call.
    """

    def __init__(self, table: Tensor, clock: npt.NDArray[np.float64], cap: int, *, reads: bool) -> None:
        self.table, self.cap = table, cap
        self.reads = reads
        """Whether layers in a graph are read at all."""
        self.handle = next(_handles)
        self._clock = clock
        self.leaf = torch.zeros((), dtype=torch.float32, device="cpu", requires_grad=True)
        """Its gradient is a zero."""
        self.opened = False
        """Whether a watched model is being called in the graph."""
        self.samples: list[Sample] = []
        _graphs[self.handle] = self
        self.rest(resting=False)

    def rest(self, *, resting: bool) -> None:
        """Let compiled graphs pass by for some steps, or read again. They hold the operators all the same: a flag that
        a graph itself could see would have it compiled once more.
        """
        if not resting:
            _open[self.handle] = self.table
            if NATIVE:
                native.point(self.handle, self.table.data_ptr(), self._clock.ctypes.data)
        elif _open.pop(self.handle, None) is not None and NATIVE:
            native.point(self.handle, 0, 0)

    def close(self) -> None:
        """Take nothing any more."""
        self.rest(resting=True)
        _graphs.pop(self.handle, None)


_graphs: dict[int, Graph] = {}
"""Those that are traced now, and that compiled graphs know, by handle."""
_open: dict[int, Tensor] = {}
"""By handle the tables of those that read now."""
_handles = itertools.count()


class Plan:
    """How the output of a layer is read, as compiled graphs know it. Never changed: they would be compiled anew."""

    def __init__(self, graph: Graph, row: int, grad_row: int, bound: float, centre: float) -> None:
        self.handle = graph.handle
        self.text = f"{row} {grad_row} {bound!r} {centre!r}" if row >= 0 else ""
        """One text is one condition at each call of the graph; four numbers would be four."""
        self.places = torch.tensor([row, grad_row, bound, centre], dtype=torch.float64, device="cpu")
        """The same as data, which is no condition: layers that are compiled each by itself can share a graph."""


def see(plan: Plan, output: Any) -> Any:
    """Take a sample of the output of a layer, and return it with a tap on its gradient."""
    graph = _graphs.get(plan.handle)
    if graph is None or not graph.reads or not torch.is_grad_enabled():
        return None
    if isinstance(output, Tensor) and elsewhere.lies(output):
        return _see_there(plan, output, graph) if plan.text and output.is_floating_point() else None
    tensors = [output] if isinstance(output, Tensor) else [x for _, x in leaves(output)]
    tensors = [x for x in tensors if x.is_floating_point() and not elsewhere.lies(x)]
    whole = isinstance(output, Tensor) and bool(tensors) and output.requires_grad
    if not (graph.opened and _keeps(graph.handle)):
        for x in tensors:
            found = x.detach()
            observe_at(sample(found, graph.cap), graph.table, graph.handle, plan.places, found.numel())
        return _TapAt.apply(output, graph.leaf, plan.places, graph.handle, graph.cap) if whole else None  # type: ignore[no-untyped-call]
    if not plan.text:
        return None
    row, grad_row, bound, centre = plan.text.split(" ")
    for x in tensors:
        found = x.detach()
        graph.samples.append((sample(found, graph.cap), int(row), found.numel(), float(bound), float(centre)))
    if whole and int(grad_row) >= 0:
        output = _Tap.apply(output, token(graph.leaf, graph.handle), graph.handle, int(grad_row), graph.cap)  # type: ignore[no-untyped-call]
    _quieten(plan.handle)
    return output


def _see_there(plan: Plan, output: Tensor, graph: Graph) -> Tensor:
    """The same of an output on another device."""
    row, grad_row, bound, centre = plan.text.split(" ")
    rows, bounds = (int(row), int(grad_row)), (float(bound), float(centre))
    return device_op.tap(output, graph.handle, rows, graph.cap, bounds)


def _have_read(taken: list[Sample], graph: Graph) -> None:
    if taken:
        xs, rows, totals = [s[0] for s in taken], [s[1] for s in taken], [s[2] for s in taken]
        observe(xs, graph.table, graph.handle, rows, totals, [value for s in taken for value in s[3:]])


F = TypeVar("F", bound="Callable[..., Any]")


def _constant(function: F) -> F:
    """Have Dynamo take what a function returns as a constant, as ``torch.compiler.assume_constant_result`` does,
    without importing Dynamo: that takes longer than all else that a session begins with.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


@_constant
def _keeps(handle: int) -> bool:
    """Whether samples of what is being traced can be kept until the watched model returns: its call is part of what is
    traced, or what is traced is its ``forward``. Not in the body of an operator, as activation checkpointing makes one,
    nor in a part of a model that is compiled by itself: what is kept there would be a condition of all other parts.
    """
    try:
        traced = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslator.current_tx().output
        if not traced.is_root_tracer():
            return False
        # As of before the trace began: it was opened in it.
        return not _graphs[handle].opened or _watched(traced.root_tx.f_locals.get("self"), handle)
    except AttributeError:  # another torch: to keep nothing is always right
        return False


@_constant
def _quieten(handle: int) -> None:
    """Drop conditions that the graph has because of the hook that is being traced, and is done."""
    with contextlib.suppress(AttributeError):  # another torch
        traced = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslator.current_tx().output
        if traced.is_root_tracer():
            quieten(traced, functools.partial(_watched, handle=handle))


def _watched(module: Any, handle: int) -> bool:
    """Whether a module is a watched model of a graph."""
    hooks = getattr(module, "_forward_pre_hooks", {})
    return any(isinstance(hook, Edge) and hook.handle == handle for hook in hooks.values())


class Edge:
    """A hook on a watched model, which opens the graph when that is called, and closes it when that returns. A copy
    does nothing.

    Of a model of torch's own classes, and of one that is called in a compiled function, the hooks are part of the
    graph. Of any other Dynamo calls them outside: then the samples are results of its graph.
    """

    unseen: ClassVar[bool] = True

    def __init__(self, graph: Graph, *, opens: bool) -> None:
        self.handle, self.opens = graph.handle, opens

    def __call__(self, module: nn.Module, args: Any, output: Any = None) -> None:
        """Open the graph, or have read what was kept and close it."""
        graph = _graphs.get(self.handle)
        if graph is None or torch.compiler.is_exporting():
            return
        if not self.opens:
            _have_read(graph.samples, graph)
        graph.samples.clear()
        graph.opened = self.opens
        if torch.compiler.is_compiling():
            _quieten(self.handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))  # as of a Probe

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__
