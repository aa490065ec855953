"""The end of a training: how it ended, with which versions it was made, and the files beside its run file."""

from __future__ import annotations

import importlib.metadata
import platform
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import EndedByHand, TrainingHalted
from neuraldbg.nouns import Outcome
from neuraldbg.raised import words_of
from neuraldbg.record.run_names import RunName

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis
    from neuraldbg.record.ring import RingBuffer


def outcome_of(error: BaseException | None) -> Outcome:
    """Return the outcome of a training that ended with an exception, or with none."""
    if error is None:
        return Outcome("completed")
    if isinstance(error, (KeyboardInterrupt, EndedByHand)) or type(error).__name__ == "BdbQuit":
        return Outcome("interrupted")
    if isinstance(error, TrainingHalted):
        return Outcome("halted", error.reason)
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if not _foreign(frame.filename)] or every  # the user's own line
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = (frames[-1].line or "").strip()[:160] if frames else ""
    return Outcome("raised", words_of(error), where, text)


def _foreign(file: str) -> bool:
    return "site-packages" in file or Path(file).is_relative_to(Path(__file__).parent.parent)


def versions() -> dict[str, str]:
    """Return the versions of Python, torch and this package, "unknown" for one that is not installed."""
    found = {"python": platform.python_version()}
    for name in ("torch", "neuraldbg"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def save_beside(file: Path, diagnosis: Diagnosis, ring: RingBuffer) -> None:
    """Write ``diagnosis.json`` beside a run file, and of a failing run ``crash.json``. Raises OSError."""
    name = RunName.of(file) or RunName()
    file.with_name(name.beside("diagnosis")).write_text(diagnosis.to_json() + "\n", encoding="utf-8")
    if diagnosis.verdict == "failing":
        ring.save_json(file.with_name(name.beside("crash")), trigger_reason=diagnosis.summary)
