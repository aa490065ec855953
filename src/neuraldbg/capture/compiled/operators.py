"""The operators of compiled graphs: sampling of a tensor, and reading of samples into the rows of a table.

Tensors in, numbers in the table out. Graphs name a table by its handle: a Python object would be guarded at every call.
While a table is closed (light steps) the operators do nothing.
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
"""Open tables by handle, each with the thread in which it is written to, shape (1,), 0 for any."""


def begin(handle: int, table: Tensor, clock: npt.NDArray[np.float64]) -> None:
    """Open a table, shape (rows, operation.WIDTH), for writing. ``clock`` has shape (2,): see ``Tally``."""
    _open[handle] = table, clock[1:].view("int64")
    if NATIVE:
        native.point(handle, table.data_ptr(), clock.ctypes.data)


def rest(handle: int) -> None:
    """Close a table: operators no longer write to it."""
    if _open.pop(handle, None) is not None and NATIVE:
        native.point(handle, 0, 0)


def of_another_thread(handle: int) -> bool:
    """Return True if a table is open, but for another thread than the current one."""
    found = _open.get(handle)
    return found is not None and found[1][0] not in (0, get_ident())


def observe_in_python(
    xs: list[Tensor], table: Tensor, handle: int, rows: list[int], totals: list[int], bounds: list[float]
) -> None:
    """Add the statistics of samples to rows of ``table``, shape (rows, operation.WIDTH).

    ``totals`` are the elements of the sampled tensors, ``bounds`` bound and centre of saturation of each in turn.
    """
    if handle not in _open or of_another_thread(handle):
        return
    for x, row, total, bound, centre in zip(xs, rows, totals, bounds[::2], bounds[1::2], strict=True):
        _read(x, table, row, total, bound, centre)


def observe_gradients_in_python(grads: list[Tensor], handle: int, rows: list[int], totals: list[int]) -> Tensor:
    """Read samples of gradients. Return a zero, the gradient of the leaf.

    The table is named by its handle: a tensor saved for backward may not be written to before it is used.
    """
    if handle in _open and not of_another_thread(handle):
        table, _ = _open[handle]
        for grad, row, total in zip(grads, rows, totals, strict=True):
            if row >= 0:
                _read(grad, table, row, total)
    return torch.zeros((), dtype=torch.float32, device="cpu")


def observe_at_in_python(x: Tensor, table: Tensor, handle: int, places: Tensor, total: int) -> None:
    """Read one sample into the row given by the ``places`` of a ``Plan``."""
    row, _, bound, centre = places.tolist()
    if handle in _open and row >= 0 and not of_another_thread(handle):
        _read(x, table, int(row), total, bound, centre)


def observe_gradient_at_in_python(grad: Tensor, handle: int, places: Tensor, total: int) -> Tensor:
    """Read a sample of one gradient, whose row is the second of ``places``. Return a zero."""
    return observe_gradients_in_python([grad], handle, [int(places[1])], [total])


def _read(x: Tensor, table: Tensor, row: int, total: int, bound: float = 0.0, centre: float = 0.0) -> None:
    if x.numel() and not placement.lies(x):
        rows = operation.rows_of(table)
        operation.observe_cpu(x, rows, row, 0, bound, centre)
        rows.values[row, operation.TOTAL] += total - x.numel()


def _sample(x: Tensor, cap: int) -> Tensor:
    """Return a new tensor of at most about ``cap`` elements: evenly spaced along the axes, features in runs.

    Nothing is assumed of the size of a dynamic axis.
    """
    x = x.detach()
    sizes = [_size(n) for n in x.shape]
    steps = _steps(sizes, cap)
    fixed = [isinstance(n, int) for n in x.shape]  # an offset on a dynamic axis would be a guard on its size
    apart = _apart(sizes[-1], steps[-1]) if 1 < len(sizes) < _IMAGES and fixed[-1] else 0
    if apart:
        # The compiler copies a run by one instruction, and it is in one cache line; single elements took eight times as
        # long, and touched four times as many lines.
        x = x.unflatten(-1, (-1, _RUN))
        sizes[-1] //= _RUN
        steps[-1] = apart
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if step > 1:
            start = (size - 1) % step // 2 if fixed[axis] else 0
            x = torch.ops.aten.slice.Tensor(x, axis, start, None, step)
    # Without a new tensor the sample would be a view, and its base would have to be stored.
    return x.float() if x.dtype in _HALVES else x.neg().neg()


def whole(x: Tensor, cap: int) -> Tensor | None:
    """Return a copy of a tensor that is no longer than its sample, None of a longer one.

    If only an operator reads the copy, the compiler elides it: the operator reads the tensor itself, which is the
    cheapest. A tensor that a graph returns must not be such a copy: it might be the program's own result, too, and have
    no gradient.
    """
    sizes = x.shape
    fixed = all(isinstance(n, int) for n in sizes) and x.dtype not in _HALVES
    return x.detach().clone() if fixed and max(_steps(sizes, cap), default=1) == 1 else None


def _apart(size: int, step: int) -> int:
    """Return n to keep every n-th run of features, no more elements than single ones every ``step``; 0 if too few would
    be left to represent the layer. n is odd: widths of heads and groups are even, and an even n would place all runs at
    the same offset in each, and miss some heads.
    """
    if step == 1 or size % _RUN:
        return 0
    runs = size // _RUN
    spread = range(step | 1, runs + 1, 2)
    return next((n for n in spread if -(-size // step) >= -(-runs // n) * _RUN >= _RUNS * _RUN), 0)


def _size(n: Any) -> int:
    """Return a size, for a dynamic one its current value."""
    return n if isinstance(n, int) else n.node.hint if n.node.has_hint() else 1


def _steps(sizes: Sequence[int], cap: int) -> list[int]:
    """Return the stride along each axis. Channels are the second axis of four or more, features the last of fewer: all
    are kept as long as enough positions, rows or pixels remain that no single one represents the layer. The batch, the
    first axis, is thinned last: its elements depend least on each other.
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
"""Number of axes from which on the second is the channel axis."""
_POSITIONS, _FEATURES = 16, 64
"""Positions and features that are left at least, about, as long as the other can be thinned."""
_RUN, _RUNS = 16, 3
"""Features in one run, and the least number of runs."""


