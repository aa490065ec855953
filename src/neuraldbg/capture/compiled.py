"""torch.compile and hooks: what was compiled before hooks were set, or while they were, has to be compiled again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from neuraldbg.config import CaptureSettings


def anything_compiled() -> bool:
    """Whether torch.compile has made a graph in this process."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    if frames is None:
        return False
    return bool(frames.FRAME_COUNTER or torch._dynamo.utils.counters["stats"].get("unique_graphs", 0))  # noqa: SLF001


def forget_compiled(settings: CaptureSettings) -> bool:
    """Have compiled graphs made anew, if there are any: a graph does not notice hooks that are set or removed later.

    Dynamo leaves hooks out of its guards (``torch._dynamo.config.skip_nnmodule_hook_guards``). Returns whether there
    was something to forget.
    """
    if settings.compiled != "observe" or not anything_compiled():
        return False
    torch._dynamo.reset()  # noqa: SLF001
    return True
