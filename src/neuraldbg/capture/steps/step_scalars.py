"""The scalars of one step, counted and measured by the parts of the stage, under the names of ``nouns.step``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.loop.fused_steps import overflows
from neuraldbg.capture.loop.loss_values import loss_of
from neuraldbg.capture.parameters.parameters import norm_of
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.capture.loop.backward import Losses
    from neuraldbg.capture.loop.models import Models
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.optimizers import Optimizers
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.parameters.parameters import Params
    from neuraldbg.capture.statistics.raw_rows import Raw
    from neuraldbg.capture.statistics.watched_parameter import Watched


def scalars(scene: Scene, streams: Sequence[Stream], *, closure: bool) -> tuple[dict[str, float], list[Awaited]]:
    """Return the scalars of the step that is about to close, of its first stream if two optimizers stepped, and those
    still pending on a device.
    """
    stream = streams[0] if streams else None
    overflowed, late_overflows = overflows(streams)
    watched = list(scene.optimizers.watched.values())
    loss, late_loss = loss_of(scene.losses.kept(), closure=closure)
    read = not scene.by_hand or scene.params.graded  # a loop that updates by hand may have cleared all gradients
    norm, late_norm = _gradients(scene.params, watched) if read else ({}, None)
    clipped, late_clipped = _clipped(scene.optimizers)
    found = {
        **_passes(scene.models, scene.losses, watched),
        **loss,
        **norm,
        **_optimizers(scene.optimizers, stream),
        **clipped,
        **overflowed,
    }
    return found, [each for each in (late_loss, late_norm, late_clipped, *late_overflows) if each is not None]


def _passes(models: Models, losses: Losses, watched: list[Watched]) -> dict[str, float]:
    found: dict[str, float] = {"backwards": losses.backwards, "forwards": models.forwards, "evals": models.evals}
    if models.passes:
        trained = {w.model for w in watched}
        passes = [p for p in models.passes if p.model.name in trained] or models.passes
        found["eval_layers"] = max(done.eval_layers for done in passes)
        found["batch_size"] = sum(done.batch for done in models.passes)
    return found


def _gradients(params: Params, watched: list[Watched]) -> tuple[dict[str, float], Awaited | None]:
    if not watched:
        return {}, None
    if not params.awaits:
        return {"grad_norm": params.grad_norm(watched)}, None
    rows = [w.grad for w in watched]

    def land(values: list[Any], taken: Raw | None) -> dict[str, float]:
        return {"grad_norm": norm_of(taken.raw, rows)} if taken is not None else {}

    return {}, Awaited((), land)


def _clipped(optimizers: Optimizers) -> tuple[dict[str, float], Awaited | None]:
    if optimizers.clipped is None:
        return {}, None
    norm, limit = optimizers.clipped
    if is_a(norm, Tensor) and placement.lies(norm):
        return {"clip_limit": limit}, Awaited((norm,), lambda values, _: {"unclipped_norm": float(values[0])})
    return {"clip_limit": limit, **({} if norm is None else {"unclipped_norm": float(norm)})}, None


def _optimizers(optimizers: Optimizers, stream: Stream | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if stream is not None and stream.lr is not None:
        found["lr"] = stream.lr
    if stream is not None and stream.stale is not None:
        found["stale_grad"] = stream.stale
    if stream is not None and stream.outside is not None:
        found["outside"] = stream.outside.change
    if optimizers.loss_scale is not None:
        found["loss_scale"], found["skipped"] = optimizers.loss_scale, optimizers.skipped
    return found
