"""The session for numbers by hand: begins and ends a run, and gives its parts what they share.

::

    with debug_session(output_dir="debug_output") as session:
        for step, batch in enumerate(batches):
            loss, gradients = loss_and_gradients(parameters, batch)
            session.record_step(step, loss=loss, gradients=gradients, parameters=parameters)
    print(session.report().summary())
"""

from __future__ import annotations

import math
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuraldbg.arguments import one_of, text
from neuraldbg.config import Settings
from neuraldbg.errors import AttachError, ConfigError, TrainingHalted
from neuraldbg.nouns import STATS, Outcome, RunInfo, RunRecord
from neuraldbg.questions import Questions, in_short
from neuraldbg.record.outcome import outcome_of
from neuraldbg.show.shown_run import Shown
from neuraldbg.toolbox.debug_config import DebugConfig
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.gradient_debugger import MOST_NAMES, GradientDebugger
from neuraldbg.toolbox.hand_recording import MIB, HandRecording
from neuraldbg.toolbox.hand_steps import HandSteps
from neuraldbg.toolbox.statistics_row import row_of
from neuraldbg.toolbox.switched_off import SwitchedOff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Self

    from neuraldbg.alerts import Alerts
    from neuraldbg.nouns import Diagnosis, Event, Step
    from neuraldbg.toolbox.hand_hooks import HandHooks
    from neuraldbg.toolbox.hand_profiler import HandProfiler
    from neuraldbg.toolbox.model_diagnostics import ModelDiagnostics
    from neuraldbg.toolbox.session_plots import SessionPlots
    from neuraldbg.toolbox.session_report import DebugReport
    from neuraldbg.toolbox.tensor_inspector import TensorInspector

    Floats = npt.NDArray[np.float64]


