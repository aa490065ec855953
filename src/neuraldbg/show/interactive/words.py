"""Words of a run as plotly may show them. Colours are those of all pictures (``static/theme.py``)."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.format.short_names import short_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.forms import Scale
    from neuraldbg.show.static.theme import Theme


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


def tick_names(layers: Sequence[str], guilty: Sequence[str], theme: Theme) -> list[str]:
    """Return short names for the ticks of an axis; the guilty are bold and have a sign."""
    short = short_names(layers)
    return [
        f'<b style="color:{theme.strong}">▶ {safe(short[layer])}</b>' if layer in guilty else safe(short[layer])
        for layer in layers
    ]


def axis_title(scale: Scale) -> str:
    """Return the label of an axis with its unit."""
    return safe(f"{scale.label} ({scale.unit})" if scale.unit else scale.label)


def faded(colour: str, share: float) -> str:
    """Return a colour like ``#0072B2`` as one that is seen through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"
