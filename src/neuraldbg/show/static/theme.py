"""Colours by meaning, on light and on dark ground.

Those of lines are Okabe and Ito's, which every kind of colour vision tells apart (Okabe & Ito 2008, "Color Universal
Design"); cells are viridis, which grows evenly in lightness. Whatever a colour says, a style, a hatch, a sign or a word
says too, so that a grey print is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.errors import ConfigError


@dataclass(frozen=True)
class Theme:
    """The colours of one background and of everything drawn on it."""

    name: str
    ground: str
    ink: str
    """Colour of titles, labels and the moment of failure."""
    muted: str
    """Colour of small type."""
    grid: str
    crowd: str
    """Lines that have no name of their own."""
    strong: str
    """The guilty layer, and nothing else."""
    bad: str
    """Values that are NaN or infinite."""
    calm: tuple[str, ...]
    """All other lines and bars, in this order."""
    unread: tuple[str, str]
    """Ground and hatch of cells that were not read."""
    zero: str
    """Cells that are exactly zero, which no log scale has."""
    cells: str = "viridis"
    """Name of a map of colours."""


LIGHT = Theme(
    "light",
    ground="#FFFFFF",
    ink="#000000",
    muted="#555555",
    grid="#E6E6E6",
    crowd="#B5B5B5",
    strong="#D55E00",
    bad="#D55E00",
    calm=("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#000000"),
    unread=("#EDEDED", "#BDBDBD"),
    zero="#000000",
)
DARK = Theme(
    "dark",
    ground="#16181D",
    ink="#F2F2F2",
    muted="#B4B9C4",
    grid="#363A43",
    crowd="#666C78",
    strong="#F0742B",
    bad="#F0742B",
    calm=("#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#E69F00", "#FFFFFF"),
    unread=("#2A2D34", "#5A606C"),
    zero="#000000",
)
THEMES = (DARK, LIGHT)


def theme_of(name: str | Theme) -> Theme:
    """Return a theme by its name, or the one that is given; ConfigError for a name that none has."""
    if isinstance(name, Theme):
        return name
    for theme in THEMES:
        if theme.name == name:
            return theme
    raise ConfigError(f"there is no theme {name!r}: choose one of {', '.join(theme.name for theme in THEMES)}")
