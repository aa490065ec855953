"""The reading of a run's JSON document (``neuraldbg export --format session`` or ``json``) as a RunRecord.

The file is read element by element, and tables are packed as in a run file: only a few steps are in memory unpacked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from neuraldbg.errors import RunDamaged, RunTooNew
from neuraldbg.nouns import BINS, RUN_SCHEMA, STATS, Layout, RunRecord, StepHistograms, column
from neuraldbg.nouns.run import empty_history
from neuraldbg.record import codec, schema, validation
from neuraldbg.record.crash_dump import is_dump
from neuraldbg.record.document_errors import explained
from neuraldbg.record.history import StoredHistory, check_rows
from neuraldbg.record.row_block import UNSEEN, Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from neuraldbg.nouns import Event, Fact, History
    from neuraldbg.record.validation import Check

_BLOCK = 64
"""Tables in one packed block."""
_FAMILY, _, _VERSION = RUN_SCHEMA.rpartition("/")
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN: dict[str, tuple[str, Check, Any]] = {
    "steps": ("step", validation.step, np.int64),
    "width": ("width", validation.step, np.int64),
    "time": ("time", validation.number, np.float64),
    "stream": ("stream", validation.step, np.int64),
    "applied": ("applied", validation.flag, bool),
}
_CHUNK = 1 << 20
"""Characters read from the file at once."""
_WORD = 16
"""Characters of the longest escape or word of JSON, and some more: the decoder reports one that is cut as an error."""
_PACKED = 32 << 20
"""Bytes of unpacked tables in memory at once."""
_ROWS = 1 << 22
"""Steps at most."""
_MISSING = float("nan")


def read_session(path: Path) -> RunRecord:
    """Read a run from its JSON document. Raises RunNotFound, RunDamaged, RunTooNew, or RunFileError if the file cannot
    be read.
    """
    if is_dump(path):
        raise RunDamaged(f"{path} is a crash dump, the last steps of a run: draw it with neuraldbg plot {path}, or "
                         "give the run folder that it lies in.")  # fmt: skip
    with (
        explained(path, missing="run", damaged="is no whole run ({why}). Export the run once more."),
        path.open(encoding="utf-8", newline="") as opened,
    ):
        return _record(opened, str(path))


def _record(opened: TextIO, name: str) -> RunRecord:
    head: dict[str, Any] = {}
    passed: dict[str, str] = {}
    document = _Document(opened)
    # Lists are read as they come; the steps need the layout and the names before them, so these are checked first.
    for key in document.members():
        if key in head:
            raise ValueError(f"{validation.short(key)} is there twice")
        if key in _LISTS or key == "steps":
            if key == "steps" or "schema" in head:
                _check(head, name)
            head[key] = _READ[key](document, head, passed)
        else:
            head[key] = _HEAD.get(key, _any)(document.value())
    _check(head, name)
    history, layout, histograms = head["steps"], head["layout"], head.get("histograms", ())
    if any((one.rows >= len(layout.sites)).any() for one in histograms):
        raise IndexError("a histogram of a site that the layout does not have")
    return RunRecord(
        info=schema.noted(head["run"], passed),
        layout=layout,
        history=history,
        facts=head["facts"],
        events=head["events"],
        steps=head["recorded"],
        histograms=histograms,
    )


def _layout(raw: Any) -> Layout:
    """Read the member ``layout``."""
    parts = validation.mapping(raw, "layout")
    return Layout(
        layers=schema.layers_of(parts["layers"]),
        sites=tuple(schema.site_of(site) for site in validation.items(parts["sites"], "layout.sites")),
        edges=schema.edges_of(parts["edges"]),
        called=schema.called_of(parts["called"]),
    )


def _facts(document: _Document, head: Mapping[str, Any], passed: dict[str, str]) -> tuple[Fact, ...]:
    """Read the member ``facts``."""
    del head
    found = []
    for one in document.elements():
        try:
            found.append(schema.fact_of(one["step"], one["key"], one["value"]))
        except validation.Lacking as error:
            passed.setdefault(str(one["key"]), str(error))
    return tuple(found)


def _events(document: _Document, head: Mapping[str, Any], passed: dict[str, str]) -> tuple[Event, ...]:
    """Read the member ``events``."""
    del head, passed
    return tuple(schema.event_of(event) for event in document.elements())


def _histograms(document: _Document, head: Mapping[str, Any], passed: dict[str, str]) -> tuple[StepHistograms, ...]:
    """Read the member ``histograms``."""
    del passed
    most = len(head["layout"].sites) * (BINS + 3) if "layout" in head else 0
    return tuple(
        StepHistograms.from_lists(validation.step(element["step"], "histograms.step"), element["sites"])
        for element in document.elements(most)
    )


def _steps(document: _Document, head: Mapping[str, Any], passed: dict[str, str]) -> History:
    """Read the member ``steps``."""
    del passed
    sites, stats = len(head["layout"].sites), head["stats"]
    history = _history(document.elements(3 * sites * (len(stats) + 2)), head["scalars"], stats, sites)
    check_rows(history)
    return history


def _names(most: int) -> Callable[[Any], tuple[str, ...]]:
    """Return a check of a list of at most ``most`` names, all different."""

    def read(raw: Any) -> tuple[str, ...]:
        found = validation.texts(raw, "names")
        if len(found) > most or len(set(found)) < len(found):
            raise ValueError(f"{len(found):,} names, of which {len(set(found)):,} differ, where {most:,} is the most")
        return found

    return read


def _any(raw: Any) -> Any:
    """Return the value of an unknown member unchecked: it is never used."""
    return raw


_READ = {"facts": _facts, "events": _events, "histograms": _histograms, "steps": _steps}
_LISTS = ("facts", "events", "histograms")
_HEAD: dict[str, Callable[[Any], Any]] = {
    "run": schema.info_of,
    "recorded": lambda raw: validation.step(raw, "recorded"),
    "layout": _layout,
    "stats": _names(64),
    "scalars": _names(1024),
}
"""Checks of the members whose values are read as a whole."""


def _check(head: dict[str, Any], name: str) -> None:
    said = head.get("schema")
    family, _, version = str(said).rpartition("/")
    if family != _FAMILY:
        what = f"its schema is {said!r}" if said else "it names no schema"
        raise RunDamaged(f"{name} is not an exported run ({what}). Give a run folder, or a file of: "
                         "neuraldbg export RUN --format session")  # fmt: skip
    if version != _VERSION:
        raise RunTooNew(f"{name} has the schema {said!r}; this NeuralDBG reads {RUN_SCHEMA!r}. Read it "
                        "with the version that wrote it, or a later one.")  # fmt: skip


@contextlib.contextmanager
def _collecting_later() -> Iterator[None]:
    """Suspend Python's garbage collector: among a million lists that are just being made there is no garbage, and the
    search for it takes three times as long as their making.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Document:
    """A JSON object in a file, read one value, or one element of an array, at a time.

    In memory are the value that is read, and up to a megabyte more.
    """

    def __init__(self, opened: TextIO) -> None:
        self._file = opened
        self._text, self._at = "", 0
        self._whole = False
        """True once the file was read to its end."""

    def members(self) -> Iterator[str]:
        """Yield the keys of the object. The caller reads the value after each."""
        yield from self._listed("{", "}", keys=True)
        if self._next():
            raise ValueError("there is more after its end")

    def elements(self, most: int = 0) -> Iterator[Any]:
        """Yield the elements of the array that comes next, each of which holds about ``most`` values at most."""
        yield from self._listed("[", "]", keys=False, most=most)

    def value(self, most: int = 0) -> Any:
        """Read the next value. Raises ValueError if it holds more values than ``most`` and than any text of ours."""
        self._next()
        # The decoder needs a value as a whole: more of the file is read until the error is not at the end of the text.
        while True:
            try:
                with _collecting_later():
                    found, end = validation.DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._whole or not self._cut(error):
                    raise
            else:
                if end < len(self._text) or self._whole:  # a number could go on
                    read, self._at = self._text[self._at : end], end
                    return validation.encodable(found, read)
            self._take_more(len(self._text) - self._at)
            values = sum(self._text.count(sign, self._at) for sign in ",[{")
            if values > max(most, validation.MOST_VALUES) + _CHUNK:
                raise ValueError(f"a value holds {values:,} others")

    def _cut(self, error: json.JSONDecodeError) -> bool:
        """Return True if more text could resolve the error: it is at the end of the text, or in a long string."""
        left = len(self._text) - error.pos
        return left < _WORD or (error.msg.startswith("Unterminated") and left < _WORD * validation.MOST_TEXT)

    def _take_more(self, least: int = 0) -> None:
        more = self._file.read(max(_CHUNK, least))
        self._text, self._at = self._text[self._at :] + more, 0
        self._whole = not more

    def _listed(self, opening: str, closing: str, *, keys: bool, most: int = 0) -> Iterator[Any]:
        self._take(opening)
        if self._next() == closing:
            self._at += 1
            return
        while True:
            found = self.value(most)
            if keys:
                validation.text(found, "a key")
                self._take(":")
            yield found
            if self._next() == closing:
                self._at += 1
                return
            self._take(",")

    def _next(self) -> str:
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._whole:
                return self._text[self._at : self._at + 1]
            self._take_more()

    def _take(self, char: str) -> None:
        if self._next() != char:
            raise ValueError(f"there is no {char!r} before {validation.short(self._text[self._at :][:20])}")
        self._at += 1


