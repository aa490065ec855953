"""The run as rows of names and values: program, outcome, coverage and overhead."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.run_line import spent, steps_read
from neuraldbg.show.format.safe_text import counted, duration, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis, Outcome, RunRecord

    Row = tuple[str, str]

ENDED = {
    "completed": "normally",
    "raised": "with an exception",
    "interrupted": "interrupted",
    "halted": "halted by NeuralDBG",
    "running": "still running, or killed",
}


def about(run: RunRecord, diagnosis: Diagnosis) -> tuple[Row, ...]:
    """Return rows about the program and its outcome; unknown ones are left out."""
    info = run.info
    began = datetime.fromtimestamp(info.started, timezone.utc) if info.started else None
    rows = (
        ("note", info.note),
        ("script", info.script),
        ("command", shlex.join(info.argv) if len(info.argv) > 1 else ""),
        ("began", f"{began:%Y-%m-%d %H:%M:%S} UTC" if began else ""),
        ("took", duration(float(diagnosis.run["duration_s"])) if diagnosis.run.get("duration_s") else ""),
        ("ended", _ended(info.outcome)),
        ("optimizer steps", f"{run.steps:,}"),
        ("models", ", ".join(info.models)),
        ("optimizers", ", ".join(info.optimizers)),
        ("schedules", "; ".join(diagnosis.run.get("schedules") or ())),
        ("device", info.device),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
        ("seed", "" if info.seed is None else str(info.seed)),
    )
    return tuple((name, value) for name, value in rows if value)


def _ended(outcome: Outcome) -> str:
    said = ENDED.get(outcome.kind, outcome.kind)
    message = outcome.message.strip().splitlines()[-1:] or [""]
    return ": ".join(filter(None, (said, message[0]))) + (f" ({outcome.where})" if outcome.where else "")


def watching(run: RunRecord, diagnosis: Diagnosis) -> tuple[Row, ...]:
    """Return rows about coverage and overhead."""
    coverage: dict[str, Any] = dict(run.info.coverage)
    cost = coverage.get("cost") or {}
    (full, sighted), never = steps_read(cost), coverage.get("never_fired") or ()
    coarse = int(coverage.get("coarse") or 0)
    thinned = int((run.history.width > 1).sum())
    rows = (
        ("layers seen", _of(coverage.get("seen"), coverage.get("layers"), "layers")),
        ("layers never called", ", ".join(map(str, never))),
        ("layers only called without gradients", ", ".join(map(str, coverage.get("without_grad") or ()))),
        ("steps read in full", _of(full, run.steps, "steps") if cost else ""),
        ("steps of which only the layers were read", number(sighted) if sighted else ""),
        ("older steps", f"{counted(thinned, 'row')} of the record are averages over several steps" if thinned else ""),
        ("stored as averages", f"{counted(coarse, 'step')}, because the disk was too slow" if coarse else ""),
        ("batches kept beside the run file", ", ".join(map(str, _kept(coverage)))),
        ("overhead", _overhead(diagnosis.run.get("overhead_ratio"), cost)),
        ("errors of NeuralDBG", number(coverage["errors"]) if coverage.get("errors") else ""),
        *(("note", str(note)) for note in coverage.get("notes") or ()),
    )
    return tuple((name, value) for name, value in rows if value)


def _kept(coverage: Mapping[str, Any]) -> list[Any]:
    kept = coverage.get("kept_batches")
    return list(kept.values()) if isinstance(kept, dict) else []


def _of(part: Any, whole: Any, what: str) -> str:
    return f"{part:,} of {whole:,} {what}" if isinstance(part, int) and isinstance(whole, int) else ""


def _overhead(ratio: Any, cost: dict[str, Any]) -> str:
    if not isinstance(ratio, (int, float)) or ratio < 0:
        return ""
    said = spent(cost)
    return f"{100 * ratio:.1f}% of the training's own time" + (f" ({said})" if said else "")
