"""The floating-point operations of one step: torch's formulas on the shapes that its own observer records.

``torch.utils.flop_counter.FlopCounterMode`` is a dispatch mode. A program notices one: torch then runs compiled graphs
eagerly, and computes a few gradients (``cumprod``, ``prod``) in another way, with other last bits. So the formulas of
that module are applied to what ``RecordFunction`` tells of each operator, which observes and changes nothing. The
legacy profiler is the least of its users: it starts in 30 us, and prints nothing, which Kineto does.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import flop_counter

from neuraldbg.forks import tell_children

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from neuraldbg.capture.profiling.step_events import StepEvents

_Shapes = list[list[int]]
ENTERS, LEAVES = "neuraldbg enters ", "neuraldbg leaves "
_BACKWARD_SCOPE = 1
_marker = torch._C._profiler._RecordFunctionFast  # noqa: SLF001 (no public name)
_options = torch._C._profiler._ExperimentalConfig  # noqa: SLF001
_running: Callable[[], bool] = torch._C._autograd._profiler_enabled  # noqa: SLF001
_start: Any = getattr(torch._C._autograd, "_enable_profiler_legacy", None)  # noqa: SLF001
_stop: Any = getattr(torch._C._autograd, "_disable_profiler_legacy", None)  # noqa: SLF001


def _matrices(shapes: _Shapes) -> int:
    return int(flop_counter.mm_flop(shapes[0], shapes[1]))


def _added_matrices(shapes: _Shapes) -> int:
    return int(flop_counter.mm_flop(shapes[1], shapes[2]))


def _batches(shapes: _Shapes) -> int:
    return int(flop_counter.bmm_flop(shapes[0], shapes[1]))


def _added_batches(shapes: _Shapes) -> int:
    return int(flop_counter.bmm_flop(shapes[1], shapes[2]))


def _vector(shapes: _Shapes) -> int:
    return 2 * math.prod(shapes[0])


def _added_vector(shapes: _Shapes) -> int:
    return 2 * math.prod(shapes[1])


def _attention(shapes: _Shapes) -> int:
    return int(flop_counter.sdpa_flop_count(*shapes[:3]))


def _attention_backward(shapes: _Shapes) -> int:
    return int(flop_counter.sdpa_backward_flop_count(*shapes[:4]))


def _recurrent(shapes: _Shapes) -> int:
    """Return the operations of one oneDNN layer: both matrices of weights at each element of the sequence."""
    steps, batch = shapes[0][:2]
    return 2 * steps * batch * (math.prod(shapes[1]) + math.prod(shapes[2]))


def _recurrent_backward(shapes: _Shapes) -> int:
    return 2 * _recurrent(shapes)


_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
_FORMULAS: dict[str, Callable[[_Shapes], int]] = {
    "aten::mm": _matrices,
    "aten::addmm": _added_matrices,
    "aten::_addmm_activation": _added_matrices,
    "aten::_scaled_mm": _matrices,
    "aten::bmm": _batches,
    "aten::baddbmm": _added_batches,
    "aten::addbmm": _added_batches,
    "aten::mv": _vector,
    "aten::addmv": _added_vector,
    "aten::dot": _vector,
    "aten::vdot": _vector,
    "aten::mkldnn_rnn_layer": _recurrent,
    "aten::mkldnn_rnn_layer_backward": _recurrent_backward,
    **{f"aten::{name}": _attention for name in _ATTENTION},
    **{f"aten::{name}_backward": _attention_backward for name in _ATTENTION},
}
"""Operators with a count; one inside of another that has one is not counted."""
_CONVOLUTION, _CONVOLUTION_BACKWARD = "aten::convolution", "aten::convolution_backward"
_COUNTED = 0.8
"""Share of the time of steps whose operations have to be known: the rest changes no rate by much."""
_WITHOUT_FORMULA = ("aten::_cudnn_rnn", "aten::miopen_rnn")


@dataclass
class Counts:
    """Floating-point operations of one step."""

    total: float = 0.0
    forward: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Those of the forward passes of a layer, by its number, with the layers inside of it."""
    backward: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """The same of the backward pass."""
    uncounted: set[str] = field(default_factory=set)
    """Operators of which the count is not known."""


class Observer:
    """Records the operators of one step by torch's legacy profiler."""

    def __init__(self) -> None:
        self.needed: dict[int, tuple[bool, ...]] = {}
        """Inputs whose gradients a convolution's node makes, by the number of the node: those in its graph."""
        tell_children(self)

    def in_child(self) -> None:
        """End recording in a forked child: a worker of a data loader would keep a record of all that it ever does."""
        with contextlib.suppress(RuntimeError):
            self.stop()

    def start(self, *, memory: bool = False) -> bool:
        """Begin to record, with allocations if ``memory`` and shapes otherwise. Return False if a profiler runs
        already, or torch has none of this kind.
        """
        if _start is None or _running():
            return False
        options = not memory, memory, False, False, False, _options()
        _start(torch._C._profiler.ProfilerConfig(torch._C._profiler.ProfilerState.CPU, *options))  # noqa: SLF001
        _recording.append(self)
        return True

    def enters(self, call: int) -> None:
        """Record the begin of a layer's call."""
        with _marker(f"{ENTERS}{call}"):
            pass

    def leaves(self, call: int) -> None:
        """Record the end of a layer's call."""
        with _marker(f"{LEAVES}{call}"):
            pass

    def marks(self, name: str) -> None:
        """Record a moment."""
        with _marker(name):
            pass

    def stop(self) -> list[list[Any]]:
        """End recording, and return the records of each thread; none if the recording was ended before."""
        if self not in _recording:
            return []
        _recording.remove(self)
        return list(_stop())


