"""The profile of one session: connects the parts of ``capture/profiling`` with its layers and its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.arguments import one_of, whole
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.capture import Capture
    from neuraldbg.capture.profiling.part import Part
    from neuraldbg.nouns import Fact


class SessionProfile:
    """Measures time, work and memory of a session's training.

    ``asked`` is True if the user asked for a profile, None for the few steps that are sampled by default, False for
    none at all. ``trace`` are the steps of a window of ``torch.profiler``, whose file needs a place: ``saved`` is True
    if the run is saved.
    """

    def __init__(self, capture: Capture, asked: bool | None, trace: tuple[int, int] | None, *, saved: bool) -> None:
        one_of(asked, (bool, type(None)), "profile: give True, False or None")
        self._capture, self._trace = capture, _window(trace)
        self._asked = True if asked is None and trace is not None else asked
        if self._trace is not None and asked is False:
            message = "trace: it is a part of the profile; leave out profile=False"
            raise ConfigError(message)
        if self._trace is not None and not saved:
            message = "trace: give out as well, a folder: the trace is a file beside the run"
            raise ConfigError(message)
        self._parts: tuple[Part, ...] = ()
        self._told: dict[str, Any] = {}

    @property
    def notes(self) -> list[str]:
        """Sentences about what could not be measured."""
        return [note for part in self._parts for note in part.notes]

    def start(self, folder: Path | None) -> None:
        """Begin to measure. ``folder`` is that of the run file, None for a run in memory."""
        if self._asked is False:
            return
        from neuraldbg.capture.profiling import parts  # noqa: PLC0415 (not imported unless it measures)
        from neuraldbg.capture.profiling.part import Profiling  # noqa: PLC0415

        governor = self._capture.pace.governor
        account = governor.affords, governor.excuse
        self._parts = parts(Profiling(self._capture.scene, bool(self._asked), *account, self._trace, folder))
        for part in self._parts:
            self._guarded("starting the profile", part.start)
        self._capture.hooks.on_layer.append(self.attach)
        for path, module in list(self._capture.hooks.modules.items()):
            self.attach(path, module)

    def attach(self, path: str, module: Any) -> None:
        """Take note of a layer."""
        for part in self._parts:
            self._guarded("profiling a layer", part.attach, path, module)

    def facts(self) -> tuple[Fact, ...]:
        """Return what was measured and not returned before."""
        found = [fact for part in self._parts for fact in self._guarded("reading the profile", part.facts) or ()]
        new = tuple(fact for fact in found if self._told.get(fact.key) != fact.value)
        self._told |= {fact.key: fact.value for fact in new}
        return new

    def stop(self) -> None:
        """Remove all that was left in the program. What was measured stays."""
        for part in self._parts:
            self._guarded("ending the profile", part.stop)

    def _guarded(self, doing: str, act: Any, *args: Any) -> Any:
        """Call ``act``; an error of ours is counted and does not reach the program."""
        try:
            return act(*args)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self._capture.tally.caught(doing)
            return None


def _window(trace: Any) -> tuple[int, int] | None:
    """Return the first and the last step of a window, None for no window. Raises ConfigError."""
    if trace is None:
        return None
    steps = tuple(trace) if isinstance(trace, (tuple, list)) else ()
    if len(steps) != 2 or not all(hasattr(step, "__index__") for step in steps):
        raise ConfigError(f"trace: give two steps, the first and the last, such as (20, 24), not {trace!r}")
    first, last = (whole(step, "trace") for step in steps)
    if not 0 <= first <= last:
        raise ConfigError(f"trace: the last step must not be before the first, and none below 0, not {trace!r}")
    return first, last
