"""A window of steps under ``torch.profiler``, saved as a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.loop.torch_patches import Patches
from neuraldbg.capture.profiling.operation_counts import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.guest.stand_in import Around

_LOG = "KINETO_LOG_LEVEL"
_QUIET = "6"
"""Level of Kineto above which it prints nothing: it would write lines of its own onto the program's error stream."""


class TraceWindow:
    """Records steps, from the first of ``steps`` to the last, in ``file``. ``tally`` counts errors."""

    def __init__(self, steps: tuple[int, int], file: Path, tally: Tally) -> None:
        self._first, self._last = steps
        self._file, self._tally = file, tally
        self._profiler: Any = None
        self._patches = Patches()
        self.over = False
        """True once the window has ended."""
        self.written = ""
        """Name of the file beside the run file, empty until it is written."""
        self.problem = ""
        """Why there is no trace, empty if there is one or it is still to come."""

    @property
    def on(self) -> bool:
        """True while steps are recorded."""
        return self._profiler is not None

    def next_step(self, step: int) -> None:
        """Begin or end the window, before a step begins."""
        if step > self._last and not self.over:
            self.problem = "" if self.on else "another record of this tool ran until its last step"
            self.end()
        elif not self.on and not self.over and self._first <= step <= self._last:
            self._begin()

    def _begin(self) -> None:
        if torch._C._autograd._profiler_enabled():  # noqa: SLF001 (no public name)
            if records():  # of ours: it is over soon
                return
            self.over, self.problem = True, "the program was running a profiler of its own"
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        made = torch.profiler.profile(activities=activities, record_shapes=True)
        with _quiet():
            made.start()
        self._profiler = made
        self._patches.surround(torch.autograd.profiler, "_enable_profiler", self._other_profiler)

    def _other_profiler(self, *_: Any, **__: Any) -> Around:
        """End the window when a profiler of the program begins, which refuses to run beside another."""
        self.end()
        yield

    def end(self) -> None:
        """End the window, and write what was recorded."""
        self.over = True
        self._patches.restore()
        made, self._profiler = self._profiler, None
        if made is None:
            return
        try:
            made.stop()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            made.export_chrome_trace(str(self._file))
            self.written = self._file.name
        except OSError as error:
            self.problem = f"its file cannot be written: {error}"
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.problem = "torch.profiler failed"
            self._tally.caught("writing the trace")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Kineto, which reads its level when it is first used, print nothing."""
    before = os.environ.get(_LOG)
    os.environ.setdefault(_LOG, _QUIET)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_LOG, None)
