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

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neuraldbg import answers, clocks
from neuraldbg.arguments import function, one_of, path, text, texts, whole
from neuraldbg.capture import Capture
from neuraldbg.capture.attach_checks import check
from neuraldbg.capture.coverage import device_of
from neuraldbg.capture.guest.dynamo_skip import at_work
from neuraldbg.capture.layers.layer_names import layout_of
from neuraldbg.capture.layers.snapshots import Snapshots
from neuraldbg.capture.statistics import whole_tensors
from neuraldbg.config import OVERHEAD, settings_of
from neuraldbg.control import Breakpoints, Halts, TriggerEngine, UserCalls
from neuraldbg.detect.watch import Watch
from neuraldbg.errors import AttachError, ConfigError, EndedByHand, TrainingHalted
from neuraldbg.nouns import Diagnosis, Outcome, RunInfo, Unjudged
from neuraldbg.questions import Questions, in_short
from neuraldbg.ranks import own_rank
from neuraldbg.record import KeptBatches, Recorder, RingBuffer, Spare, ring_bytes
from neuraldbg.record.loop_numbers import LoopNumbers
from neuraldbg.record.outcome import outcome_of, save_beside, versions
from neuraldbg.session_alerts import SessionAlerts
from neuraldbg.session_controls import SessionControls
from neuraldbg.session_hooks import SessionHooks
from neuraldbg.session_profile import SessionProfile
from neuraldbg.session_stops import Stops
from neuraldbg.show.shown_run import Shown

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import FrameType, TracebackType

    from torch import nn
    from torch.optim import Optimizer
    from typing_extensions import Self

    from neuraldbg.alerts import Alerts
    from neuraldbg.control.page_link import PageAddress
    from neuraldbg.nouns import Event, Fact, Hypothesis, Layout, RunRecord, Step

_TELL_EVERY = 256
"""Steps after which the coverage in the run file is updated."""


