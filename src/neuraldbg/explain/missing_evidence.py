"""The evidence that causes ask for and a record does not have: a record enters, the kinds of it leave, by cause.

A run that was recorded by hand holds only what somebody gave. Each cause is judged on a record that notes what it is
asked for in vain, so that nobody has to keep a list of what causes need.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain.causes import CAUSES
from neuraldbg.explain.evidence.case import Case
from neuraldbg.nouns import Layout, RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Fact

_WORDS = {
    "activation": "outputs of layers",
    "output_grad": "gradients of outputs",
    "param": "parameters",
    "param_grad": "gradients of parameters",
    "update": "updates of parameters",
    "input": "inputs",
    "op": "the operations of the loss",
}
"""Kinds of sites, in words."""
OF_THE_PROGRAM = "the program itself"
"""Words for all that is read from the program and its graphs, and not from numbers."""


class _AskedLayout(Layout):
    """A layout that notes the kinds of sites that it is asked for and does not have."""

    asked: set[str]

    def rows(self, kind: str, module: str | None = None, name: str | None = None) -> tuple[int, ...]:
        found = super().rows(kind, module, name)
        if not found and not super().rows(kind):
            self.asked.add(_WORDS.get(kind, kind))
        return found


class _AskedRecord(RunRecord):
    """A record that notes the kinds of facts that it is asked for and does not have."""

    asked: set[str]

    def facts_of(self, key: str, **match: Any) -> tuple[Fact, ...]:
        found = super().facts_of(key, **match)
        self._note(key)
        return found

    def versions(self, kind: Any, **match: Any) -> Any:
        found = super().versions(kind, **match)
        self._note(kind.KEY)
        return found

    def _note(self, key: str) -> None:
        if not any(fact.key == key for fact in self.facts):
            self.asked.add("the optimizer" if key == "optimizer" else OF_THE_PROGRAM)


def missing_evidence(run: RunRecord) -> Mapping[str, frozenset[str]]:
    """Return for each cause what it asked for in vain, in words; empty for one that was judged in full. A cause that
    was found is judged, whatever else it asked for.
    """
    found: dict[str, frozenset[str]] = {}
    for member in CAUSES:
        asked: set[str] = set()
        case = Case(_watched(run, asked))
        with np.errstate(all="ignore"):
            try:
                judged = member.judge(case)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration):
                judged = None
        found[member.id] = frozenset() if judged is not None else frozenset(asked)
    return found


def _watched(run: RunRecord, asked: set[str]) -> RunRecord:
    layout = _AskedLayout(**{field.name: getattr(run.layout, field.name) for field in fields(Layout)})
    object.__setattr__(layout, "asked", asked)
    values = {field.name: getattr(run, field.name) for field in fields(RunRecord)}
    record = _AskedRecord(**{**values, "layout": layout})
    object.__setattr__(record, "asked", asked)
    return record
