"""torch.compile and hooks: what was compiled before hooks were set, or while they were, has to be compiled again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from neuraldbg.config import CaptureSettings


def anything_compiled() -> bool:
    """Whether torch.compile has made a graph in this process since it was last reset."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and bool(frames.FRAME_COUNTER)


def forget_compiled(settings: CaptureSettings) -> bool:
    """Have compiled graphs made anew, if there are any: a graph does not notice hooks that are set or removed later.

    Dynamo leaves hooks out of its guards (``torch._dynamo.config.skip_nnmodule_hook_guards``). Returns whether there
    was something to forget.
    """
    if settings.compiled != "observe" or not anything_compiled():
        return False
    torch._dynamo.reset()  # noqa: SLF001
    return True