class NeuralDbg(Questions, SessionControls, Shown):
    """A session that watches the training of a model, and explains why it failed.

    ``with NeuralDbg(model) as dbg:`` around an existing loop is enough; steps, losses and optimizers are found
    automatically. ``model`` may be None with ``discover=True``: then every model that is called is watched.
    ``optimizer`` need not be given: if it is, it must hold parameters of the model.

    ``halt=True`` stops training with TrainingHalted before a bad step is applied, so that the weights are still good; a
    ``TriggerEngine`` instead of True has thresholds of its own. ``out`` is a folder for the run file, None to keep the
    run in memory. ``snapshots`` are patterns of layers' paths (``fnmatch``: ``layers.*.attention``) whose tensors are
    kept, the newest of them, in ``snapshot_bytes`` at most. ``overhead`` is the share of the training's time that
    watching may take (0.01 is 1%) after up to two seconds at the start, None for no limit: then every layer is read at
    every step. ``probes=False`` disables the few experiments on a copy of the model. ``profile=True`` measures time,
    work and memory of each layer in sampled steps all along, None in three steps within that share, False never; and
    ``trace=(20, 24)`` saves what ``torch.profiler`` sees of the steps 20 to 24, both included, beside the run file, for
    Perfetto. ``settings`` and ``thresholds`` override defaults of ``neuraldbg.config`` and of detectors. ``script`` and
    ``argv`` name the run in reports, and ``note`` stands under all of its pictures. ``on_step`` is called with each
    step and its events. ``alerts`` are rules by which a person is told while it trains (``["nan", "critical:loss >
    5"]``), or an `Alerts` that says where they go, too. ``dashboard`` is the process whose page may stop the training,
    as ``neuraldbg run --dashboard`` gives it.

    Raises AttachError for a model or optimizer that cannot be watched, ConfigError for a setting, UnknownLayer for a
    snapshot pattern that fits no layer, UnknownName for a rule that names nothing.
    """

    _spare: Spare | None = None
    _saved: Diagnosis | None = None
    _told: Layout | None = None

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
        profile: bool | None = None,
        trace: tuple[int, int] | None = None,
        snapshots: Sequence[str] = (),
        snapshot_bytes: int = 64 * 2**20,
        settings: Mapping[str, Any] | None = None,
        thresholds: Mapping[str, Mapping[str, Any]] | None = None,
        script: str = "",
        argv: Sequence[str] = (),
        note: str = "",
        on_step: Callable[[Step, tuple[Event, ...]], None] | None = None,
        dashboard: PageAddress | None = None,
        alerts: Alerts | Sequence[str] | None = None,
    ) -> None:
        self.settings = settings_of(settings, thresholds, overhead, probes=probes)
        if model is not None:
            check(model, optimizer)
        elif not discover:
            raise ConfigError("NeuralDbg needs a model, or discover=True to find the models by itself")
        self._model, self._discover = model, discover
        asked = one_of(halt, (bool, TriggerEngine), "halt: give True, False or a TriggerEngine")
        self._halts = Halts(asked, self.settings.trigger)
        self._watch = Watch(self.settings.thresholds)
        self._capture = Capture(
            self.settings.capture,
            self._step,
            discover=discover,
            judge=self._halts.judge if halt else None,
            halt=self._halt,
            note=self._noted,
            background=self._background,
            amend=lambda *late: self._recorder.amend(*late) if self._recorder is not None else None,
        )
        self._capture.delivery.expect = self._watch.expect
        self._snapshots = Snapshots(snapshots, snapshot_bytes, lambda: self._capture.steps) if snapshots else None
        if self._snapshots is not None and model is not None:
            self._snapshots.check(model)
        self._ring = RingBuffer(self.settings.record.ring, ring_bytes(self.settings.record))
        self._on_step, self._breakpoints = function(on_step, "on_step"), Breakpoints(UserCalls())
        self._info = RunInfo(text(script, "script"), texts(argv, "argv"), versions=versions(), note=text(note, "note"),
                             job=own_rank().told())  # fmt: skip
        self._recorder: Recorder | None = None
        self._wanted = path(out, "out") if out is not None else None
        self._numbers, self._count, self._running = LoopNumbers(), 0, False
        self._hooks = SessionHooks(
            self._capture, self._halt, lambda: self._wanted, self._known_layout, self._breakpoints.calls
        )
        self._alerts = self._alerting(alerts)
        self._stops, self._dashboard = Stops(self, self._capture, self._hooks, self._breakpoints), dashboard
        self._profile = SessionProfile(self._capture, profile, trace, saved=self._wanted is not None)

    # -- lifecycle ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(outcome_of(error))

    def start(self) -> None:
        """Attach to torch and the model: ``with`` does it. Other sessions may run: each answers as if it were alone.

        Raises AttachError if this session was started before.

        >>> session = NeuralDbg(model)
        >>> session.start()
        >>> train(3)
        >>> session.stop()
        """
        if self._recorder is not None:
            state = "runs already" if self._running else "has ended; make a new NeuralDbg to watch again"
            message = f"this session {state}"
            raise AttachError(message)
        self._info = replace(self._info, started=clocks.now())
        self._recorder = Recorder(
            self._wanted, self.settings.record, self._info, rank=own_rank().rank, pull=self._capture.deliver_late
        )
        kept = KeptBatches(self.settings.record.batch_mb << 20, lambda: self.file)
        self._capture.scene.keep, self._capture.scene.room = kept.keep, kept.room
        self._running = True
        try:
            self._spare = Spare() if self._wanted is not None else None
            self._breakpoints.on_events("on_event", lambda _: True, self._hooks.began)
            self._alerts.start()
            self._hooks.start()
            self._capture.start()
            if self._dashboard is not None:
                self._stops.listen(self._dashboard, lambda: self.file)
            self._profile.start(self.folder)
            model, self._model = self._model, None  # no reference of ours keeps the model alive
            if model is not None:
                self._capture.models.watch(model)
                self._attach_snapshots()
        except BaseException:
            self.stop()
            raise

    def stop(self, outcome: Outcome | None = None) -> None:
        """Detach, remove all hooks and wrappers, and save the run. Does nothing if the session is not running.

        ``outcome`` is how the program ended; by default it was completed. Training is never disturbed: what could not
        be saved is said in the diagnosis and by ``neuraldbg explain``.
        """
        if not self._running:
            return
        self._running = False
        if self._spare is not None:
            self._spare.release()
        self._stops.close()
        self._profile.stop()
        self._capture.stop()
        self._hooks.stop()
        if self._snapshots is not None:
            self._snapshots.detach()
        assert self._recorder is not None
        try:
            self._update_info(outcome or Outcome("completed"))
            if not self._count and self._capture.layout().layers:
                self._recorder.know(self._capture.layout())
            self._saved = self._judged(self._recorder.record())
            self._alerts.judge(self._credible(self._saved), max(0, self._count - 1))
            self._alerts.finish()
        finally:
            self._recorder.close()
        self._save(self._saved)
        try:
            with suppress(TrainingHalted):  # of an action: the training has ended
                self._meet(self._saved)
        finally:
            self._alerts.stop()  # waits for what is on its way, when all is saved

    def busy(self, frame: FrameType | None) -> bool:
        """Return True if code of a session runs in a frame, or in one that called it, and not the program's. A training
        that waits for a dashboard goes on then: a signal is about to end it.
        """
        working = at_work(frame)
        if working:
            self._stops.let_go()
        return working

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

    def __repr__(self) -> str:
        if self._recorder is None:
            return "<NeuralDbg: not started>"
        self._capture.flush()
        kinds = [event.kind for event in self._watch.events]
        state = "running" if self._running else "ended"
        return f"<NeuralDbg: {state}, {in_short(self._count, self._info.models, kinds, self._saved)}>"

    # -- the answer ---------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        """Return the record of the run so far as a plain value. Raises AttachError if the session was never started.

        >>> dbg.record().steps
        40
        """
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
        """Return the diagnosis of the run so far, after the end that of the whole run.

        Raises AttachError if the session was never started.

        >>> dbg.diagnose().verdict
        'failing'
        """
        return self._saved if self._saved is not None else self._judged(self.record())

    # -- questions while it runs --------------------------------------------------------------------------------

    def capture_step(self, step: int | None = None) -> None:
        """End the current step now. This is needed only where no step can be seen: for weights that no module holds,
        and in a loop without a backward pass, such as one with ``torch.func.grad``.

        Steps of a torch optimizer count by themselves, and so do updates of a module's weights by hand or by another
        optimizer after a backward pass. Beside a torch optimizer this may be called for every micro-batch.

        ``step`` is the loop's own number. Every answer counts optimizer steps from 0, also in a loop that was resumed
        at step 1,000 or counts its batches anew in each epoch; an error about such a number says which step it is.

        >>> with NeuralDbg(model) as session:
        ...     model(inputs[0]).mean().backward()
        ...     session.capture_step()  # after the update
        """
        step = None if step is None else whole(step, "step")
        self._capture.manual_step()
        if step is not None:
            self._numbers.add(self._capture.steps - 1, step)

    def inspect(self, layer_name: str, step: int | None = None) -> answers.LayerState:
        """Return a layer's statistics at a step, by default the newest, with tensors if snapshots of it are kept.

        If that step is a light step, the statistics are those of the last full step before it: see ``step`` and
        ``unread`` of the result. Raises UnknownLayer, and UnknownStep for one that is not recorded.

        >>> dbg.inspect("linear1", step=12).statistics["param_grad/weight"]["norm"] > 0
        True
        """
        run, step = self.record(), None if step is None else whole(step, "step")
        state = answers.inspect(run, layer_name, step, self._numbers.hint(step, run.steps))
        taken = self._snapshots.get(state.layer, state.step) if self._snapshots is not None else None
        if taken is None:
            return state
        return replace(state, input=taken.input, output=taken.output, gradient=taken.gradient)

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
            self._breakpoints.calls.call("on_step", step.index, self._on_step, step, tuple(events))
        self._alerts.stepped(step, events)
        self._hooks.stepped(step)
        self._breakpoints.tell(events, step.index)
        if self._breakpoints.take_due() | self._alerts.take_due():
            self._update_info(Outcome("running"))
            self._meet(self._judged(self._recorder.record()))

    def _meet(self, diagnosis: Diagnosis) -> None:
        """Call the breakpoints of the causes that a diagnosis names, and raise alerts of them."""
        credible, step = self._credible(diagnosis), max(0, self._count - 1)
        if self._running:
            self._alerts.judge(credible, step)
        self._breakpoints.judge(credible, step)

    @staticmethod
    def _credible(diagnosis: Diagnosis) -> list[Hypothesis]:
        from neuraldbg.explain import CREDIBLE  # noqa: PLC0415 (as above)

        return [one for one in diagnosis.hypotheses if one.confidence >= CREDIBLE]

    def _alerting(self, given: Alerts | Sequence[str] | None) -> SessionAlerts:
        """Return what raises the alerts of this session, and lead those of hooks to it."""
        alerts = SessionAlerts(
            given,
            self._breakpoints.calls,
            steps=lambda: self._capture.steps,
            memory=whole_tensors.memory_in_use,
            note=self._noted,
            about=self._about,
            layout=self._known_layout,
            add_hook=self._hooked,
            see_each_step=self._hooks.see_steps_soon,
        )
        self._hooks.alert = alerts.tell
        return alerts

    def _about(self) -> dict[str, Any]:
        """Return what an alert says of the run."""
        folder = self.folder
        return {"rank": own_rank().rank, "run": str(folder) if folder else "", "script": self._info.script}

    def _known_layout(self) -> Layout:
        """Return the layers that are known: before the start those of the model, in the order of its modules."""
        if self._recorder is not None or self._model is None:
            return self._capture.layout()
        return layout_of(self._model)

    def _background(self) -> float:
        return self._recorder.cpu_s if self._recorder is not None else 0.0

    def _noted(self, facts: tuple[Fact, ...]) -> None:
        assert self._recorder is not None
        self._recorder.note(facts)

    def _attach_snapshots(self) -> None:
        if self._snapshots is not None:
            for path, module in self._capture.hooks.modules.items():
                self._snapshots.attach(path, module)

    def _halt(self, reason: str, step: int, kind: type[TrainingHalted] = TrainingHalted) -> None:
        assert self._recorder is not None
        if (event := self._halts.event(step, self._watch.events)) is not None:
            self._watch.keep(event)
            self._alerts.told([event], step)
            self._breakpoints.tell([event], step)
        if kind is not EndedByHand:
            self._alerts.halted(reason, step)
        self._update_info(Outcome("interrupted") if kind is EndedByHand else Outcome("halted", reason))
        diagnosis = self._judged(self._recorder.record())
        self._meet(diagnosis)
        raise kind(reason, step, diagnosis)

    def _judged(self, run: RunRecord) -> Diagnosis:
        """Return the diagnosis of a record. An error of ours becomes its summary, and does not reach the program."""
        from neuraldbg.explain import diagnose  # noqa: PLC0415 (a hundred causes, needed at the end)

        try:
            return diagnose(run)
        except Exception as error:  # noqa: BLE001 (a training program must not fail because its diagnosis does)
            self._capture.tally.caught("the diagnosis")
            reason = f"the diagnosis itself failed, which is an error in NeuralDBG: {error!r}"
            return Diagnosis("inconclusive", reason, events=run.events, unjudged=(Unjudged("the run", reason),))

    def _now(self) -> tuple[tuple[Event, ...], int, int]:
        """Return events and newest steps without a look at the record: a training loop may ask at every step."""
        if self._recorder is None:
            self.record()  # which says so
        self._capture.flush()
        return self._watch.events, self._count - 1, self._watch.read

    def _update_info(self, outcome: Outcome) -> None:
        capture = self._capture
        if measured := self._profile.facts():
            self._noted(measured)
        notes = [*self._breakpoints.calls.notes, *self._alerts.notes, *self._profile.notes]
        # A walk over all parameters: at the beginning and the end.
        device = device_of(capture.scene) if self._count < 2 or outcome.kind != "running" else ""
        self._info = replace(
            self._info,
            models=tuple(model.name for model in capture.models.found),
            optimizers=tuple(stream.type for stream in capture.optimizers.streams),
            device=device or self._info.device,
            coverage=self._stops.told(capture.coverage(), notes),
            outcome=outcome,
            ended=clocks.now() if outcome.kind != "running" else 0.0,
        )
        assert self._recorder is not None
        self._recorder.tell(self._watch.events)
        self._recorder.update_info(self._info)

    def _save(self, diagnosis: Diagnosis) -> None:
        file = self.file
        if file is None:
            return
        try:
            save_beside(file, diagnosis, self._ring)
        except OSError as error:
            assert self._recorder is not None
            self._recorder.trouble(f"the diagnosis cannot be written to {file.parent}: {error}")
