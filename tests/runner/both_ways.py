"""Runs programs twice, under plain python and under the tool, each in a folder of its own with the same files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DRIVER = Path(__file__).with_name("fake_session.py")
SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Done:
    """What a finished process left."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Place:
    """A folder with programs in it."""

    path: Path

    def write(self, name: str, source: str) -> Path:
        """Put a file there."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        return file

    def env(self, **more: str) -> dict[str, str]:
        """The environment in which both are run."""
        dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONSAFEPATH")
        kept = {key: value for key, value in os.environ.items() if key not in dropped}
        return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", **more}

    def python(self, *args: str, stdin: str = "", **env: str) -> Done:
        """Run ``python args``."""
        done = subprocess.run(
            [sys.executable, *args],
            cwd=self.path,
            env=self.env(**env),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def tool(self, *args: str, stdin: str = "", **env: str) -> Done:
        """Run ``neuraldbg run args`` with the fake session."""
        return self.python(str(DRIVER), "run", *args, stdin=stdin, **env)

    def same(self, *args: str, stdin: str = "") -> Done:
        """Run a program both ways and require the same status, output and errors."""
        plain = self.python(*args, stdin=stdin)
        ours = self.tool("--quiet", *args, stdin=stdin)
        assert (ours.out, ours.status) == (plain.out, plain.status)
        assert ours.err == without_runpy(plain.err)
        return ours


def without_runpy(text: str) -> str:
    """Take out the lines that ``python -m`` adds for its own machinery."""
    kept = [line for line in text.splitlines(keepends=True) if '"<frozen runpy>"' not in line]
    return "".join(kept)
