"""The evidence that causes ask for and a record does not have: a record enters, the kinds of it leave, by cause.

A run that was recorded by hand holds only what somebody gave. Its causes are judged on a record that notes what it is
asked for in vain, so that nobody has to keep a list of what causes need.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuraldbg.explain.evidence.case import Case
from neuraldbg.nouns import Layout, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

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

    note: Callable[[str], None]

    def rows(self, kind: str, module: str | None = None, name: str | None = None) -> tuple[int, ...]:
        found = super().rows(kind, module, name)
        if not found and not super().rows(kind):
            self.note(_WORDS.get(kind, kind))
        return found


class _AskedRecord(RunRecord):
    """A record that notes the kinds of facts that it is asked for and does not have."""

    note: Callable[[str], None]

    def facts_of(self, key: str, **match: Any) -> tuple[Fact, ...]:
        found = super().facts_of(key, **match)
        self._asked(key)
        return found

    def versions(self, kind: Any, **match: Any) -> Any:
        found = super().versions(kind, **match)
        self._asked(kind.KEY)
        return found

    def _asked(self, key: str) -> None:
        if not any(fact.key == key for fact in self.facts):
            self.note("the optimizer" if key == "optimizer" else OF_THE_PROGRAM)


class AskedCase(Case):
    """The case of a run that notes for each cause what it asks the record for in vain.

    A reading is computed once for all causes: what was missing for it counts for each cause that uses it.
    """

    def __init__(self, run: RunRecord) -> None:
        self.missing: dict[str, frozenset[str]] = {}
        """Words of what each cause asked for in vain, by its id; empty for one that was judged in full."""
        self._asking: list[set[str]] = [set()]
        """What was asked for in vain: by the cause that is judged, then by each reading that is being computed."""
        self._readings: dict[str, set[str]] = {}
        """What was missing for each reading, by its name."""
        super().__init__(_watched(run, self._note))

    def judged(self, cause: str, finding: object) -> None:
        """End the judging of a cause. One that was found is judged, whatever else it asked for."""
        asked = self._asking[0]
        self.missing[cause] = frozenset() if finding is not None else frozenset(asked)
        asked.clear()

    def _note(self, words: str) -> None:
        self._asking[-1].add(words)

    def __getattribute__(self, name: str) -> Any:
        if name not in _READINGS:
            return super().__getattribute__(name)
        asking = super().__getattribute__("_asking")
        readings = super().__getattribute__("_readings")
        if name in readings:
            value = super().__getattribute__(name)
        else:
            asking.append(set())
            try:
                value = super().__getattribute__(name)
            finally:
                missing = asking.pop()
            readings[name] = missing
        asking[-1] |= readings[name]
        return value


_READINGS = frozenset(
    name for cls in Case.__mro__ for name, member in vars(cls).items() if isinstance(member, cached_property)
)
"""Names of the readings of a case that are computed once."""


def _watched(run: RunRecord, note: Callable[[str], None]) -> RunRecord:
    layout = _AskedLayout(**{field.name: getattr(run.layout, field.name) for field in fields(Layout)})
    object.__setattr__(layout, "note", note)
    values = {field.name: getattr(run, field.name) for field in fields(RunRecord)}
    record = _AskedRecord(**{**values, "layout": layout})
    object.__setattr__(record, "note", note)
    return record
