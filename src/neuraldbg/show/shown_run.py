"""The mixin by which a run shows itself in a notebook. What draws it is imported when a notebook asks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis

NOTEBOOK = "neuraldbg.show.notebook"
"""Module that draws runs and views in a notebook, imported when a notebook asks for one."""


class Judged(Protocol):
    """A run that can be explained: a session, or a record read from a file."""

    def diagnose(self) -> Diagnosis: ...


class Shown:
    """The mixin that displays ``NeuralDbg`` and ``Run`` in a notebook."""

    def _repr_html_(self: Judged) -> str:
        html: str = importlib.import_module(NOTEBOOK).run_html(self)
        return html
