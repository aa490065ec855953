"""The coverage report: layers that were never called, tensors that could not be read, side effects of attaching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.live_objects import made
from neuraldbg.capture.guest.module_tree import parameters
from neuraldbg.capture.guest.program_objects import closed
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.parameters.parameters import FROZEN

if TYPE_CHECKING:
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.reader_context import Scene


def coverage(
    scene: Scene, logged: list[str], *, steps: int, cost: dict[str, float], recompiled: bool, packed: bool
) -> dict[str, Any]:
    """Return the part of ``RunInfo.coverage`` that capture knows, after ``steps`` steps at the given ``cost``, with the
    notes on what the program ``logged``.
    """
    hooks, models = scene.hooks, scene.models
    silent = hooks.never_fired()
    bare = hooks.only_without_grad(silent)
    left = {hooks.table.sites[row].module for row in hooks.graph.left if row >= 0}
    return {
        "layers": len(hooks.probes),
        "seen": len(hooks.probes) - len(silent),
        # A layer in a graph that was left alone was called all the same.
        "never_fired": [path for path in silent if path not in left and path not in bare],
        "without_grad": bare,
        "notes": [*_notes(hooks, recompiled=recompiled, packed=packed), *_of_memory(scene), *logged],
        "unread": {**models.owner.unread(), **_unread(scene)},
        "left_compiled": sorted(set(hooks.graph.left.values())),
        "errors": hooks.tally.errors,
        "failed": dict(hooks.tally.failed),
        "cost": cost,
        "backwards": scene.losses.total,
        "models": len(models.found),
        "optimizers": len(scene.optimizers.streams) or (0 if steps else _made(scene)),
        "passes": hooks.passes,
        "graded": models.graded,
        "reached": models.committed,
        "transformed": models.transformed,
        "kept_batches": dict(scene.kept),
    }


@silently
def device_of(scene: Scene) -> str:
    """Return the device of the first parameter of the models that are watched, ``cuda:0``; "" if there is none now."""
    every = (parameter for model in scene.models.found for parameter in parameters(model.root))
    return next((str(parameter.device) for parameter in every), "")


def _made(scene: Scene) -> int:
    """Return the number of optimizers that hold a watched parameter, if none has stepped: a walk over all objects of
    the process. If no model is watched, any optimizer counts.
    """
    return sum(1 for opt in made() if not scene.params.by_id or scene.params.in_optimizer(opt))


def _notes(hooks: HookManager, *, recompiled: bool, packed: bool) -> list[str]:
    notes = []
    if hooks.table.full:
        notes.append("more sites than the table holds: the last ones are not read")
    if hooks.hooked and hooks.fused:
        notes.append("hooks switch off the fused fast path of TransformerEncoderLayer in evaluation")
    if hooks.scripted:
        notes.append("TorchScript modules take no hooks: of their layers only parameters and gradients are read")
    if recompiled:
        notes.append("compiled code was compiled again, since the session set its hooks")
    if packed:
        notes.append("saved tensors are packed (checkpointing or offloading): they are not read")
    if closed():
        notes.append(f"objects that are read by methods of their own were left closed: {', '.join(closed())}")
    if hooks.tally.errors:
        notes.append(f"{hooks.tally.errors} internal errors, the first: {hooks.tally.first.strip().splitlines()[-1]}")
    return notes


def _unread(scene: Scene) -> dict[str, str]:
    """Return the tensors that were unreadable more than once, and whose faults would show nowhere else.

    A fault in an output shows in the outputs after it and in the loss, unless none was read. Losses of a dry run beside
    the training hide nothing.
    """
    table = scene.hooks.table
    kinds = ["parameters", "gradients"]
    if not any(site.kind == "activation" and site.dtype for site in table.sites):
        kinds.append("outputs")
    if table.unread.times("losses") >= scene.losses.total:
        kinds.append("losses")
    return table.unread.told(kinds, least=2)


def _of_memory(scene: Scene) -> list[str]:
    """Return notes about tensors that are read in part, and those that could not be read."""
    hooks, params = scene.hooks, scene.params
    parts = sum(1 for w in params.all() if w.part)
    addends = tensor_memory.some(sorted(params.addends))
    known = _unread(scene)
    rest = hooks.table.unread.told(("parameters", FROZEN, "gradients", "outputs", "losses"))
    return [
        *([f"read by shard: this rank's part of {parts} of {len(params.all())} parameters"] if parts else []),
        *([f"read by shard: this rank's addend of the gradients of {addends}"] if addends else []),
        *(f"{what} {reason}" for what, reason in rest.items() if what not in known),
    ]
