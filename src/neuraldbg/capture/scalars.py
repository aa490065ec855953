"""The scalars of one step: what the parts of the stage counted and measured, under the names of ``nouns.step``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.capture.losses import Losses
    from neuraldbg.capture.models import Models
    from neuraldbg.capture.optimizers import Optimizers, Stream
    from neuraldbg.capture.params import Watched
    from neuraldbg.capture.scene import Scene


def scalars(scene: Scene, stream: Stream | None, *, closure: bool) -> dict[str, float]:
    """Return the scalars of the step that is about to close: of its first stream where two optimizers stepped."""
    watched = list(scene.optimizers.watched.values())
    return {
        **_passes(scene.models, scene.losses, watched, closure=closure),
        **({"grad_norm": scene.params.grad_norm(watched)} if watched else {}),
        **_optimizers(scene.optimizers, stream),
    }


def _passes(models: Models, losses: Losses, watched: list[Watched], *, closure: bool) -> dict[str, float]:
    found: dict[str, float] = {"backwards": losses.backwards, "forwards": models.forwards, "evals": models.evals}
    loss = losses.loss(closure=closure)
    if loss is not None:
        found["loss"], found["loss_nonfinite"] = loss
    if models.passes:
        trained = {w.model for w in watched}
        passes = [p for p in models.passes if p.model.name in trained] or models.passes
        found["eval_layers"] = max(done.eval_layers for done in passes)
        found["batch_size"] = sum(done.batch for done in models.passes)
    return found


def _optimizers(optimizers: Optimizers, stream: Stream | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if stream is not None and stream.lr is not None:
        found["lr"] = stream.lr
    if stream is not None and stream.stale is not None:
        found["stale_grad"] = stream.stale
    if optimizers.clipped is not None:
        norm, limit = optimizers.clipped
        found["unclipped_norm"], found["clip_limit"] = float(norm), limit
    if optimizers.loss_scale is not None:
        found["loss_scale"], found["skipped"] = optimizers.loss_scale, optimizers.skipped
    return found
