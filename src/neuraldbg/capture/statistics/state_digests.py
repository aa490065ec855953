"""Digests of what a training holds, two of which show what a person has changed at a stop in between.

The values of a stop, models and optimizers in; a small value for each tensor, mode and setting out. The digest of a
tensor is its version, which operations in place count, with the sum and the extremes of its elements, for writes by
``.data``, which count no version. Nothing is kept of the tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import groups, named_parameters, registered, state_of, tensors, training, walk
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import is_a, items, sequence
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

MOST = 2**27
"""Elements of all tensors together that are read whole, in tenths of a second. Of the others a sample is read."""
SAMPLE = 4096
"""Elements of such a sample."""
_NAMED = 3
"""Changes of one kind that are named one by one."""

Digests = dict[tuple[str, str], Any]
"""A digest by the kind of thing and its name: ("parameter", "'fc1.weight'"), ("training mode of layer", "'drop'")."""


@silently
def digests(values: Mapping[str, Any], models: Sequence[nn.Module], optimizers: Iterable[Any]) -> Digests:
    """Return the digests of the tensors in some named values, and of what models and optimizers hold."""
    left = [MOST]
    found: Digests = {}
    for name, value in values.items():
        for index, (_, x) in enumerate(leaves(value)):
            found[f"{name}{f'[{index}]' if index else ''}", ""] = _tensor(x, left)
    paths: dict[int, str] = {}
    for index, model in enumerate(models):
        of = f" of model {index}" if index else ""
        for path, x in named_parameters(model):
            paths.setdefault(id(x), f"'{path}'{of}")
            found["parameter", f"'{path}'{of}"] = _tensor(x, left)
            found["gradient of parameter", f"'{path}'{of}"] = _tensor(x.grad, left)
        for path, module in walk(model):
            found["training mode of layer", f"'{path}'{of}"] = training(module)
            for name, x in registered(module, "_buffers"):
                found["buffer", f"'{path}{'.' if path else ''}{name}'{of}"] = _tensor(x, left)
    for index, optimizer in enumerate(optimizers):
        of = f" of optimizer {index}" if index else ""
        for at, group in enumerate(groups(optimizer)):
            for key, value in items(group):
                found[f"setting {key!r} of parameter group", f"{at}{of}"] = _setting(value)
        for x in tensors(optimizer):
            for key, value in items(state_of(optimizer, x)):
                found[f"state {key!r} of parameter", f"{paths.get(id(x), '?')}{of}"] = _version(value)
    return found


def changes(before: Digests, after: Digests) -> list[str]:
    """Return what differs, in words: "parameter 'fc1.weight'"; of many things of one kind the first few are named."""
    kinds: dict[str, list[str]] = {}
    for kind, name in {**before, **after}:
        if before.get((kind, name)) != after.get((kind, name)):
            kinds.setdefault(kind, []).append(name)
    told = []
    for kind, names in kinds.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        told.append(f"{kind} {', '.join(names[:_NAMED])}{more}".strip())
    return told


def _version(x: Any) -> int | None:
    """Return the version of a tensor; None for one of ``torch.inference_mode``, which has none, and no tensor."""
    return x._version if is_a(x, Tensor) and not x.is_inference() else None  # noqa: SLF001 (no public way)


def _tensor(x: Any, left: list[int]) -> Any:
    """Return the digest of a tensor, None for what is none. ``left`` counts the elements that may be read whole."""
    if not is_a(x, Tensor):
        return None
    version, held = _version(x), tensor_memory.readable(x)
    if held is None or held.device.type == "meta" or not held.numel():
        return (version,)
    held = held.detach()
    size = held.numel()
    try:
        if size > left[0]:
            held = operation.sample(held, SAMPLE)
        left[0] -= size if size <= left[0] else 0
        if held.is_complex():
            held = torch.view_as_real(held.resolve_conj())
        low, high = held.aminmax()
        total = held.sum(dtype=torch.float64 if held.is_floating_point() else None)
        return version, str(held.dtype), *(repr(one.item()) for one in (total, low, high))  # a NaN equals itself
    except (NotImplementedError, RuntimeError, TypeError):  # sparse, quantized, eight bits: the kernel is not there
        return (version,)


def _setting(value: Any) -> Any:
    """Return the value of a setting as plain numbers, None for one that is none."""
    if value is None or type(value) in (bool, str):
        return value
    one = number(value)
    return repr(one) if one is not None else [repr(number(each)) for each in sequence(value) if not is_a(each, Tensor)]
