"""The contract of a view: a run, its diagnosis and a choice enter; a plain value leaves.

A view is computed without torch and without a drawing library. There are many views and few *forms*: a heat map, lines
over steps, bars over layers, a distribution over time, a graph. The drawing packages (``static``, ``terminal``,
``interactive``) know the forms and no view by name, so a new view is one file here and one line in ``__init__.py``, and
is at once a picture, a text and a figure in the dashboard.

The forms, and the rules for all of them, are in ``show/forms.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import View


@dataclass(frozen=True)
class Choice:
    """The choice of layer, statistic and steps for a view; the view chooses fields that are None from the diagnosis, or
    by what shows most.
    """

    layer: str | None = None
    """A layer path or alias (``conv2``, ``Dense_1``), as ``layer_alias.resolve`` takes it. UnknownLayer for others."""
    stat: str | None = None
    """A statistic of STATS, ``norm``, a scalar of SCALARS, or ``metric/NAME``. ConfigError for others."""
    kind: str | None = None
    """A kind of sites: ``activation``, ``output_grad``, ``param``, ``param_grad``, ``update``, ``input``, ``op``."""
    step: int | None = None
    """Step, counted from 0; None if the view chooses it."""
    first: int | None = None
    last: int | None = None
    """First and last step that are shown; None for all."""
    columns: int = 240
    """Largest number of cells over time: more steps are binned, and ``notes`` says how."""
    rows: int = 120
    """Largest number of layers: of more, the guilty and the worst are kept, and ``notes`` says so."""


class Compute(Protocol):
    """Function of a member that computes a view; a choice that the run does not have raises UnknownLayer or
    ConfigError.
    """

    def __call__(self, run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> View: ...


@dataclass(frozen=True)
class Member:
    """A registered view; each file of this folder has one as ``VIEW``."""

    name: str
    """Name of the view for ``neuraldbg plot --view``."""
    title: str
    """Description in a few words, for the help and the dashboard."""
    compute: Compute
    takes: tuple[str, ...] = ()
    """Names of the fields of Choice that change the view."""
