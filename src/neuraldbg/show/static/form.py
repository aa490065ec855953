"""The contract of a form: a View of its kind and a theme enter, and are drawn on a figure.

A member is one file of this folder that holds ``FORM``, registered in ``draw.py``. Forms import matplotlib, and are
therefore imported only once something is to be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from neuraldbg.show.forms import View
    from neuraldbg.show.static.theme import Theme


@dataclass(frozen=True)
class Form:
    """The functions that size and draw one kind of view."""

    of: type[View]
    size: Callable[[Any], tuple[float, float]]
    """The width and height in inches that suit a view."""
    draw: Callable[[Figure, Any, Theme], None]
    """Draw a view that is not empty; its title and its notes are there already."""
