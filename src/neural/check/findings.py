"""Problems, notes and searches that a check finds, collected while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neural.plan import Note, Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.errors import Problem, Sources, Span
    from neural.layers.parameter import Misuse

MOST_PROBLEMS = 20
"""Further ones follow from these, as a rule."""


class ValueFault(Exception):
    """Raised for a value that cannot be computed; whoever wants the value makes a problem of it."""

    def __init__(self, message: str, span: Span, expected: str = "", suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.expected = expected
        self.suggestion = suggestion


@dataclass
class Findings:
    """Collect what is found in one file, each finding once."""

    sources: Sources
    choose: Callable[[Search], Any] | None = None
    """Return the value of a search, None to take the first choice or the middle of a range."""
    problems: list[Problem] = field(default_factory=list)
    notes: dict[Note, None] = field(default_factory=dict)
    """The notes in their order, each once."""
    searches: dict[Span, Search] = field(default_factory=dict)
    seen: set[tuple[Span, str]] = field(default_factory=set)
    more: int = 0
    """Problems after those."""

    def problem(
        self, message: str, span: Span, *, expected: str = "", suggestion: str = "", trail: tuple[str, ...] = ()
    ) -> None:
        """Add a problem, unless the same one was found at this place: a macro is checked at each use."""
        if (span, message) in self.seen:
            return
        self.seen.add((span, message))
        if self.full:
            self.more += 1
            return
        self.problems.append(self.sources.problem(message, span, expected=expected, suggestion=suggestion, trail=trail))

    @property
    def full(self) -> bool:
        """Return True if further problems are counted only: no hint for them is of use."""
        return len(self.problems) >= MOST_PROBLEMS

    def fault(self, fault: ValueFault, trail: tuple[str, ...] = ()) -> None:
        """Add a value that cannot be computed as a problem, unless that of a macro's argument was said already."""
        if not fault.message:
            return
        self.problem(fault.message, fault.span, expected=fault.expected, suggestion=fault.suggestion, trail=trail)

    def misuse(self, misuse: Misuse, whole: Span, trail: tuple[str, ...] = ()) -> None:
        """Add an argument that does not fit as a problem; `whole` is the place of one that is missing."""
        place = misuse.place if misuse.place is not None else whole
        self.problem(misuse.message, place, expected=misuse.expected, suggestion=misuse.suggestion, trail=trail)

    def note(self, span: Span, text: str, *, approximated: bool = False) -> None:
        """Add a note, once for each line."""
        self.notes[Note(span.line, text, approximated)] = None

    def search(self, kind: str, values: tuple[Any, ...], usual: Any, span: Span) -> Any:
        """Return the value to take for a search, and note it."""
        search = Search(kind, values, usual, span)
        if self.choose is not None:
            search = Search(kind, values, self.choose(search), span)
        self.searches[span] = search
        return search.taken
