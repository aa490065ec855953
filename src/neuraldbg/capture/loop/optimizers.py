"""Optimizer steps: which parameters each changes, their weights and gradients before it, and the updates after it.

torch calls the global step hooks around ``step`` of every ``torch.optim.Optimizer``, subclasses included. The pre hook
sees final gradients while the weights are still those of the forward pass.
"""

from __future__ import annotations

import math
import sys
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.live_objects import made
from neuraldbg.capture.guest.module_tree import rates, scale_of, scales, tensors
from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import Identities, is_a, name_of
from neuraldbg.capture.guest.stand_in import stand_in
from neuraldbg.capture.loop import fused_steps, program_facts
from neuraldbg.capture.loop.moments import Backward
from neuraldbg.capture.loop.optimizer_stream import Rates, Stream, place
from neuraldbg.capture.parameters.gradient_norm import Norm
from neuraldbg.capture.parameters.outside_changes import OutsideChanges
from neuraldbg.capture.parameters.stale_gradients import ALWAYS_CHECKED, CHECK_EVERY, stale_share
from neuraldbg.clocks import perf_counter, sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.followed_thread import Owner
    from neuraldbg.capture.loop.native_steps import NativeSteps
    from neuraldbg.capture.loop.optimizer_stream import Begun
    from neuraldbg.capture.parameters.parameters import Params
    from neuraldbg.capture.parameters.read_plan import Stepped
    from neuraldbg.capture.statistics.watched_parameter import Watched

_STEPPING_S, _POLL_S = 1.0, 0.0005
_NONE = Tensor()
_STEP = Optimizer.profile_hook_step(lambda: None).__code__
"""Code object of the wrapper around each ``step`` of torch's, which calls the global hooks."""


