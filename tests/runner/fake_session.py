"""The command line with a session that needs no torch: for tests of how programs are run."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from neuraldbg.cli import main, run

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis, Outcome


class FakeSession:
    """Remembers what it was told, and gives the verdict that the program put into ``builtins.verdict``."""

    def __init__(self, *, out: Path, script: str, argv: tuple[str, ...], on_step: Any, **options: Any) -> None:
        self.folder: Path | None = out
        self.file: Path | None = None
        self.problem: str | None = None
        self.remark: str | None = None
        self.script, self.argv, self.on_step, self.options = script, argv, on_step, options
        self.outcome: Outcome | None = None

    def start(self) -> None:
        import builtins

        builtins.session = self  # type: ignore[attr-defined]
        if getattr(builtins, "start_fails", False):
            raise RuntimeError("no good")

    def stop(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            self.problem, self.folder = str(error), None
            return
        self.file = self.folder / "rank0.ndbg"
        self.file.touch()
        told = {"script": self.script, "argv": self.argv, "outcome": vars(outcome), "options": self.options}
        (self.folder / "told.json").write_text(json.dumps(told))

    def busy(self, frame: Any) -> bool:
        return False

    def diagnose(self) -> Diagnosis:
        import builtins

        from neuraldbg.nouns import Diagnosis

        assert self.outcome is not None
        verdict = getattr(builtins, "verdict", "healthy")
        return Diagnosis(verdict, f"This run ended as {self.outcome.kind}", {"script": self.script})


if __name__ == "__main__":
    launch = run.launch
    run.launch = lambda request: launch(request, FakeSession)  # type: ignore[assignment]
    sys.exit(main())
