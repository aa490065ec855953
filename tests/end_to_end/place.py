"""Runs real programs under the real command, each in a process and a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
"""

DATA = """
x = torch.randn(256, 8)
y = (x.sum(1) > 0).long() + (x[:, 0] > 1).long()
def batches(n, size=32):
    for i in range(n):
        at = torch.randint(len(x), (size,))
        yield x[at], y[at]
"""

MODEL = "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))\n"

TRAIN = """
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for a, b in batches({steps}):
    opt.zero_grad()
    loss = F.cross_entropy(model(a), b)
    loss.backward()
    opt.step()
"""


def script(*parts: str) -> str:
    """Put together a program that has torch, data and what is given."""
    return HEAD + DATA + "".join(textwrap.dedent(part) for part in parts)


def healthy(steps: int = 60) -> str:
    return script(MODEL, TRAIN.format(steps=steps))


@dataclass(frozen=True)
class Done:
    """What a finished process left."""

    status: int
    out: str
    err: str
    run: Path

    @property
    def diagnosis(self) -> dict[str, Any]:
        """The diagnosis of the run folder."""
        return json.loads((self.run / "diagnosis.json").read_text())


@dataclass(frozen=True)
class Place:
    """A folder with programs in it."""

    path: Path

    def write(self, name: str, source: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        return file

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "neuraldbg", *args]

    def env(self, **more: str) -> dict[str, str]:
        # One thread: these models are tiny. The rest as a stranger's shell has it, but errors of ours raise.
        return {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NEURALDBG_STRICT": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            **more,
        }

    def python(self, *args: str, **env: str) -> Done:
        return self._done([sys.executable, *args], env)

    def tool(self, *args: str, **env: str) -> Done:
        return self._done(self.command(*args), env)

    def run(self, *args: str, source: str | None = None, **env: str) -> Done:
        """``neuraldbg run -o run ARGS``; with ``source``, of a ``train.py`` that holds it."""
        if source is not None:
            self.write("train.py", source)
            args = ("train.py", *args)
        return self.tool("run", "-o", "run", *args, **env)

    def _done(self, command: list[str], env: dict[str, str]) -> Done:
        done = subprocess.run(
            command, cwd=self.path, env=self.env(**env), capture_output=True, text=True, timeout=180, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr, self.path / "run")


def record(done: Done) -> Any:
    """The saved run, read back."""
    from neuraldbg import Run

    return Run.load(done.run)