def _source() -> str:
    """Return a hash of the source of the operators that Dynamo's graph decomposes. torch caches compiled code on disk
    by that graph: by their names alone it would find code compiled from another version of this package.
    """
    code = (pkgutil.get_data(__package__, file) or b"" for file in ("operators.py", "gradient_tap.py"))
    return f"{zlib.crc32(b''.join(code)):08x}"


SOURCE = _source()

# torch.library.custom_op checks each call, which takes several times as long as the reading.
_LIBRARY = torch.library.Library("neuraldbg", "DEF")
# With flexible_layout the compiler makes no copies in eager mode's layout.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LIBRARY.define(f"sample_{SOURCE}(Tensor x, int cap) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define(
    "observe(Tensor[] xs, Tensor(a!) table, int handle, int[] rows, SymInt[] totals, float[] bounds) -> ()", tags=_TAGS
)
_LIBRARY.define("observe_gradients(Tensor[] grads, int handle, int[] rows, SymInt[] totals) -> Tensor", tags=_TAGS)
_LIBRARY.define("observe_at(Tensor x, Tensor(a!) table, int handle, Tensor places, SymInt total) -> ()", tags=_TAGS)
_LIBRARY.define("observe_gradient_at(Tensor grad, int handle, Tensor places, SymInt total) -> Tensor", tags=_TAGS)
_LIBRARY.impl(f"sample_{SOURCE}", _sample, "CompositeImplicitAutograd")
_LIBRARY.impl("observe", observe_in_python, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradients", observe_gradients_in_python, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_at", observe_at_in_python, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradient_at", observe_gradient_at_in_python, "CompositeExplicitAutograd")
sample = getattr(torch.ops.neuraldbg, f"sample_{SOURCE}").default
observe = torch.ops.neuraldbg.observe.default
observe_gradients = torch.ops.neuraldbg.observe_gradients.default
observe_at = torch.ops.neuraldbg.observe_at.default
observe_gradient_at = torch.ops.neuraldbg.observe_gradient_at.default


def _served() -> bool:
    """Register native code for the operators on CPU tensors. Return True if that worked."""
    if native is None:
        return False
    try:
        library = torch_library()
        native.serve({name: ctypes.cast(library[name], ctypes.c_void_p).value for name in native.functions()})
    except (LookupError, OSError, AttributeError, RuntimeError):  # a torch before 2.10, or another build of it
        return False
    return True


NATIVE = _served()
"""True if native code runs the operators on CPU tensors."""


def _shorten() -> None:
    """Let calls from Python, as compiled graphs make them, return before torch's dispatcher while no table is open:
    there a call takes longer than reading. Run before any code uses the operators: torch hashes them by this attribute.
    """
    shortcut = getattr(native, "Shortcut", None)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)  # noqa: SLF001 (no public name)
    for operator, size, handle, result in _CALLS:
        slow = vars(operator).get("_op")
        if NATIVE and shortcut is not None and modes is not None and slow is not None:
            operator._op = shortcut(slow, modes, result, size, handle)  # noqa: SLF001


with unheard():  # an import under FakeTensorMode would make a zero without memory
    _ZERO = torch.zeros((), dtype=torch.float32, device="cpu")
_CALLS: tuple[tuple[Any, int, int, Callable[[], Tensor] | None], ...] = (
    (observe, 6, 2, None),
    (observe_at, 5, 2, None),
    (observe_gradients, 4, 1, _ZERO.clone),  # a new zero at each call: compilers and autograd write to it
    (observe_gradient_at, 4, 1, _ZERO.clone),
)
"""Each operator with its number of arguments, the index of the handle, and the maker of its result while closed."""
_shorten()


def _a_zero(*_: object) -> Tensor:
    return torch.empty((), dtype=torch.float32, device="cpu")


for _name in ("observe", "observe_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", lambda *_: None, lib=_LIBRARY)
for _name in ("observe_gradients", "observe_gradient_at"):
    torch.library.register_fake(f"neuraldbg::{_name}", _a_zero, lib=_LIBRARY)