class DebugSession(HandRecording, Questions, Shown):
    """A session in which numbers are recorded by hand, from any framework or none: a run like any other.

    Tensors may be arrays of numpy, torch, JAX, TensorFlow, MLX or CuPy, lists, or numbers. What is recorded belongs to
    the step that is open: ``record_step`` records a whole one, ``begin_step`` opens one. Where nobody numbers the
    steps, one ends when a name is recorded a second time. The first value that is recorded starts the session, so that
    ``start`` need not be called; ``stop`` ends it, saves the run and returns the report, and ``with`` does both.

    >>> session = DebugSession(DebugConfig(output_dir="debug_output"))
    >>> for step in range(4):
    ...     session.record_step(step, loss=1 / (step + 1), gradients={"fc1.weight": [[0.1, -0.2], [0.0, 0.3]]})
    """

    def __init__(
        self,
        config: DebugConfig | None = None,
        *,
        script: str = "",
        note: str = "",
        alerts: Alerts | Sequence[str] | str | None = None,
    ) -> None:
        super().__init__(one_of(config or DebugConfig(), (DebugConfig,), "config: give a DebugConfig"))
        self._settings = Settings(record={"budget_mb": self.config.budget_mb})
        self._info = RunInfo(text(script, "script"), note=text(note, "note"))
        self._alerts = alerts
        self._halted = False
        self._made: HandSteps | None = None
        self._ended: DebugReport | None = None
        self._outcome: Outcome | None = None
        self._saved: Diagnosis | None = None
        self._final: RunRecord | None = None
        """The record of the run, once it has ended."""

    # -- parts ----------------------------------------------------------------------------------------------------

    @cached_property
    def tensor_inspector(self) -> TensorInspector:
        """The part that inspects tensors, compares them, and counts their memory."""
        if not self.config.enable_tensor_inspection:
            return SwitchedOff("tensor_inspector", "enable_tensor_inspection", {"inspect_tensor": -1})  # type: ignore[return-value]
        from neuraldbg.toolbox.tensor_inspector import TensorInspector  # noqa: PLC0415 (only what is used is loaded)

        return TensorInspector(
            max_tracked=self.config.max_tracked_tensors,
            sampling_rate=self.config.sampling_rate,
            step=lambda: self._steps().step,
            turn=lambda site: self._steps().turn(site),
            tell=self._put,
            budget=self.config.kept_mb * MIB,
        )

    @cached_property
    def gradient_debugger(self) -> GradientDebugger:
        """The part that follows the gradients of layers."""
        if not self.config.enable_gradient_debugging:
            off = {"record_gradient_flow": None, "record": None}
            return SwitchedOff("gradient_debugger", "enable_gradient_debugging", off)  # type: ignore[return-value]
        return GradientDebugger(
            most_layers=self.config.max_tracked_tensors,
            history=self.config.max_gradient_history,
            step=lambda: self._steps().number,
            samples=self._samples,
            turn=lambda name: self._steps().turn(self._parameter_site("param_grad", name)),
            tell=self._put_parameter,
            record=self.record,
            diagnose=self.diagnose,
        )

    @cached_property
    def model_diagnostics(self) -> ModelDiagnostics:
        """The part that takes architecture and metrics, and says how the training goes."""
        if not self.config.enable_model_diagnostics:
            off = {"record_architecture": None, "record_performance": None}
            return SwitchedOff("model_diagnostics", "enable_model_diagnostics", off)  # type: ignore[return-value]
        from neuraldbg.toolbox.model_diagnostics import ModelDiagnostics  # noqa: PLC0415 (only what is used is loaded)

        return ModelDiagnostics(
            put_scalars=lambda step, values: self._steps().put_scalars(values, step),
            put_fact=lambda fact: self._steps().put_fact(fact),
            record=self.record,
            diagnose=self.diagnose,
        )

    @cached_property
    def hooks(self) -> HandHooks:
        """The part that runs hooks on values that it is given."""
        from neuraldbg.toolbox.hand_hooks import HandHooks  # noqa: PLC0415 (only what is used is loaded)

        hooks = HandHooks(
            step=lambda: self._steps().step,
            statistics=self._statistics,
            inspect=self.tensor_inspector.inspect_tensor,
            record_gradient=self.gradient_debugger.record_gradient_flow,
            folder=lambda: self.folder,
            halt=self._halt,
            layers=lambda: [layer.path for layer in self.record().layout.layers],
            alerts=self._alerts,
            note=lambda facts: self._steps().note(facts),
        )
        hooks.start()
        self._steps().at_once = True
        return hooks

    @cached_property
    def profiler(self) -> HandProfiler:
        """The part that measures times and memory."""
        from neuraldbg.toolbox.hand_profiler import HandProfiler  # noqa: PLC0415 (only what is used is loaded)

        return HandProfiler(step=lambda: self._steps().step)

    @cached_property
    def plots(self) -> SessionPlots:
        """The part that draws pictures of the session, as files and as text."""
        from neuraldbg.toolbox.session_plots import SessionPlots  # noqa: PLC0415 (matplotlib, if somebody draws)

        return SessionPlots(self)

    # -- lifecycle ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the run. Raises AttachError if it has begun, or has ended.

        >>> another = DebugSession()
        >>> another.start()
        """
        with self._lock:
            if self._made is not None:
                state = "runs already" if self._outcome is None else "has ended; make a new DebugSession"
                message = f"this session {state}"
                raise AttachError(message)
            self._made = HandSteps(
                self._settings,
                self.config.folder,
                self._info,
                self.config.max_tracked_tensors,
                _Weakly(self._stepped),
            )
            # A session that nobody stops is saved when it is forgotten, or when the program ends.
            self._forgotten = weakref.finalize(self, self._made.abandon)

    def stop(self, outcome: Outcome | None = None) -> DebugReport:
        """End the run, save it, and return its report. A second call returns the same one.

        ``outcome`` is how the training ended; by default it was completed.

        >>> another.stop().diagnosis.verdict
        'inconclusive'
        """
        from neuraldbg.toolbox.session_report import report_of  # noqa: PLC0415 (needed when the training is over)

        with self._lock:
            if self._ended is not None:
                return self._ended
            steps = self._steps()
            self._forgotten.detach()
            steps.finish()
            self._tell_profile()
            record = steps.record(self._coverage(), outcome or Outcome("completed"))
            self._final, self._saved = record, self._judged(record)
            self._end_hooks(self._saved)
            self._outcome = outcome or Outcome("completed")
            steps.close(self._saved)
            self._ended = report_of(self)
        if self.config.enable_visualization:
            self.plots.draw_all()
        return self._ended

    def report(self) -> DebugReport:
        """Return the report on what was recorded so far; after the end that of the whole run.

        >>> print(session.report().summary())
        INCONCLUSIVE: ...
        """
        from neuraldbg.toolbox.session_report import report_of  # noqa: PLC0415 (as above)

        return self._ended if self._ended is not None else report_of(self)

    def __enter__(self) -> Self:
        if self._made is None:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(outcome_of(error))

    def _steps(self) -> HandSteps:
        """Return the steps of the run, which the first recorded value begins."""
        with self._lock:
            if self._made is None:
                self.start()
                if self._alerts is not None:
                    self.hooks  # noqa: B018 (a part that is made when it is first used)
        if self._outcome is not None:
            message = "this session has ended: make a new DebugSession to record more"
            raise AttachError(message)
        assert self._made is not None
        return self._made

    @property
    def folder(self) -> Path | None:
        """Folder of the run. None if it is in memory."""
        return self.file.parent if self.file is not None else None

    @property
    def file(self) -> Path | None:
        """Path of the run file. None if the run is in memory, or nothing was recorded yet."""
        return self._made.recorder.path if self._made is not None else None

    @property
    def problem(self) -> str | None:
        """Sentences that say why the run, or a part of it, could not be saved. None if it could."""
        return self._made.recorder.problem if self._made is not None else None

    def __repr__(self) -> str:
        if self._made is None:
            return "<DebugSession: not started>"
        kinds = [event.kind for event in self._made.events]
        state = "running" if self._outcome is None else "ended"
        return f"<DebugSession: {state}, {in_short(self._made.count, (), kinds, self._saved)}>"

    def uses(self, part: str) -> bool:
        """Return True if a part of the session was used: ``gradient_debugger``, ``hooks``, ...

        >>> session.uses("profiler")
        False
        """
        return part in self.__dict__ and not isinstance(self.__dict__[part], SwitchedOff)

    # -- the answer -----------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        """Return the record of the steps so far, without the one that is open.

        >>> session.record().steps
        4
        """
        with self._lock:
            if self._final is not None:
                return self._final
            if self._made is None:
                return RunRecord(info=self._info)
            return self._made.record(self._coverage(), self._outcome or Outcome("running"))

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of the run so far, after the end that of the whole run.

        >>> session.diagnose().verdict
        'inconclusive'
        """
        return self._saved if self._saved is not None else self._judged(self.record())

    def _judged(self, run: RunRecord) -> Diagnosis:
        from neuraldbg.explain import diagnose  # noqa: PLC0415 (a hundred causes, needed at the end)

        return diagnose(run)

    # -- wiring ---------------------------------------------------------------------------------------------------

    def _stepped(self, step: Step, events: Sequence[Event]) -> None:
        """Run the hooks of a step that is over."""
        if self.uses("hooks") and not self._halted:
            self.hooks.step_ended(step.index, step.scalars, events)

    def _end_hooks(self, diagnosis: Diagnosis) -> None:
        from neuraldbg.explain import CREDIBLE  # noqa: PLC0415 (as above)

        if self.uses("hooks"):
            self.hooks.stop([one for one in diagnosis.hypotheses if one.confidence >= CREDIBLE])

    def _statistics(self, values: npt.NDArray[Any]) -> dict[str, float]:
        found = dict(zip(STATS, row_of(given(values, "the values")).tolist(), strict=True))
        found["norm"] = math.nan if found["nonfinite"] else found["rms"] * math.sqrt(found["total"])
        found["absmax"] = math.nan if found["nonfinite"] else max(abs(found["min"]), abs(found["max"]))
        return found

    def _halt(self, reason: str) -> None:
        self._halted = True
        steps = self._steps()
        raise TrainingHalted(reason, max(0, steps.step - 1), self.diagnose())

    def _tell_profile(self) -> None:
        if self.uses("profiler"):
            self._steps().note(self.profiler.facts(self._steps().step))

    def _coverage(self) -> dict[str, Any]:
        """Return how much of the training was recorded, in the words of a run's coverage."""
        steps = self._made
        assert steps is not None
        notes = ["the numbers were recorded by hand", *self._notes]
        notes += self.hooks.notes if self.uses("hooks") else []
        refused = {*steps.refused, *(self.gradient_debugger.left_out if self.uses("gradient_debugger") else ())}
        if refused:
            most, count = self.config.max_tracked_tensors, len(refused)
            more = "at least " if count >= MOST_NAMES else ""
            notes.append(f"{more}{count:,} tensors beyond the first {most:,} are not recorded (max_tracked_tensors)")
        if steps.shifted is not None:
            notes.append("step {} was over when it was recorded, and is a part of step {}".format(*steps.shifted))
        if self.config.sampling_rate < 1:
            notes.append(f"whole tensors are read in one of {1 / self.config.sampling_rate:.3g} steps (sampling_rate)")
        seen = len({site.module for site in steps.sites})
        return {"by_hand": 1, "layers": seen, "seen": seen, "never_fired": [], "notes": notes, "errors": 0}


class _Weakly:
    """Calls a method of an object as long as that lives: what it is given to does not keep the object alive."""

    def __init__(self, method: Callable[[Step, Sequence[Event]], None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, step: Step, events: Sequence[Event]) -> None:
        method = self._method()
        if method is not None:
            method(step, events)


def debug_session(config: DebugConfig | None = None, **settings: Any) -> DebugSession:
    """Return a session for numbers by hand; ``settings`` are those of DebugConfig.

    >>> debug_session(max_tracked_tensors=100)
    <DebugSession: not started>
    """
    if config is not None and settings:
        raise ConfigError("give a DebugConfig, or its settings by name, not both")
    return DebugSession(config or DebugConfig(**settings))
