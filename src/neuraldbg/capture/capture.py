"""The capture stage: runs inside a training program and returns one ``Step`` for each optimizer step.

A step stays open after the post hook until the next pass begins: two optimizers after one backward make one step.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.autograd.saved_tensors import REGIONS
from neuraldbg.capture.coverage import coverage
from neuraldbg.capture.guest.guard import Switch, Tally, guarded
from neuraldbg.capture.guest.module_tree import tensors
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.layers.hook_manager import HookManager
from neuraldbg.capture.loop.backward import Losses
from neuraldbg.capture.loop.followed_thread import Owner
from neuraldbg.capture.loop.logged_metrics import Metrics
from neuraldbg.capture.loop.manual_steps import Unhooked
from neuraldbg.capture.loop.models import Models
from neuraldbg.capture.loop.optimizers import Optimizers
from neuraldbg.capture.loop.reader_context import Scene
from neuraldbg.capture.loop.torch_patches import Patches
from neuraldbg.capture.parameters.parameters import Params
from neuraldbg.capture.readers import Readers
from neuraldbg.capture.steps.delivery import BACKLOG_S, Closed, Delivery
from neuraldbg.capture.steps.fact_schedule import Learning
from neuraldbg.capture.steps.layout import Layouts
from neuraldbg.capture.steps.light_step import Seen, glimpse_of
from neuraldbg.capture.steps.native_light_steps import Light
from neuraldbg.capture.steps.step_accounting import Pace
from neuraldbg.capture.steps.step_mode import SETTLED, Stretches
from neuraldbg.capture.steps.step_scalars import scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor
    from torch.optim import Optimizer

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.statistics.device.pending import Awaited
    from neuraldbg.config import CaptureSettings
    from neuraldbg.nouns import Fact, Layout, Step

_PATIENCE_S, _ASKED_S = 1.0, 0.05
"""Seconds that the end of a session, and a question, wait at most for another thread that trains."""
_READ_BACKWARDS = 32
"""Backward passes of one step in which facts are read: a loop whose steps are not seen has one step that never ends."""


class Capture:
    """Watches models and optimizers, and emits a step with its layout as soon as it is complete.

    ``emit`` receives each step, ``amend`` metrics that come later (see ``Metrics``). ``judge`` gets the optimizer's
    stream, loss and norms of the layers' gradients before a step is applied, and returns a reason to halt or None;
    ``halt`` is then called with it, after the unapplied step was emitted, and is expected to raise. ``note`` receives
    facts that belong to no single step. ``background`` returns the CPU seconds that our own threads have taken so far.
    """

    @silently
    def __init__(
        self,
        settings: CaptureSettings,
        emit: Callable[[Step, Layout], None],
        *,
        discover: bool = False,
        judge: Callable[[int, float | None, Mapping[str, float]], str | None] | None = None,
        halt: Callable[[str, int], None] | None = None,
        note: Callable[[tuple[Fact, ...]], None] | None = None,
        background: Callable[[], float] = float,
        amend: Callable[[int, Mapping[str, float], Mapping[str, float]], None] | None = None,
    ) -> None:
        self.settings = settings
        self.tally = Tally()
        self.hooks = HookManager(layers=None, param_grads=False, settings=settings, tally=self.tally)
        self.metrics = Metrics(self.tally, emit, amend)
        self.delivery = Delivery(self.hooks.table, self.tally, self.metrics.deliver, self._arrived)
        self.pace = Pace(settings, self.tally, self.delivery, background)
        self.params = Params(self.hooks.table, forgot=self.delivery.hurry)
        self.switch = Switch()
        self.owner = Owner(
            self.switch,
            self.hooks,
            busy=self._busy,
            differentiating=lambda: self.losses.differentiating,
            progress=self._progress,
            release=self._release,
            give_up=self._give_up,
        )
        self.scene = Scene(settings, self.hooks, self.params, self.switch)
        self.readers = Readers(self.scene)
        self._make_loop(discover=discover, judging=judge is not None)
        self._judge, self._halt, self._note = judge, halt, note
        self._patches = Patches(self.metrics)
        self.learning = Learning(self.scene)
        parts = self.learning, self.light, self.pace.governor, self.readers, self._patches
        self.stretches = Stretches(self.scene, *parts)
        self._open: list[Stream] = []
        self._pending, self._closing = False, -1  # if a step has ended, and the newest that was closed, -1 for none
        self._booked = -1  # the newest full step that was booked
        self._together = False  # True once two optimizers have stepped after one backward
        self._closure = self._closures = False  # True if the newest step had a closure, and if any had one
        self._packed = 0  # regions of packed tensors that had begun before the session

    def _make_loop(self, *, discover: bool, judging: bool) -> None:
        """Make the parts that follow the training loop, and connect them."""
        tell = self.readers.at
        self.models = Models(self.hooks, self.params, self._before_pass, self.owner, tell, discover=discover)
        self.optimizers = Optimizers(
            self.params,
            self.tally,
            self._relevant,
            self._begin,
            self._ready,
            self._end,
            self.owner,
            tell,
            self.models.tell_of_glimpse,
            discovers=discover,
            judging=judging,
        )
        self.unhooked = Unhooked(self.scene)
        self.optimizers.after_clip = self.unhooked.after_clip
        self.losses = Losses(self.hooks, self.models, self._before_backward, self.unhooked.after_backward, tell)
        self.delivery.divided_by = self.losses.divided_by
        self.layouts = Layouts(self.hooks, self.losses)
        self.light = Light(
            self.hooks,
            self.optimizers,
            self.losses,
            self.models,
            self.layouts,
            self.pace,
            self.settle,
            self._reopen,
        )
        # The loop knows the port ``NativeSteps`` alone.
        self.losses.light = self.models.light = self.optimizers.light = self.owner.light = self.light
        self.scene.complete(self.models, self.optimizers, self.losses, self.light)
        self.metrics.complete(self.scene, self.delivery.lock, lambda step: self._pending or self._closing == step)
        self.hooks.table.grows = self.switch.hushed = self.light.leave

    # -- lifecycle ----------------------------------------------------------------------------------------------

    @silently
    def start(self) -> None:
        """Start watching: set wrappers and hooks."""
        self.owner.follow(get_ident())
        self.owner.claiming = True  # if threads train already, none is followed before all is ready
        try:
            self.pace.start()
            self.switch.turn_on()
            self._packed = REGIONS.entered
            REGIONS.watch()
            self._patches.listen(self.losses, self.models, self.optimizers, self.hooks, self._scaled)
            for owner, name, around in self.readers.patches():
                self._patches.surround(owner, name, around)
            self.optimizers.start()
            self.stretches.forget_compiled()
            self._prepare()
        finally:
            self.owner.claiming = False

    @silently
    def stop(self) -> None:
        """Close the last step, and restore torch."""
        # Another thread may be training; it has a second to come to rest.
        try:
            with self.owner.asked(_PATIENCE_S, within=True) as still:
                if still:
                    self.flush()  # the thread that trains waits meanwhile
                goes_on = self.owner.seize()
            if goes_on:
                self.models.leave_all()
            self.models.drop_untrained()
            self.flush()
            self.light.leave()
            self._close_unstepped()
            self.metrics.finish()
            self.summarise()
        except Exception:  # noqa: BLE001 (whatever happens, torch is put back)
            self.tally.caught("closing the last step")
        finally:
            self.light.abandon()
            self.switch.turn_off()
            self.optimizers.stop()
            self._patches.restore()
            REGIONS.unwatch()
            self.readers.at("stop")
            self.hooks.detach()
            self.hooks.graph.close()
            self.stretches.forget_compiled()

    @silently
    def flush(self) -> None:
        """Deliver all closed steps for a question, and the open one: if another thread trains, only if it is over."""
        with self.owner.asked(_ASKED_S) as still:
            try:
                if still:
                    self._close_open(asked=True)
                    self.metrics.arrive(wait=True)
                self.tell_light()
            finally:
                self.delivery.deliver(wait=still)  # only the thread that trains may query a device
                self.metrics.tell(wait=True)

    @silently
    def summarise(self) -> None:
        """Emit the facts that need the whole run so far."""
        with self.owner.asked(_ASKED_S) as still:
            if still:
                self.learning.summarise()
                self.readers.at("summarise")
            facts, self.scene.facts = (tuple(self.scene.facts), []) if still else ((), self.scene.facts)
        if facts and self._note is not None:
            self._note(facts)

    @property
    def steps(self) -> int:
        """Number of steps that are over."""
        return self.scene.step

    def _before_pass(self, calling: bool = True) -> None:
        self.light.leave()
        self._close_open(calling)

    def _close_open(self, calling: bool = False, *, asked: bool = False) -> None:
        self._patches.follow_imports()
        if self._pending or self.unhooked.ended(calling=calling, asked=asked):
            self._close()

    def _close_unstepped(self) -> None:
        for value in self.unhooked.unstepped(self.steps):
            self.losses.values = [value]
            self._close()
        self.delivery.deliver(wait=True)

    @silently
    def manual_step(self) -> None:
        """End a step that no hook reports: see ``Unhooked.ends``."""
        if self.switch.here() and (self._pending or self.unhooked.ends()):
            self.learning.check_unhooked(self.steps)
            self._close()
            self.owner.open = False

    def _busy(self) -> bool:
        """Return True if an operation of the followed thread is running, as far as Python's hooks know."""
        return self.models.inside or self.losses.differentiating or self.optimizers.stepping

    def _progress(self) -> tuple[int, ...]:
        """Return the progress of the followed thread; equal values mean that it did nothing."""
        return self.hooks.passes, self.models.evals, self.losses.total, self.hooks.step + self.light.waiting

    def _release(self) -> None:
        """Drop the operations of the followed thread, which has ended or is displaced."""
        self.owner.forget_claim()
        self.models.release()
        self.losses.release()
        self.optimizers.release()

    def _give_up(self, thread: int, kept: set[Any]) -> None:
        """Stop reading the models of a displaced thread, except those ``kept``."""
        self.models.give_up(thread, kept)
        self.optimizers.give_up(thread)

    # -- what the parts tell ------------------------------------------------------------------------------------

    def _relevant(self, opt: Optimizer) -> bool:
        """Return True if an optimizer trains watched parameters, or should: it may hold copies of the model's."""
        if self.params.in_optimizer(opt):
            return True
        if self.models.discover:
            return opt in self.optimizers._by_opt or not self.owner.missed  # noqa: SLF001
        self.params.refresh()  # load_state_dict(assign=True) makes new tensors, which a new optimizer holds
        if self.params.in_optimizer(opt):
            return True
        known = opt in self.optimizers._by_opt  # noqa: SLF001
        orphan = all(t.grad is None for t in tensors(opt))
        return known or (orphan and self.losses.backwards > 0)

    def _before_backward(self, accumulates: bool) -> bool:
        """Handle the begin of a backward pass. Return True if gradients left by an earlier one were cleared before."""
        self._before_pass(calling=False)
        self.learning.check_unhooked(self.steps)
        self.unhooked.before_backward(accumulates=accumulates)
        if not self.switch.in_full_step():
            return False
        if self.losses.backwards >= _READ_BACKWARDS:
            self.stretches.read(on=False)
        # autograd.grad leaves .grad alone, and may come before zero_grad
        return accumulates and self.optimizers.before_backward()

    def _reopen(self, stream: Stream) -> None:
        self._open, self._closure = [stream], False

    def _begin(self, stream: Stream, closure: bool) -> None:
        self.light.leave()
        if self._pending and stream in self._open:
            self._close()
        if self.switch.in_full_step():
            self.stretches.read(on=self.learning.reading(self.steps))
        self._closure = closure
        self._closures |= closure
        if stream not in self._open:
            self._open.append(stream)

    def _ready(self) -> None:
        """Judge the step, and halt before it is applied: gradients are final, weights still good."""
        if self._judge is None or (self._open and self._open[-1].overflowed):
            return  # nothing is applied: the scaler looks for its scale
        self.hooks.table.gather()
        stream = self._open[-1].index if self._open else 0
        norms = self.params.layer_norms(self.optimizers.watched.values())
        reason = self._judge(stream, self.losses.loss(closure=self._closure, stream=stream), norms)
        if reason is not None:
            step = self.steps
            self._close(applied=False)
            if self._halt is not None:
                self._halt(reason, step)

    def _end(self, stream: Stream) -> None:
        self._pending, self.owner.open = True, False
        self.learning.check(self.steps)
        self._together |= len(self._open) > 1
        # Open only while a second optimizer may belong to it. A model compiled as a whole reports no next pass.
        if (self.steps >= SETTLED and not self._together) or not self.models.entered:
            self._close()

    def _scaled(self, tensor: Tensor, scale: float, unscaled: Any) -> None:
        self.light.leave()
        self.losses.note_scaled(tensor, scale, unscaled)

    # -- a step ends --------------------------------------------------------------------------------------------

    def _close(self, *, applied: bool = True) -> None:
        """End the step: book it, and get ready for the next."""
        try:
            self._put_aside(applied=applied)
        except BaseException:  # a signal handler of the program's, or an error of ours: the next step must begin clean
            self._begin_again()
            raise

    def _begin_again(self) -> None:
        """Drop a step whose closing raised: no part of it may be counted with the next."""
        self._pending, self._closing = False, -1
        self.light.leave()
        self.losses.take()
        self.optimizers.watched.clear()
        self.hooks.table.begin()
        self._prepare(full=self.switch.in_full_step(), next_step=self._booked == self.steps)

    def _put_aside(self, *, applied: bool) -> None:
        self._closing, self._pending = self.steps, False
        own = self.tally.spent(self.pace.clock(now := self.pace.now()))
        if not self.switch.in_full_step():
            return self._close_light(now, own, applied=applied)
        counted, awaited = scalars(self.scene, self._open, closure=self._closure)
        try:
            self._learn()
        finally:  # a time limit of the program's may end the reading of facts: the step counts
            self._book(now, own, counted, awaited, applied=applied)
            self._get_ready(at_once=not applied)

    def _book(
        self, now: float, own: float, counted: dict[str, float], awaited: list[Awaited], *, applied: bool
    ) -> None:
        counted |= self.scene.scalars
        index = self._open[0].index if self._open else 0
        taken = self.hooks.table.take()
        late = self.hooks.table.send(taken, awaited)
        facts, watched = tuple(self.scene.facts), tuple(self.optimizers.watched.values()) if applied else ()
        closed = Closed(self.steps, index, now, counted, facts, applied, self.layouts.now(), taken, watched, late)
        self._booked = self.steps
        self.pace.book(closed, own, self.tally.seconds)

    def _close_light(self, now: float, own: float, *, applied: bool) -> None:
        stream = self._open[0] if self._open else None
        odd = self.losses.odd or not applied or bool(self.scene.facts)
        seen = self._seen(stream) if self.switch.sighted else None
        glimpse = glimpse_of(self.steps, self._open, now, self.losses.take(), own, closure=self._closure, seen=seen)
        self.pace.waiting.append(glimpse)
        self._open.clear()
        self.models.forget_glimpse()
        self.hooks.step += 1
        if odd or self.hooks.step >= self.stretches.until or self.pace.due(now):
            self.tell_light(applied=applied, learnt=True)
            self._get_ready(again=False, at_once=not applied)
        if stream is not None and applied and self.switch.on and not self.switch.in_full_step() and not self._together:
            self.light.enter(stream, now)
            self.light.expect(self.stretches.until)

    # -- light steps that native code has taken -----------------------------------------------------------------

    @guarded
    def settle(self) -> None:
        """Process the waiting light steps, when native code calls for it."""
        if not self.switch.on:
            self.light.leave()
            return
        self.tell_light(learnt=True)
        self._patches.follow_imports()
        self._get_ready(again=False)
        self.light.expect(self.stretches.until)

    def tell_light(self, *, applied: bool = True, learnt: bool = False) -> None:
        """Book the light steps that wait, native ones included; with the facts of the last if ``learnt``: not from
        another thread, while one may be logged.
        """
        facts: tuple[Fact, ...] = ()
        with self.delivery.lock:
            self.light.drain()
            if learnt and self.pace.waiting:
                self.learning.check(self.steps - 1)
                facts, self.scene.facts = tuple(self.scene.facts), []
            self.pace.settle(self.layouts.latest(), self.optimizers.reading_s, facts, applied=applied)

    def _seen(self, stream: Stream | None) -> Seen:
        """Return the readings of sites in a light step, and clear them."""
        stepped = tuple(self.optimizers.watched.values())
        if stream is not None and stepped:
            stream.glimpse, stream.weighed = (self.params.grad_norm(stepped), 0), True
        self.optimizers.watched.clear()
        self.params.begin_step()
        return Seen(self.hooks.table.take(), stepped, self.layouts.now(), self.light.sizes)

    def _get_ready(self, *, again: bool = True, at_once: bool = False) -> None:
        """Decide the mode of the next step, and deliver those that are over if it is time: all of them ``at_once``, or
        if a breakpoint must stop at its step.
        """
        governor = self.pace.governor
        self.losses.usual, self.pace.usual_norm = self.pace.usual_loss, _ = governor.usual
        self.optimizers.norms_every = governor.norms_every(self.optimizers.reading_s)
        stream = self._open[0] if self._open else None
        read = self.stretches.full(self.steps + again, plain=not (self._together or self._closures))
        self._prepare(full=read, next_step=again)
        if self.switch.sighted and stream is not None and not (self.switch.in_full_step() or self.light.entered):
            self.light.start(stream, self.pace.last)
            self.light.expect(self.stretches.until)
        if self.pace.deliver:
            self.pace.deliver = False
            self.delivery.deliver(wait=at_once or self.delivery.at_once)

    def _arrived(self, closed: Closed) -> bool:
        """Handle the arrival of a step's device values. Return True if one is unusual."""
        if closed.taken is not None:
            self.layouts.refresh_called(closed.taken.raw)
        return self.pace.watch(closed)

    def _learn(self) -> None:
        """Read the facts of a full step."""
        self.layouts.refresh_called(self.hooks.table.rows.values)
        self.learning.learn(self.steps, self._open, self.layout)
        self.readers.at("step_closes")

    def deliver_late(self) -> None:
        """Deliver steps that have waited too long: called by the writer's thread."""
        try:
            with self.delivery.lock:  # leave takes it, too: meanwhile no step moves to Python's hooks
                if self.pace.now() - self.light.since() > BACKLOG_S:
                    self.tell_light()
            self.delivery.deliver_late(self.pace.now())
            self.metrics.tell()
        except Exception:  # noqa: BLE001 (the writer's thread has steps to write)
            self.tally.caught("handing on steps that have waited")

    def _prepare(self, *, full: bool = True, next_step: bool = False) -> None:
        """Clear the step's readings, and get ready for the next."""
        self.hooks.step += next_step
        for stream in self._open:
            self.optimizers.begin_stream(stream, self.steps)
        self._open.clear()
        self.losses.begin_step()
        self.models.forget_glimpse()
        if not full:
            self.stretches.go_light()
            return
        self.stretches.go_full()
        self.scene.facts.clear()
        self.scene.scalars.clear()
        self.optimizers.watched.clear()
        self.optimizers.skipped, self.optimizers.clipped = 0, None
        self.models.begin_step()
        self.params.begin_step()
        self.hooks.begin_step(self.steps)
        self.stretches.listen()
        self.stretches.read(on=self.learning.reading(self.steps))

    # -- what is where ------------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """Return the current layout."""
        return self.layouts.now()

    def coverage(self) -> dict[str, Any]:
        """Return the coverage report."""
        packed, logged = REGIONS.entered > self._packed, self.metrics.notes()
        steps, cost, recompiled = self.steps, self.pace.cost(), self.stretches.recompiled
        return coverage(self.scene, logged, steps=steps, cost=cost, recompiled=recompiled, packed=packed)
