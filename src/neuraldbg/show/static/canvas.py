"""An empty figure with its title and its notes, and how a figure becomes a file.

Needs the extra ``plot``. Draws through matplotlib's objects, never through pyplot, so that a program's own figures and
back end stay as they are.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError, MissingExtra
from neuraldbg.show.format.safe_text import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from neuraldbg.show.static.theme import Theme

FORMATS = (".png", ".svg", ".pdf")
LEAST_IN = (4.0, 3.0)
"""No picture is smaller: its labels would leave no room for it."""
DPI = 150
TITLE_PT, NOTE_PT = 12.0, 8.0
PAD_IN = 0.07
"""Margin in inches around everything that is drawn."""
EDGE_IN = 0.12
"""Distance in inches between the title or a note and the edge of the picture."""


def blank(size_in: tuple[float, float], theme: Theme) -> Figure:
    """Return a figure of the ground's colour. MissingExtra if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
        from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("drawing a run", "plot") from None
    size = max(size_in[0], LEAST_IN[0]), max(size_in[1], LEAST_IN[1])
    layout = ConstrainedLayoutEngine(w_pad=PAD_IN, h_pad=PAD_IN)
    return Figure(figsize=size, layout=layout, facecolor=theme.ground)


def entitle(figure: Figure, title: str, notes: Sequence[str], theme: Theme) -> None:
    """Write the title above the drawing and the notes, in small type, below it."""
    from neuraldbg.show.static.labels import fitted  # noqa: PLC0415 (of the extra)

    width = figure.get_figwidth()
    room, edge = width - 2 * EDGE_IN, EDGE_IN / width
    size = TITLE_PT if width >= 6 else TITLE_PT - 2
    text = fitted(title, room, size, lines=3, bold=True)
    figure.suptitle(text, x=edge, ha="left", fontsize=size, fontweight="bold", color=theme.ink)
    if notes:
        text = "\n".join(fitted(sentence(note), room, NOTE_PT, lines=3) for note in notes)
        figure.supxlabel(text, x=edge, ha="left", fontsize=NOTE_PT, color=theme.muted)


def say(figure: Figure, words: str, theme: Theme) -> None:
    """Write the reason for an empty picture."""
    from neuraldbg.show.static.labels import fitted  # noqa: PLC0415 (of the extra)

    axes = figure.add_subplot()
    axes.set_axis_off()
    text = fitted(sentence(words), figure.get_figwidth() - 1.0, 11, lines=8)
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=11, color=theme.muted, transform=axes.transAxes)


def target(path: Path | str) -> Path:
    """Return where a picture is to go; ConfigError for a suffix that no picture has."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot draw to {str(path)!r}: its name must end in {', '.join(FORMATS)}")
    return path


def write(figure: Figure, path: Path) -> None:
    """Write a picture where ``target`` said; ConfigError if that cannot be written."""
    put(path, encoded(figure, path.suffix[1:].lower()))


def encoded(figure: Figure, kind: str) -> bytes:
    """Return the picture as a file of that kind: ``png``, ``svg`` or ``pdf``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (of the extra)

    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=DPI)
    return file.getvalue()


def put(path: Path, content: bytes) -> Path:
    """Write a file and return where; ConfigError if that cannot be done."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error}") from None
    return path
