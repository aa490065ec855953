"""The crash picture: loss, every layer's gradient and activation, and the moment of failure.

Needs the extra ``plot``. Draws through matplotlib's objects, never through pyplot, so that a program's own figures and
back end stay as they are.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError, MissingExtra
from neuraldbg.show.static.panels import draw_layers, draw_loss, mark_failure
from neuraldbg.show.text import plain
from neuraldbg.show.views.crash import Picture, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neuraldbg.nouns import Diagnosis, RunRecord

FORMATS = (".png", ".svg", ".pdf")
SIZE_IN = (10.0, 9.0)
"""Width and height in inches: readable on a page and on a screen."""
DPI = 150
TITLE = 92
"""Characters of a title line that fit the width."""


def crash_figure(run: RunRecord, diagnosis: Diagnosis) -> Figure:
    """Draw three panels over steps: the loss, the gradient norm and the activation rms of every layer.

    Layers are those that were seen in the run. MissingExtra if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("drawing a run", "plot") from None

    shown = picture(run, diagnosis)
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    loss, grad, act = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 3])
    draw_loss(loss, shown)
    draw_layers(grad, shown, shown.gradients, "gradient norm (L2 of each weight)")
    draw_layers(act, shown, shown.activations, "activation (rms)")
    mark_failure((loss, grad, act), shown)
    act.set_xlabel(_x_label(shown))
    margin = max(0.5, 0.02 * shown.span)
    act.set_xlim(shown.first - margin, shown.last + margin)
    act.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    figure.suptitle(_title(diagnosis), fontsize=12, fontweight="bold")
    return figure


def save_crash(run: RunRecord, diagnosis: Diagnosis, path: Path | str) -> None:
    """Write the picture; the suffix .png, .svg or .pdf chooses the format.

    ConfigError for another suffix or a place that cannot be written, MissingExtra if matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot draw to {str(path)!r}: its name must end in {', '.join(FORMATS)}")
    figure = crash_figure(run, diagnosis)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (an extra)

    FigureCanvasAgg(figure)
    try:
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error}") from None


def _title(diagnosis: Diagnosis) -> str:
    """Verdict and summary in lines of about equal length."""
    text = f"{diagnosis.verdict.upper()}: {plain(diagnosis.summary)}"
    lines = -(-len(text) // TITLE)
    wide = max(TITLE // 2, -(-len(text) // lines) + 8)
    return _literal("\n".join(textwrap.wrap(text, wide, max_lines=3, placeholder=" …")))


def _x_label(shown: Picture) -> str:
    notes = [f"steps {shown.first:,} to {shown.last:,} of {shown.steps:,} shown"] if shown.zoomed else []
    if shown.read is not None:
        notes.append(f"layers were read in {shown.read:,} of these steps")
    return f"optimizer step ({'; '.join(notes)})" if notes else "optimizer step"


def _literal(text: str) -> str:
    """Keep matplotlib from reading a dollar sign as mathematics."""
    return text.replace("$", r"\$")