class Optimizers:
    """Handles every optimizer step, and reports it to the capture."""

    def __init__(
        self,
        params: Params,
        tally: Tally,
        relevant: Callable[[Optimizer], bool],
        begin: Callable[[Stream, bool], None],
        ready: Callable[[], None],
        end: Callable[[Stream], None],
        owner: Owner,
        tell: Callable[..., None],
        tell_of_call: Callable[[], None],
        *,
        discovers: bool,
        judging: bool,
    ) -> None:
        self._tell, self._tell_of_call = tell, tell_of_call
        self.light: NativeSteps
        """Native code that takes usual light steps, before they come here."""
        self.owner, self.switch = owner, owner.switch
        self.params = params
        self.tally = tally
        self.streams: list[Stream] = []
        self.watched: dict[int, Watched] = {}
        """The parameters stepped in the current step, by identity."""
        self.loss_scale: float | None = None
        self.skipped = 0
        self.clipped: tuple[Any, float] | None = None
        """(total norm, None if unreadable; limit) of the step's last clip_grad_norm_, None if there was none."""
        self.limit: float = math.inf  # of the newest clip
        self.after_clip: Callable[[], None] = lambda: None
        self.discovers = discovers
        """True if any optimizer is followed, not only those of given models."""
        self.judging = judging
        """True if the gradients of each step are judged before it is applied."""
        self.norms_every = 1
        """Light steps from one reading of all gradients to the next."""
        self.reading_s = 0.0
        """Seconds that reading the gradients of a light step has taken lately, a running mean."""
        self.allowed_s = 0.0
        """Seconds that reading the gradients of a light step may take."""
        self.reading = True
        """True if facts are read in this step."""
        self.outside = OutsideChanges()
        self._relevant = relevant
        self._begin, self._ready, self._end = begin, ready, end
        self._by_opt: Identities[Optimizer, Stream] = Identities()
        self._near: Identities[Optimizer, bool] = Identities()
        """True for an optimizer of other threads whose tensors share memory with watched parameters."""
        self._unstepped: list[Rates] = []
        self._fresh = False
        """True if replaced parameters were searched since the last backward pass."""
        self._handles: list[RemovableHandle] = []
        self._newest: Stream | None = None
        self._running: list[int] = []
        """Optimizers whose step has begun and not ended, outermost first, by identity."""

    def start(self) -> None:
        """Set the global hooks."""
        wait_between_steps()
        with numbers_apart():
            self._handles = [
                register_optimizer_step_pre_hook(self.light.begins),
                register_optimizer_step_post_hook(self.light.ends),
            ]

    def stop(self) -> None:
        """Remove the global hooks."""
        wait_between_steps()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def add(self, opt: Optimizer) -> Stream:
        """Return an optimizer's stream, made when it is first seen."""
        stream: Stream | None = self._by_opt.get(opt)
        if stream is None:
            stream = self._replacing(opt) or Stream(len(self.streams), opt)
            if stream.index == len(self.streams):
                self.streams.append(stream)
            self._by_opt[opt] = stream
        return stream

    def _known(self, opt: Optimizer) -> Stream | None:
        """Return an optimizer's stream, None if it has none. Usually the optimizer that stepped last steps again."""
        if self._newest is None or self._newest.opt() is not opt:
            self._newest = self._by_opt.get(opt)
        return self._newest

    def _replacing(self, opt: Optimizer) -> Stream | None:
        """Return the stream of a dead optimizer of the same type and parameters: a program may make one per epoch."""
        mine = tensors(opt)
        for stream in self.streams:
            if stream.opt() is None and stream.type == name_of(opt) and stream.rates.are_of(mine):
                stream.opt, stream.new = weakref.ref(opt), True
                return stream
        return None

    @property
    def _alone(self) -> bool:
        """True if one optimizer alone steps the watched parameters."""
        return len(self.streams) == 1 and not self.params.beside

    @property
    def stepping(self) -> bool:
        """True while the followed thread steps an optimizer."""
        return bool(self._running)

    def release(self) -> None:
        """Drop the current step: its thread has ended."""
        self._running.clear()

    def give_up(self, thread: int) -> None:
        """Stop reading the gradients of optimizers that a thread steps which is no longer followed."""
        for stream in self.streams:
            stream.apart |= stream.thread == thread

    def begins(self, opt: Optimizer, args: Any, kwargs: Any) -> Any:
        """Handle the begin of a step of any optimizer, in whatever thread: a global pre hook."""
        if not self.switch.on or not (self.owner.claims() or self._asks(opt)):
            return None
        given = self._begins(opt, args, kwargs)
        self.owner.claiming = False  # ``_running`` now has the step
        return given

    @guarded
    def _asks(self, opt: Optimizer) -> bool:
        """Return True if a step in this thread, which was not followed so far, is followed."""
        if self.owner.lends():
            return True
        ours = opt in self._by_opt or self.params.in_optimizer(opt)
        return self.owner.asks("step", ours=ours, new=ours)

    @guarded
    def _begins(self, opt: Optimizer, args: Any, kwargs: Any) -> Any:
        stream = self._known(opt)
        if (stream is None or self.switch.in_full_step()) and not self._relevant(opt):
            return None
        # A step may contain steps: of torch's class, or of another optimizer.
        self._running.append(id(opt))
        if self._running.count(id(opt)) > 1:
            if _depth(opt) > 1:  # a subclass whose step calls torch's: one step
                return None
            others = [one for one in self._running if one != id(opt)]
            self._running = [*others, id(opt)]  # a step that raised never ended
        stream = stream or self.add(opt)
        stream.thread, stream.apart = get_ident(), False
        # A closure computes its gradients inside of the step.
        closure = kwargs.get("closure") if "closure" in kwargs else (args[1] if len(args) > 1 else None)
        if not callable(closure):
            closure = None  # an argument of the subclass's own
        self._begin(stream, closure is not None)
        if self.loss_scale is not None:
            fused_steps.note_overflow(stream, opt, wait=self.judging)
        stream.outside = self.outside.before(stream.kept, alone=self._alone)
        if not self.switch.in_full_step():
            if self.switch.sighted:
                return self._look(stream, opt, closure, args, kwargs)
            self._glimpse(stream, opt, closure=closure is not None)
            return None
        # Parameters may have been replaced since the last backward pass.
        if not self._fresh:
            self._fresh = True
            self.params.refresh()
        self.params.drop_ahead()
        self._read_rate(stream, opt)
        if self.reading or stream.new:
            stream.rates = Rates(opt)
            self.params.note_rates(stream.rates.now())
        stream.stepped_with()
        self._tell("step_begins", stream, opt)
        return self._read(stream, opt, closure, args, kwargs)

    def _look(self, stream: Stream, opt: Optimizer, closure: Any, args: Any, kwargs: Any) -> Any:
        """Read a light step whose sites are read."""
        self._read_rate(stream, opt)
        given = self._read(stream, opt, closure, args, kwargs)
        if closure is None and not stream.overflowed and math.isnan(self.params.grad_norm(self.watched.values())):
            self._tell_of_call()
            self._tell("backward_ends", Backward(_NONE, None, True, None, None))
        return given

    @staticmethod
    def _read_rate(stream: Stream, opt: Optimizer) -> None:
        lrs = rates(opt)
        stream.lr = max(lrs) if lrs else None

    def _read(self, stream: Stream, opt: Optimizer, closure: Any, args: Any, kwargs: Any) -> Any:
        """Read weights and gradients before a step. Return new arguments for the step, None to keep its own."""
        watched = stream.held = self.params.owned(stream.tensors())
        known = len(self.watched)
        self.watched.update({w.key: w for w in watched})
        if closure is None:
            again = len(self.watched) < known + len(watched)  # an optimizer that steps another one
            self.params.read_before(watched, fused_steps.grad_scale(opt, wait=self.judging), again=again)
            self._ready()
            return None
        self.params.read_weights(watched)
        return self._with_closure(closure, args, kwargs)

    def _glimpse(self, stream: Stream, opt: Optimizer, *, closure: bool) -> None:
        """Read a light step: the learning rate and the norm of the gradients; all gradients if they are judged."""
        self._read_rate(stream, opt)
        stream.glimpse = stream.awaited_norm = None
        stream.weighed = False
        if self.judging:
            watched = self.params.owned(stream.tensors())
            self.watched.update({w.key: w for w in watched})
            self.params.read_gradients(watched, fused_steps.grad_scale(opt, wait=True))
            self._ready()
        elif not closure and not stream.overflowed:  # the gradients of a closure are still to come
            if stream.norm is None or stream.norm.outdated:
                watched = self.params.owned(stream.tensors())
                stream.norm = Norm(watched, self.allowed_s, stream.usual, stream.norm)
            # The full norm is due every ``norms_every`` steps, and when a few gradients are unusual.
            stream.weighed = stream.steps % self.norms_every == 0
            if not stream.weighed and stream.norm.waits:
                stream.awaited_norm = stream.norm.glance(fused_steps.grad_scale(opt, wait=False))
                return
            if not stream.weighed and not stream.norm.seems_odd():
                return
            stream.weighed = True
            began = perf_counter()
            if stream.norm.waits:
                stream.awaited_norm = stream.norm.awaited(fused_steps.grad_scale(opt, wait=False))
                self.reading_s += 0.1 * (perf_counter() - began - self.reading_s)
                return
            stream.glimpse = stream.norm.read()
            self.reading_s += 0.1 * (perf_counter() - began - self.reading_s)
            if stream.glimpse is not None:  # a fused optimizer unscales inside of its step
                stream.glimpse = stream.glimpse[0] / float(fused_steps.grad_scale(opt, wait=True)), stream.glimpse[1]
            # A non-finite gradient is reported to the readers that search its origin.
            if stream.glimpse is not None and stream.glimpse[1]:
                self._tell_of_call()
                self._tell("backward_ends", Backward(_NONE, None, True, None, None))

    def _with_closure(self, closure: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """Return the arguments with a closure that reads the gradients after each evaluation, so that it can halt."""
        watched = list(self.watched.values())

        def around() -> Around:
            yield
            self._evaluated(watched)

        evaluated = stand_in(closure, around)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": evaluated}
        return (args[0], evaluated, *args[2:]), kwargs

    @guarded
    def _evaluated(self, watched: list[Watched]) -> None:
        self.params.read_gradients(watched)
        self._ready()

    def ends(self, opt: Optimizer, args: Any, kwargs: Any) -> None:
        """Handle the end of a step of any optimizer, in whatever thread: a global post hook."""
        if not self.switch.on:
            return
        if self.switch.here() and (not self.owner.missed or opt in self._by_opt):
            self._ends(opt)
        else:
            self._ends_beside(opt)

    @guarded
    def _ends_beside(self, opt: Optimizer) -> None:
        """Record a step of a thread that is not followed."""
        shared = self.params.in_optimizer(opt)
        near: bool | None = self._near.get(opt)
        if near is None:
            near = self._near[opt] = shared or self.params.lie_in(opt)
        self.params.beside |= shared or near
        self.owner.steps_beside(counts=self.discovers, shared=shared)

    @guarded
    def _ends(self, opt: Optimizer) -> None:
        stream = self._known(opt)
        if stream is None:
            return
        self.light.leave()
        if self._running.count(id(opt)) > 1:
            self._running.remove(id(opt))
            return
        stream.steps += 1
        held, stream.held = stream.held, None
        try:
            self._read_after(stream, opt, held)
            if self._alone:
                full = held if self.switch.in_full_step() else None
                stream.kept = self.outside.after(stream.kept, full, self.allowed_s)
        finally:  # a time limit of the program's may raise in our reading: the step was taken
            try:
                self._end(stream)
            finally:  # until then it counts as running: a question of another thread would close the step twice
                self._running = [one for one in self._running if one != id(opt)]

    def _read_after(self, stream: Stream, opt: Optimizer, held: list[Watched] | None) -> None:
        """Read the changes made by a step."""
        if not self.switch.in_full_step():
            if held is not None:
                self.params.read_after(held)
            return
        self.params.read_after(held if held is not None else self.params.owned(stream.tensors()))
        if self.reading or stream.new:
            stream.new = False
            stream.fact = program_facts.optimizer(stream.index, opt, self.params)
        self._tell("step_ends", stream, opt)

    def resume(self, stream: Stream, begun: Begun, stepped: Stepped | None) -> None:
        """Continue a step that native code has begun, and the plan that it reads by, if it reads sites."""
        self.outside.note(stream.resume(begun))
        self._running = [id(stream.opt())] * begun.calls
        if stepped is not None:
            stream.held = stepped.watched
            self.watched.update({w.key: w for w in stepped.watched})
            self.params.resume(stepped, begun.turn)

    def wake(self, step: int) -> None:
        """Begin a stretch of full steps: plans for light ones may no longer hold."""
        for stream in self.streams:
            self.begin_stream(stream, step)
            stream.glimpse = stream.awaited_norm = None
            if stream.opt() is None:
                stream.norm = stream.held = None  # they hold its tensors
            elif stream.norm is not None:
                stream.norm.outdated = True

    def before_backward(self) -> bool:
        """Check for gradients left from the previous step. Return True if there were some, which were cleared since."""
        cleared = self._fresh = False
        self._running.clear()  # a step that raised never ended
        for stream in self.streams:
            if not stream.checks or stream.stale == 0.0 or stream.apart or self.params.beside:
                continue
            share = stale_share(stream.tensors())
            stream.left = place(stream.tensors()) if share else None
            cleared |= bool(stream.stale) and share == 0.0
            stream.stale = share if stream.stale is None else min(stream.stale, share)
        return cleared

    def begin_stream(self, stream: Stream, step: int) -> None:
        """Check for stale gradients again once a step of an optimizer is closed."""
        stream.checks = step < ALWAYS_CHECKED or step % CHECK_EVERY == 0 or (stream.stale or 0.0) > 0
        stream.stale = None

    def rates(self, resting: Mapping[int, Mapping[int, int]] | None = None) -> dict[int, float]:
        """Return the learning rate of each tensor of each optimizer, by identity; see ``holds``, ``succeeded``."""
        found = {key: rate for known in self._unstepped for key, rate in known.now().items()}
        for stream in self.streams:
            if resting is None or not stream.succeeded(self.streams):
                found |= stream.holds(resting or {})
        return found

    def find_unstepped(self) -> None:
        """Find optimizers that exist and have not stepped yet: a second one may wait for many iterations.

        It walks through all objects of the process, so only for a parameter that would otherwise seem to be in no
        optimizer.
        """
        self._unstepped = [Rates(opt) for opt in made() if opt not in self._by_opt]

    def clips(self, parameters: Any, max_norm: float, total_norm: Any, *_: Any, **__: Any) -> Around:
        """Wrap the function by which ``clip_grad_norm_`` scales, whose arguments are norm and limit."""
        if type(max_norm) in (float, int) and self.switch.here():
            self.limit = max_norm
        if self.switch.in_full_step():
            self._note_clip(total_norm, max_norm)
        yield
        self.after_clip()

    @guarded
    def _note_clip(self, total_norm: Any, max_norm: Any) -> None:
        limit = number(max_norm)
        held = (
            tensor_memory.readable(total_norm)
            if is_a(total_norm, Tensor) and not tensor_memory.is_addend(total_norm)
            else None
        )
        found = held.detach() if held is not None else number(total_norm)
        if limit is not None:
            self.clipped = found, limit

    @guarded
    def _note_scale(self, scaler: Any, outputs: Any, scaled: Any, note: Callable[..., None]) -> None:
        factor = scale_of(scaler) if is_a(scaled, Tensor) else None
        if factor is not None:
            self.loss_scale = factor
            note(scaled, factor, outputs)

    def scales(self, note: Callable[..., None], scaler: Any, outputs: Any) -> Around:
        """Wrap ``GradScaler.scale``: ``note`` the scaled tensor, its scale, and the tensor before it was scaled."""
        scaled = yield
        if self.switch.here():
            self._note_scale(scaler, outputs, scaled, note)

    @guarded
    def _steps_of(self, optimizer: Any) -> int:
        return next((stream.steps for stream in self.streams if stream.opt() is optimizer), 0)

    @guarded
    def _tried(self, scaler: Any, optimizer: Any, before: int | None) -> None:
        if before is not None and scales(scaler) and self._steps_of(optimizer) == before:
            self.skipped += 1

    def scaler_steps(self, scaler: Any, optimizer: Optimizer, *_: Any, **__: Any) -> Around:
        """Wrap ``GradScaler.step``: count steps that the scaler skipped."""
        before = self._steps_of(optimizer)
        yield
        if self.switch.in_full_step():
            self._tried(scaler, optimizer, before)


def wait_between_steps() -> None:
    """Wait up to a second until no other thread is in a step: torch iterates over the global hooks, and adding or
    removing one meanwhile ends that thread's training ("OrderedDict mutated during iteration").
    """
    until = perf_counter() + _STEPPING_S
    while _others_step() and perf_counter() < until:
        sleep(_POLL_S)


def _others_step() -> bool:
    me = get_ident()
    for thread, innermost in sys._current_frames().items():  # noqa: SLF001 (no public way)
        frame: FrameType | None = innermost if thread != me else None
        while frame is not None:
            if frame.f_code is _STEP:
                return True
            frame = frame.f_back
    return False


def _depth(opt: Optimizer) -> int:
    """Return the number of nested calls of an optimizer's step in this thread."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    depth = 0
    while frame is not None:
        depth += frame.f_code is _STEP and frame.f_locals.get("self") is opt
        frame = frame.f_back
    return depth
