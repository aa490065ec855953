"""The parts of a value's HTML for a notebook, of which each value puts its own ``_repr_html_`` together.

No script, no style sheet, nothing from the net. Colours are those of the page around it, light or dark; words of a run
are escaped. A value that cannot be shown so is shown as plain text: a notebook must not fail over how it looks.
"""

from __future__ import annotations

import functools
import html
import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


Value = TypeVar("Value")

DIM = "opacity:.75"


def safe(words: object) -> str:
    """Return words as HTML text: control characters and marks that turn lines around are written as escapes."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(words))
    return html.escape(text)


def shown(make: Callable[[Value], str]) -> Callable[[Value], str]:
    """Return a ``_repr_html_`` that never raises."""

    @functools.wraps(make)
    def careful(value: Value) -> str:
        try:
            return make(value)
        except Exception:  # noqa: BLE001 (what is odd in a value is for its user to see, not for the notebook to fail at)
            try:
                return f"<pre>{safe(value)}</pre>"
            except Exception:  # noqa: BLE001 (nor may its own words fail)
                return f"<pre>{safe(object.__repr__(value))}</pre>"

    return careful


def percent(confidence: float) -> str:
    """Return a probability as HTML: "97% sure"."""
    percent = round(100 * confidence)
    if percent >= 100 and confidence < 1:
        return "&gt;99% sure"
    return "&lt;1% sure" if percent <= 0 < confidence else f"{percent}% sure"


def number_text(value: Any) -> str:
    """Return a number with four digits, or with commas if it is whole; anything else as its ``str``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return "NaN" if math.isnan(value) else f"{float(value):.4g}"


def listed(items: Iterable[str], tag: str = "ul") -> str:
    """Return HTML items as a list, empty if there are none."""
    inner = "".join(f"<li>{item}</li>" for item in items)
    return f'<{tag} style="margin:.2em 0">{inner}</{tag}>' if inner else ""


def div(inner: str) -> str:
    """Return a fragment in the one box that all values have."""
    return f'<div class="neuraldbg" style="max-width:60em;line-height:1.4">{inner}</div>'