_recording: list[Observer] = []
"""The observers that record."""


def records() -> bool:
    """Return True if an observer of ours records: the profiler that runs is not the program's."""
    return bool(_recording)


def counted(
    records: list[list[Any]],
    events: StepEvents,
    needed: dict[int, tuple[bool, ...]],
    made: dict[int, tuple[int, ...]],
) -> Counts:
    """Return the operations in the records of one step, whose layers' calls are in ``events``. ``made`` has the shapes
    of the layers' outputs, for convolutions without a backward pass.
    """
    counts = Counts()
    found = [one for thread in records for one in _operators(thread, events)]
    outputs = {one.number: one.shapes[0] for one in found if one.name == _CONVOLUTION_BACKWARD}
    for one in found:
        # Readers of ours compute as well, without autograd; so do metrics, which are no part of the training.
        if one.call < 0 and one.number < 0:
            continue
        output = outputs.get(one.number) or list(made.get(events.calls[one.call].layer, ()) if one.call >= 0 else ())
        flops = _flops(one, output, needed)
        if flops is None:
            counts.uncounted.add(one.name.removeprefix("aten::"))
            continue
        counts.total += flops
        parts = counts.backward if one.backward else counts.forward
        layers, call = set(), one.call
        while call >= 0:
            layer, parent, _ = events.calls[call]
            if layer not in layers:
                layers.add(layer)
                parts[layer] += flops
            call = parent
    return counts


def mean_counts(shapes: Sequence[Any], times: Sequence[float], known: Mapping[Any, Counts]) -> Counts | None:
    """Return the operations of a mean step, from the shapes of the input and the seconds of steps, and from the counts
    of some shapes; None if too much of the time went to steps of other shapes. Shapes that were not counted are taken
    to compute as fast as the others.
    """
    held = [(known[shape], took) for shape, took in zip(shapes, times, strict=True) if shape in known]
    took, whole = sum(one for _, one in held), sum(times)
    if not held or took < _COUNTED * whole:
        return None
    if all(counts is held[0][0] for counts, _ in held) and len(held) == len(times):
        return held[0][0]
    scale = whole / took / len(times) if took else 1.0 / len(held)
    mean = Counts()
    for counts, _ in held:
        mean.total += scale * counts.total
        mean.uncounted |= counts.uncounted
        for parts, added in ((mean.forward, counts.forward), (mean.backward, counts.backward)):
            for layer, flops in added.items():
                parts[layer] += scale * flops
    return mean


@dataclass
class _Operator:
    """One operator that was called."""

    name: str
    shapes: _Shapes
    number: int
    """Number of its node, or of the node that it is the backward pass of; -1 for none."""
    call: int
    """The layer's call that it belongs to, -1 for none."""
    backward: bool


def _operators(thread: list[Any], events: StepEvents) -> list[_Operator]:
    """Return the operators of one thread that count, in order."""
    found: list[_Operator] = []
    # One entry for each open record: the node whose backward pass it is in, and True inside of a counted operator.
    open_: list[tuple[int, bool]] = []
    calls = [-1]
    for record in thread:
        kind = record.kind()
        if kind == "pop":
            if open_:
                open_.pop()
            continue
        if kind != "push":
            continue
        name, (node, inside) = record.name(), open_[-1] if open_ else (-1, False)
        if name.startswith(ENTERS):
            calls.append(int(name.removeprefix(ENTERS)))
        elif name.startswith(LEAVES):
            call = int(name.removeprefix(LEAVES))
            if call in calls:
                del calls[calls.index(call) :]
        elif not name.startswith("aten::"):
            if record.sequence_nr() >= 0 and record.scope() == _BACKWARD_SCOPE:
                node = record.sequence_nr()
        elif not inside and (name in _FORMULAS or name in (_CONVOLUTION, _CONVOLUTION_BACKWARD, *_WITHOUT_FORMULA)):
            inside = True
            number = node if node >= 0 else record.sequence_nr()
            call = events.owner(node) if node >= 0 else calls[-1]
            found.append(_Operator(name, record.shapes(), number, call, node >= 0))
        open_.append((node, inside))
    return found


def _flops(one: _Operator, output: list[int], needed: dict[int, tuple[bool, ...]]) -> float | None:
    """Return the operations of an operator, None if they are not known. ``output`` is the shape of its output, empty if
    that is not known.
    """
    try:
        if one.name == _CONVOLUTION:
            return _convolution(one.shapes[0], one.shapes[1], output)
        if one.name == _CONVOLUTION_BACKWARD:
            gradient, given, weight = one.shapes[:3]
            return _convolution(given, weight, gradient) * sum(needed.get(one.number, (True, True))[:2])
        if one.name in _WITHOUT_FORMULA:
            return None
        return float(_FORMULAS[one.name](one.shapes))
    except (ValueError, IndexError, AssertionError, TypeError):  # a nested tensor, or an operator of a later torch
        return None


def _convolution(given: list[int], weight: list[int], output: list[int]) -> float:
    """Return the operations of a convolution, or of one of the two halves of its backward pass, which has as many."""
    same = weight[0] == output[1] and (weight[0] != given[1] or math.prod(output[2:]) <= math.prod(given[2:]))
    return float(flop_counter.conv_flop_count(given, weight, output, transposed=not same))
