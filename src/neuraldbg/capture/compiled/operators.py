"""The operators of compiled graphs: a sample of a tensor, and what reads samples into the rows of a table.

Tensors in, numbers in the table out. Graphs name a table by its handle: what they find by a Python object they would
compare at every call. While a table rests the operators do nothing.
"""

from __future__ import annotations

import ctypes
import math
import pkgutil
import zlib
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest.native import native, torch_library
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt


_open: dict[int, tuple[Tensor, npt.NDArray[np.int64]]] = {}
"""By handle the tables that are written to now, and in which thread alone, shape (1,), 0 for any."""


def begin(handle: int, table: Tensor, clock: npt.NDArray[np.float64]) -> None:
    """Write to a table, shape (rows, op.WIDTH), from now on. ``clock`` has shape (2,): see ``Tally``."""
    _open[handle] = table, clock[1:].view("int64")
    if NATIVE:
        native.point(handle, table.data_ptr(), clock.ctypes.data)


def rest(handle: int) -> None:
    """Write to a table no more."""
    if _open.pop(handle, None) is not None and NATIVE:
        native.point(handle, 0, 0)


def of_another_thread(handle: int) -> bool:
    """Return True if a table is written to now, but not by the current thread."""
    found = _open.get(handle)
    return found is not None and found[1][0] not in (0, get_ident())


def _observe(
    xs: list[Tensor], table: Tensor, handle: int, rows: list[int], totals: list[int], bounds: list[float]
) -> None:
    """Add the statistics of samples to rows of ``table``, shape (rows, op.WIDTH).

    ``totals`` are the elements of what they are samples of, ``bounds`` bound and centre of saturation of each in turn.
    """
    if handle not in _open or of_another_thread(handle):
        return
    for x, row, total, bound, centre in zip(xs, rows, totals, bounds[::2], bounds[1::2], strict=True):
        _read(x, table, row, total, bound, centre)


def _observe_gradients(grads: list[Tensor], handle: int, rows: list[int], totals: list[int]) -> Tensor:
    """Read samples of gradients. Returns a zero, the gradient of the leaf.

    The table is named by its handle: a tensor saved for backward may not be written to before it is used.
    """
    if handle in _open and not of_another_thread(handle):
        table, _ = _open[handle]
        for grad, row, total in zip(grads, rows, totals, strict=True):
            if row >= 0:
                _read(grad, table, row, total)
    return torch.zeros((), dtype=torch.float32, device="cpu")


def _observe_at(x: Tensor, table: Tensor, handle: int, places: Tensor, total: int) -> None:
    """The same of one sample, by the ``places`` of a ``Plan``."""
    row, _, bound, centre = places.tolist()
    if handle in _open and row >= 0 and not of_another_thread(handle):
        _read(x, table, int(row), total, bound, centre)


def _observe_gradient_at(grad: Tensor, handle: int, places: Tensor, total: int) -> Tensor:
    return _observe_gradients([grad], handle, [int(places[1])], [total])


def _read(x: Tensor, table: Tensor, row: int, total: int, bound: float = 0.0, centre: float = 0.0) -> None:
    if x.numel() and not placement.lies(x):
        rows = operation.rows_of(table)
        operation.observe_cpu(x, rows, row, 0, bound, centre)
        rows.values[row, operation.TOTAL] += total - x.numel()


def _sample(x: Tensor, cap: int) -> Tensor:
    """Return at most about ``cap`` elements of a tensor, a new one: evenly spaced along the axes, features in runs.
    Where an axis may have any size nothing is assumed of it.
    """
    x = x.detach()
    sizes = [_size(n) for n in x.shape]
    steps = _steps(sizes, cap)
    fixed = [isinstance(n, int) for n in x.shape]  # an offset on an axis of any size would be a condition on that
    apart = _apart(sizes[-1], steps[-1]) if 1 < len(sizes) < _IMAGES and fixed[-1] else 0
    if apart:
        # A compiler copies a run by one instruction, and it lies in one line of a cache; single elements took eight
        # times as long, and touched four times as many lines.
        x = x.unflatten(-1, (-1, _RUN))
        sizes[-1] //= _RUN
        steps[-1] = apart
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if step > 1:
            start = (size - 1) % step // 2 if fixed[axis] else 0
            x = torch.ops.aten.slice.Tensor(x, axis, start, None, step)
    # Else a sample would be a view, and what it is a view of would have to be written down.
    return x.float() if x.dtype in _HALVES else x.neg().neg()


def whole(x: Tensor, cap: int) -> Tensor | None:
    """Return a copy of a tensor of which a sample is all there is, None where it is less.

    Of one that an operator reads, and nobody else, a compiler makes none: the operator reads the tensor itself. What is
    no longer than a sample costs least so. One that a graph returns is never to be of this kind: it may turn out to be
    what the graph returns for the program, too, and have no gradient.
    """
    sizes = x.shape
    fixed = all(isinstance(n, int) for n in sizes) and x.dtype not in _HALVES
    return x.detach().clone() if fixed and max(_steps(sizes, cap), default=1) == 1 else None


