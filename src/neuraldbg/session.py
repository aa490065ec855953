"""The session, ``NeuralDbg``: connects capture, record, detect and explain, and decides nothing itself.

::

    with NeuralDbg(model) as dbg:
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    print(dbg.explain_failure()[0])
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg import answers, clocks
from neuraldbg.capture import Capture
from neuraldbg.capture.attach_checks import check
from neuraldbg.capture.guest.dynamo_skip import at_work
from neuraldbg.capture.layers.snapshots import Snapshots
from neuraldbg.config import OVERHEAD, Settings, validated
from neuraldbg.control import TriggerEngine
from neuraldbg.detect.watch import Watch
from neuraldbg.errors import AttachError, ConfigError, TrainingHalted
from neuraldbg.explain import diagnose, trace
from neuraldbg.nouns import Diagnosis, Outcome, RunInfo, Unjudged
from neuraldbg.raised import words_of
from neuraldbg.ranks import own_rank
from neuraldbg.record import Recorder, RingBuffer, RunName, Spare, ring_bytes
from neuraldbg.show.notebook import Shown

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType, TracebackType

    from torch import nn
    from torch.optim import Optimizer
    from typing_extensions import Self

    from neuraldbg.nouns import Chain, Event, Fact, Hypothesis, Layout, RunRecord, Series, Step

_TELL_EVERY = 256
"""Steps after which the coverage in the run file is updated."""


class NeuralDbg(Shown):
    """A session that watches the training of a model, and explains why it failed.

    ``with NeuralDbg(model) as dbg:`` around an existing loop is enough; steps, losses and optimizers are found
    automatically. ``model`` may be None with ``discover=True``: then every model that is called is watched.

    ``halt=True`` stops training with TrainingHalted before a bad step is applied, so that the weights are still good; a
    ``TriggerEngine`` instead of True has thresholds of its own. ``out`` is a folder for the run file, ``snapshots`` are
    patterns of layers whose tensors are kept (``snapshot_bytes`` at most), ``overhead`` is the share of the training's
    time that watching may take, None for no limit. ``probes=False`` disables the few experiments on a copy of the
    model. ``settings`` and ``thresholds`` override defaults of ``neuraldbg.config`` and of detectors. ``on_step`` is
    called with each step and its events. Raises AttachError, ConfigError, UnknownLayer.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        *,
        halt: bool | TriggerEngine = False,
        out: str | os.PathLike[str] | None = None,
        discover: bool = False,
        overhead: float | None = OVERHEAD,
        probes: bool = True,
        snapshots: Sequence[str] = (),
        snapshot_bytes: int = 64 * 2**20,
        settings: Mapping[str, Any] | None = None,
        thresholds: Mapping[str, Mapping[str, Any]] | None = None,
        script: str = "",
        argv: Sequence[str] = (),
        on_step: Callable[[Step, tuple[Event, ...]], None] | None = None,
    ) -> None:
        values = dict(settings or {})
        if not probes:
            values["capture"] = {**dict(values.get("capture") or {}), "probes": False}
        if overhead != OVERHEAD:
            values["capture"] = {**dict(values.get("capture") or {}), "overhead": overhead}
        if thresholds is not None:
            values["thresholds"] = {name: dict(group) for name, group in thresholds.items()}
        self.settings = validated(Settings, values)
        if model is None and not discover:
            message = "NeuralDbg needs a model, or discover=True to find the models by itself"
            raise ConfigError(message)
        if model is not None:
            check(model, optimizer)
        self._model, self._discover = model, discover
        self._halts = halt
        self._triggers: dict[int, TriggerEngine] = {}
        self._watch = Watch(self.settings.thresholds)
        self._capture = Capture(
            self.settings.capture,
            self._step,
            discover=discover,
            judge=self._judge if halt else None,
            halt=self._halt,
            note=self._noted,
            background=self._background,
        )
        self._capture.delivery.expect = self._watch.expect
        self._snapshots = Snapshots(snapshots, snapshot_bytes, lambda: self._capture.steps) if snapshots else None
        if self._snapshots is not None and model is not None:
            self._snapshots.check(model)
        self._ring = RingBuffer(self.settings.record.ring, ring_bytes(self.settings.record))
        self._on_step = on_step
        self._breakpoints: list[tuple[str, Callable[[Event], None] | None]] = []
        self._info = RunInfo(script=script, argv=tuple(argv), versions=_versions())
        self._recorder: Recorder | None = None
        self._wanted = Path(out) if out is not None else None
        self._offset = self._numbered = 0
        self._count = 0
        self._running = False
        self._spare: Spare | None = None
        self._saved: Diagnosis | None = None
        self._told: Layout | None = None

    # -- lifecycle ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(_outcome(error))

    def start(self) -> None:
        """Attach to torch and the model. Raises AttachError if this session was started before. Other sessions may be
        running: each reads for itself, and answers as if it were alone.
        """
        if self._recorder is not None:
            state = "runs already" if self._running else "has ended; make a new NeuralDbg to watch again"
            message = f"this session {state}"
            raise AttachError(message)
        self._info = replace(self._info, started=clocks.now())
        self._recorder = Recorder(
            self._wanted, self.settings.record, self._info, rank=own_rank().rank, pull=self._capture.deliver_late
        )
        self._running = True
        try:
            self._spare = Spare() if self._wanted is not None else None
            self._capture.start()
            model, self._model = self._model, None  # no reference of ours keeps the model alive
            if model is not None:
                self._capture.models.watch(model)
                self._attach_snapshots()
        except BaseException:
            self.stop()
            raise

    def stop(self, outcome: Outcome | None = None) -> None:
        """Detach, remove all hooks and wrappers, and save the run. Does nothing if the session is not running."""
        if not self._running:
            return
        self._running = False
        if self._spare is not None:
            self._spare.release()
        self._capture.stop()
        if self._snapshots is not None:
            self._snapshots.detach()
        assert self._recorder is not None
        try:
            self._update_info(outcome or Outcome("completed"))
            self._saved = self._judged(self._recorder.record())
        finally:
            self._recorder.close()
        self._save(self._saved)

    @staticmethod
    def busy(frame: FrameType | None) -> bool:
        """Return True if code of a session runs in a frame, or in one that called it, and not the program's."""
        return at_work(frame)

    @property
    def folder(self) -> Path | None:
        """Folder that the run is saved in. None if the run is in memory."""
        return self.file.parent if self.file is not None else None

    @property
    def file(self) -> Path | None:
        """Path of the run file. None if the run is in memory. A folder with a run already gets a second file."""
        return self._recorder.path if self._recorder is not None else None

    @property
    def problem(self) -> str | None:
        """Sentences that say why the run, or a part of it, could not be saved. None if it could."""
        return self._recorder.problem if self._recorder is not None else None

    @property
    def remark(self) -> str | None:
        """Sentences about an irregularity by which nothing was lost. None if there was none."""
        return self._recorder.remark if self._recorder is not None else None

    @property
    def steps(self) -> int:
        """Number of optimizer steps so far."""
        self._capture.flush()
        return self._capture.steps

    # -- the answer ---------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        """Return the record of the run so far as a plain value. Raises AttachError if the session was never started."""
        if self._recorder is None:
            message = "the session was never started: use `with NeuralDbg(model) as dbg:` or start()"
            raise AttachError(message)
        if self._running:
            self._capture.flush()
            self._capture.summarise()
            self._update_info(Outcome("running"))
        record = self._recorder.record()
        # Before the first step nothing is recorded, but the layers are known.
        return record if record.layout.layers else replace(record, layout=self._capture.layout())

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of the run so far, after the end that of the whole run."""
        return self._saved if self._saved is not None else self._judged(self.record())

    def explain_failure(self) -> list[Hypothesis]:
        """Return the hypotheses on the failure, the most likely first; [] if no failure is known."""
        return list(self.diagnose().hypotheses)

    def get_causal_hypotheses(self) -> list[Hypothesis]:
        """Return the hypotheses of ``explain_failure``."""
        return self.explain_failure()

    def trace_causal_chain(self, failure: str) -> Chain:
        """Return the causal chain through a failure name, event kind, cause id or layer; empty if there is none."""
        return trace(self.record(), self.diagnose(), failure)

    def detect_coupled_failures(self) -> list[answers.Coupling]:
        """Return pairs of events that begin together, in one layer or along the data flow."""
        run = self.record()
        return answers.coupled(run.events, run.layout)

    # -- questions while it runs --------------------------------------------------------------------------------

    def capture_step(self, step: int | None = None) -> None:
        """End the current step now. This is needed only for optimizers that are no ``torch.optim.Optimizer``.

        ``step`` is the loop's own number: ``inspect(layer, step=...)`` then uses the same numbering.
        """
        self._capture.manual_step()
        if step is not None and self._capture.steps > self._numbered:
            self._numbered = self._capture.steps
            self._offset = step - (self._numbered - 1)

    def has_vanishing_gradients(self) -> bool:
        """Return True if gradients vanish in any layer, at the newest step that was read."""
        return self._going_on("vanishing_gradients")

    def has_exploding_gradients(self) -> bool:
        """Return True if gradients explode, or are not finite, in any layer at the newest step."""
        return self._going_on("exploding_gradients", "nonfinite_gradient")

    def inspect_layer(self, layer_name: str) -> answers.LayerState:
        """Return a layer's newest statistics. Raises UnknownLayer, which lists the nearest names."""
        return self.inspect(layer_name)

    def inspect(self, layer_name: str, step: int | None = None) -> answers.LayerState:
        """Return a layer's statistics at a step, by default the newest, with tensors if snapshots of it are kept.

        If that step is a light step, the statistics are those of the last full step before it: see ``step`` and
        ``unread`` of the result. Raises UnknownLayer, and LookupError for a step that is not recorded.
        """
        state = answers.inspect(self.record(), layer_name, step, self._offset)
        taken = self._snapshots.get(state.layer, state.step - self._offset) if self._snapshots is not None else None
        if taken is None:
            return state
        return replace(state, input=taken.input, output=taken.output, gradient=taken.gradient)

    def get_gradient_history(self, layer_name: str) -> Series:
        """Return the L2 norm of a layer's gradient over steps. Raises UnknownLayer."""
        found = answers.gradient_history(self.record(), layer_name)
        return replace(found, steps=found.steps + self._offset)

    def analyze_gradient_health(self) -> answers.GradientHealth:
        """Return the state of every layer's gradients at the newest step that was read."""
        return answers.gradient_health(self.record())

    def add_breakpoint(self, kind: str, action: Callable[[Event], None] | None = None) -> None:
        """Call ``action`` with the first event of each episode of a kind, or enter Python's debugger if it is None."""
        self._breakpoints.append((kind, action))
        self._capture.delivery.batch = 1  # a breakpoint must stop at its step

    # -- wiring -------------------------------------------------------------------------------------------------

    def _step(self, step: Step, layout: Layout) -> None:
        """Pass a step from capture to detectors, recorder, flight recorder and ``on_step``."""
        assert self._recorder is not None
        try:
            events = self._watch.observe(step, layout)
        except BaseException:  # such as a time limit of the program's: the step is recorded all the same
            self._recorder.put(step, layout, ())
            raise
        # The beginning of an event is worth full steps, even on credit.
        if any(event.first_step == step.index for event in events):
            self._capture.pace.governor.alarm()
        self._count = step.index + 1
        self._recorder.put(step, layout, events)
        if layout is not self._told or self._count % _TELL_EVERY == 0:  # a killed run's file needs its info, too
            self._told = layout
            self._update_info(Outcome("running"))
        if step.light:
            self._ring.add(step.index, {}, {}, step.loss)
        else:
            grads, acts = answers.norms(step, layout, "param_grad"), answers.norms(step, layout, "activation")
            self._ring.add(step.index, grads, acts, step.loss)
        if self._snapshots is not None and self._discover:
            self._attach_snapshots()
        if self._on_step is not None:
            self._on_step(step, tuple(events))
        for event in events:
            for kind, action in self._breakpoints:
                if event.kind == kind and event.first_step == event.last_step:
                    (action or _debugger)(event)

    def _background(self) -> float:
        return self._recorder.cpu_s if self._recorder is not None else 0.0

    def _noted(self, facts: tuple[Fact, ...]) -> None:
        assert self._recorder is not None
        self._recorder.note(facts)

    def _attach_snapshots(self) -> None:
        if self._snapshots is not None:
            for path, module in self._capture.hooks.modules.items():
                self._snapshots.attach(path, module)

    def _halt(self, reason: str, step: int) -> None:
        assert self._recorder is not None
        self._update_info(Outcome("halted", reason))
        raise TrainingHalted(reason, step, self._judged(self._recorder.record()))

    def _judged(self, run: RunRecord) -> Diagnosis:
        """Return the diagnosis of a record. An error of ours becomes its summary, and does not reach the program."""
        try:
            return diagnose(run)
        except Exception as error:  # noqa: BLE001 (a training program must not fail because its diagnosis does)
            self._capture.tally.caught("the diagnosis")
            reason = f"the diagnosis itself failed, which is an error in NeuralDBG: {error!r}"
            return Diagnosis("inconclusive", reason, events=run.events, unjudged=(Unjudged("the run", reason),))

    def _going_on(self, *kinds: str) -> bool:
        self._capture.flush()
        newest, read = self._count - 1, self._watch.read
        return any(e.kind in kinds and answers.going_on(e, newest, read) for e in self._watch.events)

    def _update_info(self, outcome: Outcome) -> None:
        capture = self._capture
        self._info = replace(
            self._info,
            models=tuple(model.name for model in capture.models.found),
            optimizers=tuple(stream.type for stream in capture.optimizers.streams),
            coverage=capture.coverage(),
            outcome=outcome,
        )
        assert self._recorder is not None
        self._recorder.tell(self._watch.events)
        self._recorder.update_info(self._info)

    def _save(self, diagnosis: Diagnosis) -> None:
        file = self.file
        if file is None:
            return
        name = RunName.of(file) or RunName()
        try:
            file.with_name(name.beside("diagnosis")).write_text(diagnosis.to_json() + "\n", encoding="utf-8")
            if diagnosis.verdict == "failing":
                self._ring.save_json(file.with_name(name.beside("crash")), trigger_reason=diagnosis.summary)
        except OSError as error:
            assert self._recorder is not None
            self._recorder.trouble(f"the diagnosis cannot be written to {file.parent}: {error}")

    def _judge(self, stream: int, loss: float | None, grad_norms: Mapping[str, float]) -> str | None:
        """Return the reason why a step must not be applied, None to apply it. Each optimizer has a trigger of its own,
        for the sake of a GAN's two losses.
        """
        if isinstance(self._halts, TriggerEngine):
            return self._halts.check(loss, grad_norms)
        if stream not in self._triggers:
            trigger = self.settings.trigger
            self._triggers[stream] = TriggerEngine(trigger.grad_threshold, trigger.spike_factor, above_start=True)
        return self._triggers[stream].check(loss, grad_norms)


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome("completed")
    if isinstance(error, KeyboardInterrupt):
        return Outcome("interrupted")
    if isinstance(error, TrainingHalted):
        return Outcome("halted", error.reason)
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if not _foreign(frame.filename)] or every  # the user's own line
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Outcome("raised", words_of(error), where)


def _foreign(file: str) -> bool:
    return "site-packages" in file or Path(file).is_relative_to(Path(__file__).parent)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "neuraldbg"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def _debugger(event: Event) -> None:
    print(f"NeuralDBG breakpoint: {json.dumps(event.details, default=str)[:500]}")  # noqa: T201 (an interactive stop)
    breakpoint()  # noqa: T100
