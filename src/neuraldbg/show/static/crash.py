"""The crash picture: loss, every layer's gradient and activation, and the moment of failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.static.canvas import blank, entitle, target, write
from neuraldbg.show.static.theme import theme_of
from neuraldbg.show.views.averaged import mean_note
from neuraldbg.show.views.crash import Picture, picture

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from neuraldbg.nouns import Diagnosis, RunRecord

SIZE_IN = (10.0, 9.0)
"""Width and height in inches: readable on a page and on a screen."""


def crash_figure(
    run: RunRecord,
    diagnosis: Diagnosis,
    *,
    size_in: tuple[float, float] = SIZE_IN,
    theme: str = "light",
    layer: str | None = None,
) -> Figure:
    """Draw three panels over steps: the loss, the gradient norm and the activation rms of every layer, or of one.

    Layers are those that were seen in the run; an unknown one raises UnknownLayer. MissingExtra if matplotlib is not
    installed.
    """
    look = theme_of(theme)
    figure = blank(size_in, look)
    from neuraldbg.show.static.axis import whole_steps  # noqa: PLC0415 (of the extra)
    from neuraldbg.show.static.panels import draw_layers, draw_loss, mark_failure  # noqa: PLC0415

    shown = picture(run, diagnosis, layer)
    gradients, activations = shown.lines(shown.gradients), shown.lines(shown.activations)
    loss, grad, act = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 3])
    draw_loss(loss, shown, look)
    draw_layers(grad, shown, gradients, "gradient norm (L2 of each layer)", look)
    draw_layers(act, shown, activations, f"activation ({shown.activation})", look)
    act.set_xlabel(x_label(shown))
    margin = max(0.5, 0.02 * shown.span)
    act.set_xlim(shown.first - margin, shown.last + margin)
    whole_steps(act)
    mark_failure((loss, grad, act), shown, look)
    act.set_xlim(shown.first - margin, shown.last + margin)
    notes = (run.info.note, shown.missing, mean_note((*shown.losses, *gradients, *activations)))
    entitle(figure, title_of(shown, diagnosis), tuple(filter(None, notes)), look)
    return figure


def save_crash(
    run: RunRecord, diagnosis: Diagnosis, path: Path | str, *, theme: str = "light", layer: str | None = None
) -> None:
    """Write the picture; the suffix .png, .svg or .pdf chooses the format.

    ConfigError for another suffix or a place that cannot be written, MissingExtra if matplotlib is not installed.
    """
    where = target(path)
    write(crash_figure(run, diagnosis, theme=theme, layer=layer), where)


def title_of(shown: Picture, diagnosis: Diagnosis) -> str:
    """Return the verdict and its summary, with the layer if only one is shown."""
    of = f" · layer {shown.layer or '(the whole model)'}" if shown.layer is not None else ""
    return f"{diagnosis.verdict.upper()}{of}: {diagnosis.summary}"


def x_label(shown: Picture) -> str:
    """Return the words below the axis of steps."""
    notes = [f"steps {shown.first:,} to {shown.last:,} of {shown.steps:,} shown"] if shown.zoomed else []
    if shown.read is not None:
        notes.append(f"layers were read in {shown.read:,} of these steps")
    return f"optimizer step ({'; '.join(notes)})" if notes else "optimizer step"
