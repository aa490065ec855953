"""torch.compile and hooks: what was compiled before hooks were set, or while they were, has to be compiled again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.guest.module_tree import modules, own
from neuraldbg.capture.guest.program_objects import attribute, attributes, class_member, name_of

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.config import CaptureSettings


def anything_compiled() -> bool:
    """Return True if torch.compile has made a graph in this process since it was last reset."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return bool(getattr(frames, "FRAME_COUNTER", 0))  # another thread may be about to import it


def asked_to_compile() -> bool:
    """Return True if the program has called torch.compile: its models may be traced at their next call."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return False
    # Dynamo keeps None or False for a function that it is to leave alone: torch's optimizers have several.
    return any(callable(backend) for backend in list(getattr(frames, "cached_backends", {}).values()))


def compiled_parts(module: nn.Module) -> set[int]:
    """Return the identities of those parts of a module whose calls run in a compiled graph: all below one that was
    compiled. A hook that comes and goes there would have the graph compiled anew.
    """
    found: set[int] = set()
    for part in modules(module):
        if id(part) not in found and is_compiled(part):
            found.update(id(each) for each in modules(part))
    return found


def is_compiled(module: nn.Module) -> bool:
    """Return True if a module was compiled: wrapped, in place, or its ``forward``."""
    wrapped = name_of(module) == "OptimizedModule" or own(module).get("_compiled_call_impl") is not None
    forward = attribute(module, "forward", class_member(type(module), "forward"))
    return wrapped or "_torchdynamo_orig_callable" in attributes(forward)


def forget_compiled(settings: CaptureSettings) -> bool:
    """Have compiled graphs made anew, if there are any: a graph does not notice hooks that are set or removed later.

    Dynamo leaves hooks out of its guards (``torch._dynamo.config.skip_nnmodule_hook_guards``). Returns whether there
    was something to forget.
    """
    if settings.compiled != "observe" or not anything_compiled():
        return False
    torch._dynamo.reset()  # noqa: SLF001
    return True