def _apart(size: int, step: int) -> int:
    """Return of how many runs of features one is taken, no more of them than single ones every ``step``; 0 where too
    few would be left to speak for the layer. An odd number: widths of heads and groups are even, and by an even one all
    runs would lie at the same place of each, and some heads have none.
    """
    if step == 1 or size % _RUN:
        return 0
    runs = size // _RUN
    spread = range(step | 1, runs + 1, 2)
    return next((n for n in spread if -(-size // step) >= -(-runs // n) * _RUN >= _RUNS * _RUN), 0)


def _size(n: Any) -> int:
    """Return a size, and of a size that is not fixed the one it has now."""
    return n if isinstance(n, int) else n.node.hint if n.node.has_hint() else 1


def _steps(sizes: Sequence[int], cap: int) -> list[int]:
    """Return from which element to which to go along each axis. Channels are the second axis of four or more, features
    the last of fewer: they are all kept as long as they leave room for so many positions, rows or pixels that no single
    one speaks for the layer. The batch, the first axis, is thinned out last: its elements tell least of each other.
    """
    steps = [1] * len(sizes)
    kept = 1 if len(sizes) >= _IMAGES else len(sizes) - 1
    others = [axis for axis in range(len(sizes)) if axis != kept]
    few = math.ceil(_POSITIONS ** (1 / max(len(others), 1)))
    for least, axes in ((few, others), (_FEATURES, [kept]), (1, others[::-1]), (1, [kept])):
        for axis in axes:
            now = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
            left = math.prod(now)
            if left > cap:
                steps[axis] *= max(1, min(-(-left // cap), now[axis] // least))
    return steps


_HALVES = (torch.float16, torch.bfloat16)
_IMAGES = 4
"""Axes from which on the second is one of channels."""
_POSITIONS, _FEATURES = 16, 64
"""What is left of either, about, as long as the other can be thinned out."""
_RUN, _RUNS = 16, 3
"""Features that lie side by side, and how many such runs are taken at least."""


def _source() -> str:
    """Return a hash of the code that operators consist of which a graph of Dynamo's holds. torch keeps what it compiles
    on disk, by that graph: by their names alone it would find what another version of this package had made of them.
    """
    code = (pkgutil.get_data(__package__, file) or b"" for file in ("operators.py", "gradient_tap.py"))
    return f"{zlib.crc32(b''.join(code)):08x}"


SOURCE = _source()

# Defined without torch.library.custom_op, whose checks at each call take several times as long as all that is done.
_LIBRARY = torch.library.Library("neuraldbg", "DEF")
# Both read any layout: told so, the compiler copies nothing into the layout that eager mode would give it.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LIBRARY.define(f"sample_{SOURCE}(Tensor x, int cap) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define(
    "observe(Tensor[] xs, Tensor(a!) table, int handle, int[] rows, SymInt[] totals, float[] bounds) -> ()", tags=_TAGS
)
_LIBRARY.define("observe_gradients(Tensor[] grads, int handle, int[] rows, SymInt[] totals) -> Tensor", tags=_TAGS)
_LIBRARY.define("observe_at(Tensor x, Tensor(a!) table, int handle, Tensor places, SymInt total) -> ()", tags=_TAGS)
_LIBRARY.define("observe_gradient_at(Tensor grad, int handle, Tensor places, SymInt total) -> Tensor", tags=_TAGS)
_LIBRARY.impl(f"sample_{SOURCE}", _sample, "CompositeImplicitAutograd")
_LIBRARY.impl("observe", _observe, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradients", _observe_gradients, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_at", _observe_at, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradient_at", _observe_gradient_at, "CompositeExplicitAutograd")
sample = getattr(torch.ops.neuraldbg, f"sample_{SOURCE}").default
observe = torch.ops.neuraldbg.observe.default
observe_gradients = torch.ops.neuraldbg.observe_gradients.default
observe_at = torch.ops.neuraldbg.observe_at.default
observe_gradient_at = torch.ops.neuraldbg.observe_gradient_at.default


def _served() -> bool:
    """Have native code stand in for the operators on tensors of the CPU. Returns whether it does."""
    if native is None:
        return False
    try:
        library = torch_library()
        native.serve({name: ctypes.cast(library[name], ctypes.c_void_p).value for name in native.functions()})
    except (LookupError, OSError, AttributeError, RuntimeError):  # a torch before 2.10, or another build of it
        return False
    return True


NATIVE = _served()
"""Whether native code does what the operators do on tensors of the CPU."""


def _shorten() -> None:
    """Let calls of the operators from Python, as compiled graphs make them, end before torch's dispatcher while nothing
    is read: there a call takes longer than reading. Before anything looks at the operators: torch hashes them by this.
    """
    shortcut = getattr(native, "Shortcut", None)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)  # noqa: SLF001 (no public name)
    for operator, size, handle, result in _CALLS:
        slow = vars(operator).get("_op")
        if NATIVE and shortcut is not None and modes is not None and slow is not None:
            operator._op = shortcut(slow, modes, result, size, handle)  # noqa: SLF001


with unheard():  # whoever imports this under FakeTensorMode would have a zero without memory
    _ZERO = torch.zeros((), dtype=torch.float32, device="cpu")
_CALLS: tuple[tuple[Any, int, int, Callable[[], Tensor] | None], ...] = (
    (observe, 6, 2, None),
    (observe_at, 5, 2, None),
    (observe_gradients, 4, 1, _ZERO.clone),  # a new one at each call: compilers and autograd write to what they get
    (observe_gradient_at, 4, 1, _ZERO.clone),
)
"""Each operator, how many arguments it has, which of them is the handle, what makes the result when nothing is read."""
_shorten()


def _a_zero(*_: object) -> Tensor:
    return torch.empty((), dtype=torch.float32, device="cpu")


for _name in ("observe", "observe_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", lambda *_: None, lib=_LIBRARY)
for _name in ("observe_gradients", "observe_gradient_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", _a_zero, lib=_LIBRARY)
