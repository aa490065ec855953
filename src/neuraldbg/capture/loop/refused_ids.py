"""The ids that an embedding refused, read from the exception of a model's call: layer, size of its table, the ids.

The frame of torch's own function holds table and ids; nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.tensor_kinds import readable, unheard
from neuraldbg.capture.guest.tensor_memory import ORDINARY

if TYPE_CHECKING:
    from types import FrameType

    from neuraldbg.capture.parameters.parameters import Params

_FUNCTION = functional.embedding.__code__


def counted(before: dict[str, Any] | None, error: BaseException | None, params: Params) -> dict[str, Any] | None:
    """Return the REFUSED_IDS fact after a call of a model that ended with an exception."""
    found = refused_ids(error, params)
    if found is None:
        return before
    return {**found, "calls": 1 if before is None else before["calls"] + 1}


def refused_ids(error: BaseException | None, params: Params) -> dict[str, Any] | None:
    """Return the REFUSED_IDS fact of an exception without its count; None if no embedding of a watched model raised it
    for an id outside of its table, or the ids lie on a device.
    """
    frame = _frame(error) if type(error) is IndexError else None
    if frame is None:
        return None
    held: dict[str, Any] = dict(variables_of(frame))
    ids, table = held.get("input"), held.get("weight")
    if ids is None or table is None or not all(type(x) in ORDINARY and readable(x) for x in (ids, table)):
        return None
    with unheard(), torch.no_grad():
        if ids.device.type != "cpu" or ids.is_floating_point() or not ids.numel() or table.dim() != 2:
            return None
        low, high = (int(x) for x in torch.aminmax(ids))
        rows, width = table.shape
        outside = (ids < 0) | (ids >= rows)
        if not bool(outside.any()):
            return None
        sample = int(outside.flatten(1).any(1).nonzero()[0]) if ids.dim() > 1 else int(outside.reshape(-1).nonzero()[0])
        known = params.by_id.get(id(table))
        return {
            "layer": known.layer if known is not None else "", "rows": rows, "width": width, "low": low, "high": high,
            "number": int(outside.sum()), "ids": ids.numel(), "sample": sample,
        }  # fmt: skip


def _frame(error: BaseException | None) -> FrameType | None:
    """Return the frame of torch's function for embeddings in which an exception was raised, None if it was another."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None and trace.tb_frame.f_code is _FUNCTION else None
