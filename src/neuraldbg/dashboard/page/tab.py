"""The contract of a tab: a Scene enters, what its panes show leaves.

A tab is one file of ``tabs/`` with ``TAB: Tab`` and one line in ``tabs/__init__.py``. It names its panes once, so that
the page can lay them out, and each pane draws itself again whenever the run or the address changed: a figure in place
of a figure, words in place of words. What a person does to a pane (zoom, open details) is therefore not lost.
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
    """What a pane shows at a moment."""

    title: str
    content: Any = None
    """For ``figure`` a plotly figure as plain values, for ``network`` the elements of a cytoscape graph, for ``words``
    Dash components."""
    notes: tuple[str, ...] = ()
    """What was sampled, binned or left out, a sentence each."""
    empty: str = ""
    """Why there is nothing to show, and how to record it; "" where there is something."""
    controls: Any = None
    """Links that change what the pane shows."""
    key: str = ""
    """A name of the content that is equal only where the content is, for content that is large; "" asks for none."""


@dataclass(frozen=True)
class Pane:
    """A part of a tab."""

    name: str
    """Unique in its tab."""
    part: Part
    draw: Callable[[Scene], Drawing]
    wide: bool = False
    """Whether it takes the whole width of a large screen."""


@dataclass(frozen=True)
class Tab:
    """A tab."""

    id: str
    """As the address and the setting ``charts`` name it."""
    title: str
    panes: tuple[Pane, ...]
