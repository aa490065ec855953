"""The reset of compiled graphs: a graph compiled before hooks were set, or with them, has to be compiled again."""

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
    return bool(getattr(frames, "FRAME_COUNTER", 0))  # another thread may be importing it now


def asked_to_compile() -> bool:
    """Return True if the program has called torch.compile: its models may be traced at their next call."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return False
    # Dynamo stores None or False for a function that it skips: torch's optimizers have several.
    return any(callable(backend) for backend in list(getattr(frames, "cached_backends", {}).values()))


def compiled_parts(module: nn.Module) -> set[int]:
    """Return the identities of the modules that run in a compiled graph: all below one that was compiled. A hook set or
    removed there would cause a recompilation.
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
    """Reset Dynamo if there are compiled graphs, which do not notice hooks that are set or removed later, since Dynamo
    leaves hooks out of its guards (``torch._dynamo.config.skip_nnmodule_hook_guards``). Return True if it was reset.
    """
    if settings.compiled == "outside" or not anything_compiled():
        return False
    torch._dynamo.reset()  # noqa: SLF001
    return True
