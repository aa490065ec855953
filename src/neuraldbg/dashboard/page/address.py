"""What the address says: a query string enters, what to look at leaves, and back.

The address holds the whole state, so that a link can be shared and the browser's own history works. It may hold
anything: what cannot be read is left out and said.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from neuraldbg.show.format.safe_text import plain

LONGEST = 4_000
"""Characters of an address that are read: nothing that this page writes comes near."""
LARGEST = 10**12
"""No run has more steps."""


@dataclass(frozen=True)
class State:
    """What to look at. What is None is chosen by the diagnosis, or by what is most telling."""

    run: str | None = None
    """A key of the feed."""
    with_: str | None = None
    """That of the run to compare with; in the address ``with``."""
    tab: str | None = None
    layer: str | None = None
    step: int | None = None
    stat: str | None = None
    kind: str | None = None
    scalar: str | None = None
    first: int | None = None
    last: int | None = None
    """The range of steps that is zoomed into."""
    sort: str | None = None
    """The column by which a table is sorted; a minus before it turns the order around."""


NUMBERS = ("step", "first", "last")


def read(search: str | None) -> tuple[State, tuple[str, ...]]:
    """Read the query string of an address; the sentences say what was left out."""
    query = (search or "").removeprefix("?")
    if len(query) > LONGEST:
        return State(), ("The address is too long to be one of this page: all of it was left out.",)
    known = {field.name.rstrip("_"): field.name for field in fields(State)}
    found: dict[str, Any] = {}
    problems = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            problems.append(f"The address holds {_shown(name)}, which means nothing here.")
        elif name in NUMBERS and not (value.isascii() and value.isdigit() and int(value[:20]) <= LARGEST):
            problems.append(f"The address says {name}={_shown(value)}: a step is a number from 0 on.")
        elif value or name == "layer":  # the model itself has the empty path
            found[known[name]] = int(value) if name in NUMBERS else value
    state = State(**found)
    if state.first is not None and state.last is not None and state.first > state.last:
        problems.append(
            f"The address asks for steps {state.first:,} to {state.last:,}, which is backwards: all are shown."
        )
        state = replace(state, first=None, last=None)
    return state, tuple(problems)


def written(state: State) -> str:
    """Return the query string for a state: the shortest, and always the same one."""
    pairs = ((field.name.rstrip("_"), getattr(state, field.name)) for field in fields(State))
    return "?" + urlencode([(name, str(value)) for name, value in pairs if value is not None])


def _shown(text: str) -> str:
    return repr(plain(text if len(text) <= 60 else text[:60] + "…"))