def _history(steps: Iterator[Any], names: Sequence[str], stats: Sequence[str], sites: int) -> History:
    """Build the history of the steps, packing their tables block by block."""
    plain: dict[str, list[Any]] = {name: [] for name in _PLAIN}
    scalars: dict[str, list[float]] = {name: [] for name in names}
    packed: list[tuple[npt.NDArray[np.intp], codec.Blob]] = []
    waiting: list[tuple[int, Any]] = []
    # Tables are packed as they come, so that at most ``together`` of them are in memory unpacked.
    together = max(1, min(_BLOCK, _PACKED // max(1, 3 * 8 * sites * len(STATS))))
    for number, step in enumerate(steps):
        if number == _ROWS:
            raise ValueError(f"there are more than {_ROWS:,} steps")
        for name, (key, check, _) in _PLAIN.items():
            plain[name].append(check(step[key], f"steps.{key}"))
        known = validation.mapping(step["scalars"], "steps.scalars")
        for name, values in scalars.items():
            values.append(validation.real(known[name], f"steps.scalars.{name}") if name in known else _MISSING)
        if "sites" in step:
            waiting.append((number, step))
        if len(waiting) == together:
            packed.append(_packed(waiting, stats, sites))
            waiting.clear()
    if waiting:
        packed.append(_packed(waiting, stats, sites))
    if not plain["steps"]:
        return empty_history()
    return StoredHistory.of(
        {name: np.array(plain[name], dtype) for name, (_, _, dtype) in _PLAIN.items()},
        {name: np.array(values, np.float64) for name, values in scalars.items()},
        packed,
        sites,
    )


def _packed(
    rows: Sequence[tuple[int, Any]], stats: Sequence[str], sites: int
) -> tuple[npt.NDArray[np.intp], codec.Blob]:
    """Pack the tables of some steps into one block. Statistics that the document does not have are ``UNSEEN``: 0, NaN
    for moments.
    """
    # Columns are placed by name: the document may be of a version with other statistics.
    own = [(k, 1 + list(stats).index(stat)) for k, stat in enumerate(STATS) if stat in stats]
    to, come = [k for k, _ in own], [k for _, k in own]
    mean = np.tile(UNSEEN, (len(rows), sites, 1))
    low, high = (mean.copy(), mean.copy()) if any("low" in step for _, step in rows) else (mean, mean)
    for at, (_, step) in enumerate(rows):
        for table, name in ((mean, "sites"), (low, "low"), (high, "high")):
            numbers = np.array(step.get(name, step["sites"]) or np.zeros((0, 1 + len(stats))), np.float64)
            named = numbers[:, 0]
            if not ((named >= 0) & (named < sites) & (named == np.floor(named))).all():
                raise ValueError("a site is named by its place in layout.sites")
            table[at, named.astype(np.intp)[:, None], to] = numbers[:, come]
    # Only the tables of this block are read; the rows of time are in ``_history``.
    count, ones = len(rows), np.ones(len(rows), np.int64)
    block = Block(
        ordinal=np.arange(count),
        turn=np.arange(count),
        folded=ones,
        steps=np.arange(count),
        width=ones,
        time=np.zeros(count),
        stream=ones,
        applied=ones.astype(bool),
        mean=mean,
        low=low,
        high=high,
        seen=(high[:, :, column("count")] > 0).astype(np.float32),
        names=(),
        scalars=np.zeros((count, 0)),
        measured=np.zeros((count, 0)),
    )
    return np.array([row for row, _ in rows], np.intp), codec.opened(codec.encode(block))
