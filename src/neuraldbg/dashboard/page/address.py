"""The address of the page: a query string in, a State out, and back.

The address holds the whole state, so that a link can be shared and the browser's history works. It may hold anything:
invalid parts are ignored and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 4_000
"""Characters of an address at most: addresses of this page are far shorter."""
LARGEST = 10**12
"""Largest step number in an address: no run has more steps."""


@dataclass(frozen=True)
class State:
    """The selection in an address. For a field that is None the diagnosis or the tab chooses a value."""

    run: str | None = None
    """Key of the run in the feed."""
    with_: str | None = None
    """Key of the run to compare with; in the address ``with``."""
    tab: str | None = None
    """Id of the tab."""
    layer: str | None = None
    """Path of the layer."""
    step: int | None = None
    """Number of the step."""
    stat: str | None = None
    """Name of the statistic."""
    kind: str | None = None
    """Kind of sites."""
    scalar: str | None = None
    """Name of the scalar."""
    first: int | None = None
    """First step of the range that is zoomed into. None for the whole run."""
    last: int | None = None
    """Last step of the range that is zoomed into. None for the whole run."""
    sort: str | None = None
    """Column by which a table is sorted; a leading minus reverses the order."""
    smooth: str | None = None
    """Weight by which curves are smoothed, one of ``context.WEIGHTS``. None for the values as they were measured."""
    filter: str | None = None
    """Words that each run of the list has."""
    runs: str | None = None
    """Keys of the runs whose losses are drawn, as ``listed`` writes them. None for those that the list has first."""


NUMBERS = ("step", "first", "last")


def read(search: str | None) -> tuple[State, tuple[str, ...]]:
    """Parse the query string of an address. Return the state, and sentences about the parts that were ignored."""
    query = (search or "").removeprefix("?")
    if len(query) > LONGEST:
        return State(), ("The address is too long: all of it was ignored.",)
    known = {field.name.rstrip("_"): field.name for field in fields(State)}
    found: dict[str, Any] = {}
    problems = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            problems.append(f"The address holds {_shown(name)}, which is not known here.")
        elif name in NUMBERS and not (value.isascii() and value.isdigit() and int(value[:20]) <= LARGEST):
            problems.append(f"The address says {name}={_shown(value)}: a step is a number from 0 on.")
        elif value or name in {"layer", "runs"}:  # the root module has the empty path, and no run may be picked
            found[known[name]] = int(value) if name in NUMBERS else value
    state = State(**found)
    if state.first is not None and state.last is not None and state.first > state.last:
        problems.append(
            f"The address asks for steps {state.first:,} to {state.last:,}, the first of which comes last: "
            "all steps are shown."
        )
        state = replace(state, first=None, last=None)
    return state, tuple(problems)


def written(state: State) -> str:
    """Return the query string for a state. Equal states have equal strings."""
    pairs = ((field.name.rstrip("_"), getattr(state, field.name)) for field in fields(State))
    return "?" + urlencode([(name, str(value)) for name, value in pairs if value is not None])


def listed(keys: Iterable[str]) -> str:
    """Return keys of runs as one text, in which a comma of a key is no separator."""
    return ",".join(quote(key, safe="/ ") for key in keys)


def keys_of(text: str | None) -> tuple[str, ...]:
    """Return the keys of runs in a text of ``listed``, each once."""
    return tuple(dict.fromkeys(unquote(key) for key in (text or "").split(",") if key))


def _shown(text: str) -> str:
    return repr(plain(text if len(text) <= 60 else text[:60] + "…"))
