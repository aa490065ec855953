"""The contract of a view: what enters is a run, its diagnosis and what to look at; what leaves is a plain value.

A view is computed without torch and without a drawing library. There are many views and few *forms*: a heat map, lines
over steps, bars over layers, a distribution over time, a graph. Whoever draws (``static``, ``terminal``,
``interactive``) knows the forms and no view by name, so that a new view is one file here and one line in
``__init__.py``, and is at once a picture, a text and a figure in the dashboard.

The forms, and what holds for all of them, are in ``show/forms.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import View


@dataclass(frozen=True)
class Choice:
    """What to look at. What is None is chosen by the view: from the diagnosis first, then what is most telling."""

    layer: str | None = None
    """A layer path or alias (``conv2``, ``Dense_1``), as ``layer_alias.resolve`` takes it. UnknownLayer for others."""
    stat: str | None = None
    """A statistic of STATS, ``norm``, or a scalar of SCALARS. ConfigError for others."""
    kind: str | None = None
    """A kind of sites: ``activation``, ``output_grad``, ``param``, ``param_grad``, ``update``, ``input``, ``op``."""
    step: int | None = None
    """0-based."""
    first: int | None = None
    last: int | None = None
    """Only these steps, both included."""
    columns: int = 240
    """At most so many cells over time: more steps than that are put together, and ``notes`` says how."""
    rows: int = 120
    """At most so many layers: of more, the guilty and the worst are kept, and ``notes`` says so."""


class Compute(Protocol):
    """What a member does. UnknownLayer or ConfigError for a choice that the run does not have."""

    def __call__(self, run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> View: ...


@dataclass(frozen=True)
class Member:
    """A view: one file of this folder holds one as ``VIEW``."""

    name: str
    """As ``neuraldbg plot --view`` takes it."""
    title: str
    """What it shows, in a few words: the help and the dashboard say it."""
    compute: Compute
    takes: tuple[str, ...] = ()
    """The fields of Choice that change it."""
