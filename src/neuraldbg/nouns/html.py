"""The parts of which each value builds its ``_repr_html_`` for a notebook.

They need no script, no style sheet and nothing from the network. Colours are those of the page around, light or dark;
text of a run is escaped. A value whose HTML fails is shown as plain text: a notebook must not fail because of it.
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
    """Escape words for HTML; control characters, also those that reverse the text direction, become escapes."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(words))
    return html.escape(text)


def shown(make: Callable[[Value], str]) -> Callable[[Value], str]:
    """Wrap a ``_repr_html_`` so that it never raises."""

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
    """Format a probability as HTML: "97% sure"."""
    percent = round(100 * confidence)
    if percent >= 100 and confidence < 1:
        return "&gt;99% sure"
    return "&lt;1% sure" if percent <= 0 < confidence else f"{percent}% sure"


def number_text(value: Any) -> str:
    """Format a float with four digits, an integer with commas, and any other value by ``str``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return "NaN" if math.isnan(value) else f"{float(value):.4g}"


def listed(items: Iterable[str], tag: str = "ul") -> str:
    """Render HTML items as a list; "" if there are none."""
    inner = "".join(f"<li>{item}</li>" for item in items)
    return f'<{tag} style="margin:.2em 0">{inner}</{tag}>' if inner else ""


def div(inner: str) -> str:
    """Wrap a fragment in the box that all values have."""
    return f'<div class="neuraldbg" style="max-width:60em;line-height:1.4">{inner}</div>'
