"""The reading of a crash dump, such as ``crash.json`` or a file of ``RingBuffer.save_json``, as a RunRecord.

A dump has the loss and one norm for each layer of its steps: the record has these numbers and no others.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import RunDamaged
from neuraldbg.nouns import STATS, Event, History, Layer, Layout, RunInfo, RunRecord, Site, column
from neuraldbg.nouns.run import Outcome
from neuraldbg.record import validation
from neuraldbg.record.document_errors import explained
from neuraldbg.record.row_block import UNSEEN, to_float32

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KINDS = {"grad_norms": "param_grad", "act_norms": "activation"}
"""Kind of the sites whose norms a member of a row has."""
_HEAD = 1 << 16
_MOST = 256 << 20
"""Bytes of a dump at most."""
_NORMS = 1 << 24
"""Norms of a dump at most."""
_DAMAGED = (
    "is no whole crash dump ({why}). One is "
    '{"metadata": {...}, "history": [{"step": 0, "loss": 0.7, "grad_norms": {"fc1": 0.1}, "act_norms": {}}]}.'
)
_MEMBER = re.compile(r'"(grad_norms|act_norms|captured_steps)"\s*:')


def is_dump(path: Path) -> bool:
    """Return True if a file looks like a crash dump. False for a folder, or a file that cannot be read."""
    try:
        with path.open("rb") as opened:
            head = opened.read(_HEAD).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except OSError:
        return False
    return head[:1] in ("{", "[") and '"schema"' not in head and _MEMBER.search(head) is not None


def read_dump(path: Path) -> tuple[RunRecord, str]:
    """Read a crash dump. Return its steps as a record, and the reason of the dump, "" if it names none.

    Each norm is the root mean square of a tensor of one element, whose L2 norm it is. Raises RunNotFound, RunDamaged,
    or RunFileError if the file cannot be read.
    """
    with explained(path, missing="crash dump", damaged=_DAMAGED):
        if path.stat().st_size > _MOST:
            raise RunDamaged(f"{path} is larger than any crash dump.")
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        return _record(document, path.stat().st_mtime)


def _record(document: Any, written: float) -> tuple[RunRecord, str]:
    rows = document if isinstance(document, list) else document["history"]
    meta = {} if isinstance(document, list) else validation.mapping(document.get("metadata") or {}, "metadata")
    read = [_Row(raw, number) for number, raw in enumerate(validation.items(rows, "history"))]
    found = sorted(read, key=lambda row: row.step)
    if len({row.step for row in found}) < len(found):
        raise ValueError("a step is there twice")
    sites = list(dict.fromkeys(key for row in found for key in row.norms))
    if len(sites) * len(found) > _NORMS:
        raise ValueError(f"{len(sites):,} layers over {len(found):,} steps")
    layers = list(dict.fromkeys(path for _, path in sites))
    layout = Layout(
        layers=tuple(Layer(path, "layer", "", leaf=True) for path in layers),
        sites=tuple(Site(kind, path, 0, "weight" if kind == "param_grad" else "") for kind, path in sites),
        called=frozenset(layers),
    )
    reason = meta.get("trigger_reason")
    started = float(found[0].time or written) if found else written
    steps = found[-1].step + 1 if found else 0
    return (
        RunRecord(
            info=RunInfo(started=started, coverage={"dump": True}, outcome=Outcome("completed")),
            layout=layout,
            history=_history(found, sites, started),
            events=_first_nonfinite(found),
            steps=steps,
        ),
        validation.text(reason, "trigger_reason") if reason else "",
    )


class _Row:
    """One step of a dump, checked."""

    def __init__(self, raw: Any, number: int) -> None:
        row = validation.mapping(raw, "history")
        self.step: int = validation.step(row.get("step", number), "step")
        loss = row.get("loss")
        self.loss = None if loss is None else float(validation.real(loss, "loss"))
        time = row.get("timestamp")
        self.time = None if time is None else validation.moment(time, "timestamp")
        self.norms = {
            (kind, validation.text(layer, member)): float(validation.real(norm, member))
            for member, kind in KINDS.items()
            for layer, norm in validation.mapping(row.get(member) or {}, member).items()
            if norm is not None
        }


def _history(rows: Sequence[_Row], sites: Sequence[tuple[str, str]], started: float) -> History:
    tables = []
    place = {key: i for i, key in enumerate(sites)}
    for row in rows:
        table = np.tile(UNSEEN.astype(np.float64), (len(sites), 1))
        for key, norm in row.norms.items():
            at, finite = place[key], math.isfinite(norm)
            table[at] = 0.0
            table[at, [column("total"), column("count")]] = 1.0
            table[at, column("nonfinite")] = 0.0 if finite else 1.0
            table[at, [column(name) for name in ("mean", "rms", "min", "max")]] = norm if finite else np.nan
            table[at, column("std")] = 0.0 if finite else np.nan
            table[at, column("zeros")] = float(norm == 0)
        tables.append(table)
    mean = to_float32(tables) if tables else np.zeros((0, len(sites), len(STATS)), np.float32)
    losses = np.array([np.nan if row.loss is None else row.loss for row in rows], np.float64)
    bad = np.array([row.loss is not None and not math.isfinite(row.loss) for row in rows], np.float64)
    count = len(rows)
    return History(
        steps=np.array([row.step for row in rows], np.int64),
        width=np.ones(count, np.int64),
        time=np.array([(row.time or started) - started for row in rows], np.float64),
        stream=np.zeros(count, np.int64),
        applied=np.ones(count, bool),
        mean=mean,
        low=mean,
        high=mean,
        scalars={"loss": losses, "loss_nonfinite": bad},
    )


def _first_nonfinite(rows: Sequence[_Row]) -> tuple[Event, ...]:
    """Return an event for each layer whose norm is NaN or infinite in the first such step: activations lead."""
    for row in rows:
        bad: Mapping[tuple[str, str], float] = {k: norm for k, norm in row.norms.items() if not math.isfinite(norm)}
        for kind, name in (("activation", "nonfinite_activation"), ("param_grad", "nonfinite_gradient")):
            found = [path for own, path in bad if own == kind]
            if found:
                return tuple(Event(name, "gradient_health", row.step, rows[-1].step, path) for path in found)
    return ()
