"""A run's JSON document (``neuraldbg export --format session`` or ``json``) back to the RunRecord that it was made of.

The text is read element by element, and tables are packed as in a run file: beside the text and what is packed, no more
than some steps are in memory at a time.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import RunDamaged, RunFileError, RunNotFound, RunTooNew
from neuraldbg.nouns import RUN_SCHEMA, STATS, Layout, RunRecord, StepHistograms, column
from neuraldbg.nouns.run import empty_history
from neuraldbg.record import checked, codec, schema
from neuraldbg.record.block import UNSEEN, Block
from neuraldbg.record.history import StoredHistory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from neuraldbg.nouns import History

_BLOCK = 64
"""Tables that are packed together."""
_FAMILY, _, _VERSION = RUN_SCHEMA.rpartition("/")
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = {"steps": ("step", np.int64), "width": ("width", np.int64), "time": ("time", np.float64),
          "stream": ("stream", np.int64), "applied": ("applied", bool)}  # fmt: skip


def read_session(path: Path) -> RunRecord:
    """Read a run back from its JSON document. RunNotFound, RunDamaged or RunTooNew say what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunNotFound(f"there is no run at {path}: no such file or folder.") from None
    except UnicodeDecodeError:
        raise RunDamaged(f"{path} is no JSON: it is not text in UTF-8.") from None
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        return _record(text, str(path))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise RunDamaged(f"{path} is no whole run ({said}). Export the run once more.") from error


def _record(text: str, name: str) -> RunRecord:
    head: dict[str, Any] = {}
    history: History | None = None
    document = _Document(text)
    for key in document.members():
        if key != "steps":
            head[key] = document.value()
            continue
        _check(head, name)
        history = _history(document.elements(), head["scalars"], head["stats"], len(head["layout"]["sites"]))
    _check(head, name)
    if history is None:
        raise KeyError("steps")
    layout = head["layout"]
    return RunRecord(
        info=schema.info_from(json.dumps(head["run"])),
        layout=Layout(
            layers=schema.layers_from(json.dumps(layout["layers"])),
            sites=tuple(schema.site_from(json.dumps(site)) for site in layout["sites"]),
            edges=schema.edges_from(json.dumps(layout["edges"])),
            called=schema.called_from(json.dumps(layout["called"])),
        ),
        history=history,
        facts=tuple(schema.fact_from(one["step"], one["key"], json.dumps(one["value"])) for one in head["facts"]),
        events=tuple(schema.event_from(json.dumps(event)) for event in head["events"]),
        steps=checked.count(head["recorded"], "recorded"),
        histograms=tuple(_histograms(one, len(layout["sites"])) for one in head.get("histograms", ())),
    )


def _histograms(element: dict[str, Any], sites: int) -> StepHistograms:
    """Read one element of ``histograms``."""
    found = StepHistograms.from_lists(int(element["step"]), element["sites"])
    if not ((found.rows >= 0) & (found.rows < sites)).all():
        raise IndexError("a histogram of a site that the layout does not have")
    return found


def _check(head: dict[str, Any], name: str) -> None:
    said = head.get("schema")
    family, _, version = str(said).rpartition("/")
    if family != _FAMILY:
        what = f"its schema is {said!r}" if said else "it names no schema"
        raise RunDamaged(f"{name} is no run that was exported ({what}). Give a run folder, or a file of: "
                         "neuraldbg export RUN --format session")  # fmt: skip
    if version != _VERSION:
        raise RunTooNew(f"{name} has the schema {said!r}; this NeuralDBG reads {RUN_SCHEMA!r}. Upgrade it: "
                        "pip install -U neuraldbg")  # fmt: skip


class _Document:
    """A JSON object that is read as it comes: a value at a time, or an array an element at a time."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._decoder = json.JSONDecoder(parse_constant=_refuse)

    def members(self) -> Iterator[str]:
        """Give the keys of the object; after each, its value is to be read."""
        yield from self._listed("{", "}", keys=True)
        if self._next():
            raise ValueError("there is more after its end")

    def elements(self) -> Iterator[Any]:
        """Give the elements of the array that comes next."""
        yield from self._listed("[", "]", keys=False)

    def value(self) -> Any:
        """Read what comes next."""
        self._next()
        found, self._at = self._decoder.raw_decode(self._text, self._at)
        return found

    def _listed(self, opening: str, closing: str, *, keys: bool) -> Iterator[Any]:
        self._take(opening)
        if self._next() == closing:
            self._at += 1
            return
        while True:
            found = self.value()
            if keys:
                self._take(":")
            yield found
            if self._next() == closing:
                self._at += 1
                return
            self._take(",")

    def _next(self) -> str:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> None:
        if self._next() != char:
            raise ValueError(f"there is no {char!r} at character {self._at:,}")
        self._at += 1


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _history(steps: Iterator[Any], names: Sequence[str], stats: Sequence[str], sites: int) -> History:
    plain: dict[str, list[Any]] = {name: [] for name in _PLAIN}
    scalars: dict[str, list[float]] = {name: [] for name in names}
    packed: list[tuple[npt.NDArray[np.intp], codec.Blob]] = []
    waiting: list[tuple[int, Any]] = []
    for row, step in enumerate(steps):
        for name, (key, _) in _PLAIN.items():
            plain[name].append(step[key])
        for name, values in scalars.items():
            values.append(float(step["scalars"].get(name, "NaN")))
        if "sites" in step:
            waiting.append((row, step))
        if len(waiting) == _BLOCK:
            packed.append(_packed(waiting, stats, sites))
            waiting.clear()
    if waiting:
        packed.append(_packed(waiting, stats, sites))
    if not plain["steps"]:
        return empty_history()
    return StoredHistory.of(
        {name: np.array(plain[name], dtype) for name, (_, dtype) in _PLAIN.items()},
        {name: np.array(values, np.float64) for name, values in scalars.items()},
        packed,
        sites,
    )


def _packed(
    rows: Sequence[tuple[int, Any]], stats: Sequence[str], sites: int
) -> tuple[npt.NDArray[np.intp], codec.Blob]:
    """Lay tables out and pack them; a statistic that the document does not have is 0."""
    own = [(k, 1 + list(stats).index(stat)) for k, stat in enumerate(STATS) if stat in stats]
    to, come = [k for k, _ in own], [k for _, k in own]
    mean = np.tile(UNSEEN, (len(rows), sites, 1))
    low, high = (mean.copy(), mean.copy()) if any("low" in step for _, step in rows) else (mean, mean)
    for at, (_, step) in enumerate(rows):
        for table, name in ((mean, "sites"), (low, "low"), (high, "high")):
            numbers = np.array(step.get(name, step["sites"]) or np.zeros((0, 1 + len(stats))), np.float64)
            site = numbers[:, 0].astype(np.int64)
            if (site != numbers[:, 0]).any() or (site < 0).any():
                raise ValueError("a site is named by its place in layout.sites")
            table[at, site[:, None], to] = numbers[:, come]
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
