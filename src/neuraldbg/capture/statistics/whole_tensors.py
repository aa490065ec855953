"""The tensors of one moment, for hooks of the user: detached values, copies, files, and the statistics of one tensor.

All numbers of a tensor are read here, where the readings of a step take samples of large ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import STATS
from neuraldbg.nouns.accumulators import derived
from neuraldbg.process_memory import resident_or_most

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt


@silently
def detached(value: Any) -> Any:
    """Return a value with its tensors detached: a tensor, tuple, list or dict as it is nested; of any other object a
    dict of its tensors by name.
    """
    return _mapped(value, Tensor.detach)


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a value with ``function`` applied to its tensors, nested as ``detached`` says."""
    kind = type(value)
    if issubclass(kind, Tensor):
        return function(value)
    if kind in (tuple, list):
        return kind([_mapped(one, function) for one in value])
    if kind is dict:
        return {name: _mapped(one, function) for name, one in value.items()}
    if value is None or kind in (bool, int, float, str):
        return value
    return {name: function(x) for name, x in leaves(value)}


@silently
def first_tensor(value: Any) -> Tensor | None:
    """Return the first tensor of a value whose numbers can be read, detached. None if there is none."""
    for _, x in leaves(value):
        held = tensor_memory.readable(x)
        if held is not None:
            return held.detach()
    return None


@silently
def all_tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a value, in order."""
    return [x for _, x in leaves(value)]


def otherwise(value: Any) -> str:
    """Return why the first tensor of a value has no numbers to show, and what has; "" without a tensor."""
    x = next((x for _, x in leaves(value)), None)
    if x is None:
        return ""
    if x.device.type == "meta":
        return "it is on the meta device, which holds no numbers"
    if x.layout != torch.strided or x.is_nested:
        return "it is sparse or nested: ask for its values(), or to_dense()"
    if x.is_quantized:
        return "it is quantized: ask for its dequantize()"
    if x.is_complex():
        return "it is complex: ask for its abs(), real or imag"
    if not x.numel():
        return "it has no elements"
    return f"its dtype is {str(x.dtype).removeprefix('torch.')}: ask for its float()"


def flat(x: Tensor) -> npt.NDArray[np.float64]:
    """Return the numbers of a tensor as a 1-D array of float64, a copy."""
    return copied(x).double().flatten().numpy()


@silently
def copied(x: Tensor) -> Tensor:
    """Return a copy of a tensor on the CPU."""
    return x.clone() if x.device.type == "cpu" else x.cpu()


@silently
def save(value: Any, file: Path) -> None:
    """Write the tensors of a value to a file, as ``torch.load`` reads it: on the CPU, nested as the program has them.
    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(_mapped(value, lambda x: copied(x.detach())), file)


@silently
def statistics(x: Tensor) -> dict[str, float]:
    """Return STATS over all elements of a tensor, with ``norm`` (L2 of the finite elements) and ``absmax``; {} for a
    tensor of whole numbers or without elements. ``units``, ``dead`` and ``saturated`` need more than one tensor: 0.
    """
    held = operation.shown(x)
    if held is None:
        return {}
    if held.device.type == "cpu":
        raw = operation.BLANK[None].copy()
        operation.observe_cpu(held, operation.Rows(raw, raw.ctypes.data), 0, 0)
    else:
        table = torch.from_numpy(operation.BLANK[None].copy()).to(held.device)
        operation.observe_device(held, table, 0, held.numel())
        raw = table.cpu().numpy()
    values = derived(raw)[0]
    told = dict(zip(STATS, values.tolist(), strict=True))
    told["norm"] = told["rms"] * float(np.sqrt(told["count"] - told["nonfinite"]))
    told["absmax"] = max(abs(told["min"]), abs(told["max"]))
    return told


def memory_in_use() -> float:
    """Return the bytes of memory in use: those that torch has allocated on the current GPU if one is used, else the
    resident memory of the process. On systems other than Linux, the most that was ever resident.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return float(torch.cuda.memory_allocated())
    return resident_or_most()


def shape_of(x: Tensor) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a tensor, as plain values."""
    return tuple(int(n) for n in x.shape), str(x.dtype).removeprefix("torch.")
