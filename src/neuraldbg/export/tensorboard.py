"""TensorBoard: a folder that ``tensorboard --logdir`` opens. Needs tensorboard, of the extra ``export``.

Scalars under ``run/`` (loss, learning rate, gradient norm, ...) and under ``<kind>/<layer>/<statistic>`` for the sites
(``rms`` and, where there are any, ``nonfinite``, unless others are selected), at the step and the wall time at which
they were recorded. TensorBoard's scalars are float32. A row for several steps is no point of these: it has separate
tags, which end in ``thinned_low``, ``thinned_mean`` and ``thinned_high``, at its first step. Histograms, if the run has
them and no statistic is selected, are under ``<kind>/<layer>``: their extremes are the ends of their outermost bins,
and they have no sums, since the record does not have them. The diagnosis is a text. Names of layers are quoted as in a
URL, so that a slash in a name makes no group.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import MissingExtra
from neuraldbg.export.exporter import Exporter
from neuraldbg.export.spans import time_of
from neuraldbg.export.tables import measured, utf8
from neuraldbg.nouns import EDGES, column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.nouns import Diagnosis, RunRecord, Site

METRICS = "metric"
"""Begin of the names of the scalars of metrics, and of their extremes."""
USUAL = ("rms", "nonfinite")
FILE = "events.out.tfevents.{started}.neuraldbg"
"""Name of the file; TensorBoard recognises its files by ``tfevents``."""
_VERSION = "brain.Event:2"
_QUOTED = {ord(c): f"%{ord(c):02X}" for c in "%/"} | {c: f"%{c:02X}" for c in (*range(0x20), 0x7F)}
_WIDE = 72
"""Characters of a line of text."""
_THINNED = ("low", "mean", "high")


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write one file of events."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 (an extra)
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("the tensorboard format", "export") from None

    started = run.info.started
    with (path / FILE.format(started=int(started))).open("wb") as opened:
        out = RecordWriter(opened)
        out.write(Event(wall_time=started, file_version=_VERSION).SerializeToString())
        text = Summary(value=[_text("diagnosis", _said(diagnosis))])
        out.write(Event(wall_time=started, step=0, summary=text).SerializeToString())
        for step, values in _histograms(run, selection):
            when = started + time_of(run.history, step)
            out.write(Event(wall_time=when, step=step, summary=Summary(value=values)).SerializeToString())
        for at, values in _points(run, selection):
            step, when = int(run.history.steps[at]), started + float(run.history.time[at])
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values])
            out.write(Event(wall_time=when, step=step, summary=summary).SerializeToString())
        out.flush()


def _text(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # noqa: PLC0415
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # noqa: PLC0415
    from tensorboard.compat.proto.types_pb2 import DT_STRING  # noqa: PLC0415

    plugin = SummaryMetadata.PluginData(plugin_name="text")
    content = TensorProto(dtype=DT_STRING, string_val=[utf8(text).encode()])
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=content)


def _said(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as a block of code: TensorBoard reads Markdown, which would change names and wrap lines."""
    lines = [part for line in str(diagnosis).splitlines() for part in textwrap.wrap(line, _WIDE) or [""]]
    return "\n".join(f"    {line}" for line in lines)


def _histograms(run: RunRecord, selection: Selection) -> Iterator[tuple[int, list[Any]]]:
    from tensorboard.compat.proto.histogram_pb2 import HistogramProto  # noqa: PLC0415 (an extra)
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

    rows = () if selection.stats else selection.rows(run)
    tags = _tags([run.layout.sites[row] for row in rows])
    # TensorFlow writes an open end like this.
    edges = np.nan_to_num(EDGES)
    for taken in run.histograms:
        values = []
        for row, tag in zip(rows, tags, strict=True):
            counts = taken.counts_of(row)
            if counts is None or not counts.any():
                continue
            first, last = np.flatnonzero(counts)[[0, -1]].tolist()
            made = HistogramProto(
                min=edges[first],
                max=edges[last + 1],
                num=counts.sum(),
                bucket_limit=edges[first + 1 : last + 2],
                bucket=counts[first : last + 1],
            )
            values.append(Summary.Value(tag=tag, histo=made))
        yield taken.step, values


def _points(run: RunRecord, selection: Selection) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Yield row of time and values in the order of time, so that no reader mistakes it for a run that restarted."""
    history, rows, stats = run.history, np.array(selection.rows(run), np.int64), selection.columns(USUAL)
    known = {name: measured(history, name) for name in history.scalars}
    several = len(run.streams) > 1
    tags = _tags([run.layout.sites[row] for row in rows])
    picked, unusual = [column(stat) for stat in stats], () if selection.stats else ("nonfinite",)
    done = 0
    for slab in history.slabs():
        seen = slab.high[:, rows, column("count")] > 0
        # (3, R, S, K), of the selection only.
        three = np.stack([part[:, rows][:, :, picked] for part in (slab.low, slab.mean, slab.high)])
        for place, at in enumerate(slab.rows.tolist()):
            yield from ((row, _scalars(run, row, known, several)) for row in range(done, at))
            values, thinned = _scalars(run, at, known, several), history.width[at] > 1
            cells = three[:, place].tolist()
            for i in np.flatnonzero(seen[place]).tolist():
                for k, stat in enumerate(stats):
                    if stat not in unusual or cells[1][i][k]:
                        values += _named(f"{tags[i]}/{stat}", [part[i][k] for part in cells], thinned)
            yield at, values
            done = at + 1
    yield from ((row, _scalars(run, row, known, several)) for row in range(done, len(history)))


def _scalars(run: RunRecord, at: int, known: dict[str, Any], several: bool) -> list[tuple[str, float]]:
    # A metric is of the program, whatever optimizer stepped.
    stream = f"/optimizer {run.history.stream[at]}" if several else ""
    ending = "/thinned_mean" if run.history.width[at] > 1 else ""
    return [
        (f"run/{name}{'' if name.startswith(METRICS) else stream}{ending}", float(values[at]))
        for name, values in run.history.scalars.items()
        if known[name][at]
    ]


def _named(tag: str, three: Sequence[float], thinned: bool) -> list[tuple[str, float]]:
    if not thinned:
        return [(tag, three[1])]
    return [(f"{tag}/thinned_{end}", value) for end, value in zip(_THINNED, three, strict=True)]


def _tags(sites: Sequence[Site]) -> list[str]:
    """Return a unique tag for each site."""
    found: list[str] = []
    taken: set[str] = set()
    for number, site in enumerate(sites):
        label = utf8(site.label).translate(_QUOTED)
        tag = f"{site.kind}/{label}"
        if tag in taken:
            tag = f"{tag} ({number})"
        taken.add(tag)
        found.append(tag)
    return found


EXPORTER = Exporter(
    "tensorboard",
    target="run-tensorboard",
    write=write,
    selects=True,
    files=("events.out.tfevents.*",),
)
