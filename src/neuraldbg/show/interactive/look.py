"""Colours by meaning, on light and on dark ground, and words of a run as plotly may show them.

Colours of lines are Okabe and Ito's, which every kind of colour vision tells apart; dashes, signs and words say the
same. Cells are viridis, which grows evenly in lightness.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.show.names import short_names
from neuraldbg.show.text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.views.view import Scale


@dataclass(frozen=True)
class Look:
    """One ground and what is drawn on it."""

    name: str
    ground: str
    ink: str
    muted: str
    grid: str
    crowd: str
    """Lines that have no name of their own."""
    strong: str
    """The guilty layer, and what is NaN or infinite."""
    calm: tuple[str, ...]
    """All other lines and bars, in this order."""
    unread: str
    """Cells that were not read."""
    zero: str = "#000000"
    """Cells that are exactly 0, which no log scale has."""
    cells: str = "Viridis"


LOOKS = (
    Look(
        "dark",
        ground="#16181D",
        ink="#F2F2F2",
        muted="#B4B9C4",
        grid="#363A43",
        crowd="#666C78",
        strong="#F0742B",
        calm=("#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#E69F00", "#FFFFFF"),
        unread="#3A3E47",
    ),
    Look(
        "light",
        ground="#FFFFFF",
        ink="#000000",
        muted="#555555",
        grid="#E6E6E6",
        crowd="#B5B5B5",
        strong="#D55E00",
        calm=("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#000000"),
        unread="#DDDDDD",
    ),
)


def look_of(theme: str) -> Look:
    """Return a look by the name of its theme; ConfigError for another one."""
    for look in LOOKS:
        if look.name == theme:
            return look
    raise ConfigError(f"there is no theme {theme!r}: {', '.join(look.name for look in LOOKS)} are")


def safe(words: str) -> str:
    """Return words of a run as plotly shows them unchanged: it would read tags, entities and TeX between dollars."""
    return html.escape(plain(words), quote=False).replace("$", "&#36;")


def full_names(layers: Sequence[str]) -> list[str]:
    """Return names that are safe, and different from each other even where control characters were written out."""
    found: dict[str, int] = {}
    names = []
    for layer in layers:
        name = safe(layer or "(model)")
        found[name] = found.get(name, 0) + 1
        names.append(name if found[name] == 1 else f"{name} ({found[name]})")
    return names


def tick_names(layers: Sequence[str], guilty: Sequence[str], look: Look) -> list[str]:
    """Return short names for the ticks of an axis; the guilty are bold and have a sign."""
    short = short_names(layers)
    return [
        f'<b style="color:{look.strong}">▶ {safe(short[layer])}</b>' if layer in guilty else safe(short[layer])
        for layer in layers
    ]


def axis_title(scale: Scale) -> str:
    """Return the label of an axis with its unit."""
    return safe(f"{scale.label} ({scale.unit})" if scale.unit else scale.label)


def faded(colour: str, share: float) -> str:
    """Return a colour like ``#0072B2`` as one that is seen through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"
