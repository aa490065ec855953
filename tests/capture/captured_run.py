"""Run a training program under a Capture and keep what it emits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.capture import Capture
from neuraldbg.config import CaptureSettings
from neuraldbg.nouns import column

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from neuraldbg.nouns import Layout, Step


@dataclass
class CapturedRun:
    """What a capture emitted, with short ways to ask."""

    steps: list[Step] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    capture: Capture | None = None

    @property
    def layout(self) -> Layout:
        return self.layouts[-1]

    def row(self, kind: str, module: str, name: str = "", call: int = 0) -> int:
        for row, site in enumerate(self.layout.sites):
            if (site.kind, site.module, site.name, site.call) == (kind, module, name, call):
                return row
        raise AssertionError(f"no site {kind} {module} {name} {call} among {[s.label for s in self.layout.sites]}")

    def stat(self, kind: str, module: str, stat: str, *, name: str = "", call: int = 0, step: int = -1) -> float:
        table = self.steps[step].table
        row = self.row(kind, module, name, call)
        return float(table[row, column(stat)]) if row < len(table) else float("nan")

    def norm(self, kind: str, module: str, *, name: str = "", call: int = 0, step: int = -1) -> float:
        rms = self.stat(kind, module, "rms", name=name, call=call, step=step)
        return float(rms * np.sqrt(self.stat(kind, module, "total", name=name, call=call, step=step)))

    def seen(self, kind: str, module: str, *, name: str = "", call: int = 0, step: int = -1) -> bool:
        return self.stat(kind, module, "count", name=name, call=call, step=step) > 0

    def scalars(self, name: str) -> list[float]:
        return [step.scalars.get(name, float("nan")) for step in self.steps]

    def facts(self, key: str) -> list[dict]:
        return [fact.value for step in self.steps for fact in step.facts if fact.key == key]


def capture_run(program: Callable[[], object], *models: nn.Module, **settings: object) -> CapturedRun:
    """Run ``program`` while watching the given models, or whatever it calls if none is given."""
    found = CapturedRun()

    def emit(step: Step, layout: Layout) -> None:
        found.steps.append(step)
        found.layouts.append(layout)

    capture = found.capture = Capture(CaptureSettings(**settings), emit, discover=not models)
    capture.start()
    try:
        for model in models:
            capture.models.watch(model)
        program()
    finally:
        capture.stop()
    return found
