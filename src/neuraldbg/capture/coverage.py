"""How well the program could be seen: what never fired, what was left out, and what attaching has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.program_objects import closed, is_a
from neuraldbg.capture.stream import made

if TYPE_CHECKING:
    from neuraldbg.capture.capture import Capture
    from neuraldbg.capture.hooks import HookManager

_FUSED = (nn.TransformerEncoderLayer, nn.TransformerEncoder)


def coverage(capture: Capture, *, recompiled: bool, packed: bool) -> dict[str, Any]:
    """Return the part of ``RunInfo.coverage`` that capture knows."""
    hooks, models = capture.hooks, capture.models
    silent = hooks.never_fired()
    return {
        "layers": len(hooks.probes),
        "seen": len(hooks.probes) - len(silent),
        "never_fired": silent,
        "notes": _notes(hooks, recompiled=recompiled, packed=packed),
        "unread": capture.owner.unread(),
        "errors": hooks.tally.errors,
        "failed": dict(hooks.tally.failed),
        "cost": capture.pace.cost(),
        "backwards": capture.losses.total,
        "models": len(models.found),
        "optimizers": len(capture.optimizers.streams) or _made(capture),
        "passes": hooks.passes,
        "graded": models.graded,
        "reached": models.committed,
    }


def _made(capture: Capture) -> int:
    """Count the optimizers that exist where nothing has stepped: to find them takes a walk over all objects."""
    return 0 if capture.steps else sum(1 for _ in made())


def _notes(hooks: HookManager, *, recompiled: bool, packed: bool) -> list[str]:
    modules = list(hooks.modules.values())
    notes = []
    if hooks.table.full:
        notes.append("more sites than the table holds: the last ones are not read")
    if any(is_a(module, _FUSED) for module in modules):
        notes.append("hooks switch off the fused fast path of TransformerEncoderLayer in evaluation")
    if any(is_a(module, torch.jit.ScriptModule) for module in modules):
        notes.append("TorchScript modules take no hooks: of their layers only parameters and gradients are read")
    if recompiled:
        notes.append("compiled code was compiled again so that it could be watched")
    if packed:
        notes.append("saved tensors are packed (checkpointing or offloading): they are not looked at")
    if closed():
        notes.append(f"objects that are read by methods of their own were left closed: {', '.join(closed())}")
    if hooks.tally.errors:
        notes.append(f"{hooks.tally.errors} internal errors, the first: {hooks.tally.first.strip().splitlines()[-1]}")
    return notes
