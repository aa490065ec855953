"""The contract of a tab: a Scene in, the drawings of its panes out.

A tab is one file of ``tabs/`` with ``TAB: Tab`` and one line in ``tabs/__init__.py``. It names its panes once, so that
the page can lay them out, and each pane is drawn again whenever the run or the address changed: a figure replaces a
figure, text replaces text. So a zoom or opened details are not lost.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 (dataclass annotations are read at run time)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene

Part = Literal["figure", "network", "words"]


@dataclass(frozen=True)
class Drawing:
    """The content of a pane at one moment, with title, notes and controls."""

    title: str
    content: Any = None
    """Plotly figure as a dict for ``figure``, elements of a cytoscape graph for ``network``, Dash components for
    ``words``. None if there is nothing to show."""
    notes: tuple[str, ...] = ()
    """Sentences on data that was sampled, binned or left out."""
    empty: str = ""
    """Sentence that says why there is nothing to show, and how to record it; "" if there is content."""
    controls: Any = None
    """Links that change the selection of the pane. None if there are none."""
    key: str = ""
    """Name of large content, equal for equal content; "" to hash the content itself."""


@dataclass(frozen=True)
class Pane:
    """A pane of a tab: its name, its kind of content, and the function that draws it."""

    name: str
    """Name, unique in its tab."""
    part: Part
    """Kind of content."""
    draw: Callable[[Scene], Drawing]
    """Returns the drawing for a scene."""
    wide: bool = False
    """True if the pane takes the whole width of a large screen."""
    side: Literal["left", "right"] | None = None
    """Stack of the pane on a large screen; None for left and right in turn. A narrow one has panes in their order."""


@dataclass(frozen=True)
class Tab:
    """A tab of the page: its id, its title and its panes."""

    id: str
    """Id in the address and in the setting ``charts``."""
    title: str
    panes: tuple[Pane, ...]
