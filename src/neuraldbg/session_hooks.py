"""The hooks of one session: connects the user's hooks with the moments of its training, and does their actions."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.layers.layer_moments import LayerMoments
from neuraldbg.capture.profiling.step_clock import own_cost
from neuraldbg.capture.statistics import whole_tensors
from neuraldbg.clocks import perf_counter
from neuraldbg.control.condition import Condition
from neuraldbg.control.hook_moments import OF_LAYERS, Context
from neuraldbg.control.registered_hooks import follow_registered, registered
from neuraldbg.errors import ConfigError, TrainingHalted, UnknownLayer
from neuraldbg.hook_actions import HookActions, applied, run_hook
from neuraldbg.layer_alias import matching, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.capture import Capture
    from neuraldbg.control import UserCalls
    from neuraldbg.control.hook_moments import HookResult, Moment
    from neuraldbg.control.hooks import Hook
    from neuraldbg.nouns import Event, Layout, Step

_LOG = logging.getLogger("neuraldbg")
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})
"""Types of layers that a hook without patterns leaves out: their output is that of their last layer."""


class SessionHooks:
    """Runs hooks at the moments of a session's training.

    ``halt`` stops the training for a reason, and raises; ``folder`` returns the folder of the run, None in memory;
    ``layout`` returns the layers that are known; ``calls`` reports what functions of the user raise.
    """

    def __init__(
        self,
        capture: Capture,
        halt: Callable[..., None],
        folder: Callable[[], Path | None],
        layout: Callable[[], Layout],
        calls: UserCalls,
    ) -> None:
        self._capture, self.halt, self._folder, self._layout, self._calls = capture, halt, folder, layout, calls
        self.hooks: list[Hook] = []
        self._moments = LayerMoments(self._tell)
        self._scalars: Mapping[str, float] = {}
        self._newest = -1
        self._matched: dict[int, frozenset[str]] = {}
        self._known: Layout | None = None
        self._met: set[int] = set()
        """Serial numbers of the hooks of which a layer was called."""
        self._numbers: dict[tuple[str, str], int] = {}
        """Number of calls of each layer in the step ``_counted``, by moment and path."""
        self._counted = -1
        self._pruned = 0
        """Number of the hooks that were over when ``_prune`` last removed anything."""
        self._running = threading.local()
        self._started = self._each_step = self._at_once = False
        self._usual_batch = capture.delivery.batch
        self._changing = threading.RLock()
        """Held while hooks are added or dropped: a dashboard does so in a thread of its own."""
        self.pause: Callable[[Context, str], HookResult | None]
        """Stops in the debugger, on behalf of the hook with a name."""
        self.alert: Callable[..., None]
        """Tells an alert: rule, severity and text, then by name ``step``, ``layer`` and ``value``."""
        self._work = HookActions(
            whole_tensors,
            ".pt",
            folder=folder,
            halt=self._halt,
            pause=self._stop,
            alert=lambda *said, **where: self.alert(*said, **where),  # noqa: PLW0108 (``alert`` is set later)
        )
        capture.hooks.on_layer.append(self._attach)

    def start(self) -> None:
        """Add the hooks that are registered for all sessions, before the first layer is attached."""
        self._started = True
        for hook in registered():
            self.add(hook)
        follow_registered(self)
        self._connect()

    def stop(self) -> None:
        """Remove all hooks from the model, and report those that no layer was found for."""
        self._started = False
        self._moments.detach()
        for hook in self.hooks:
            if hook.enabled and hook.of_layers and hook.serial not in self._met and self._capture.steps:
                _LOG.warning("neuraldbg: the hook '%s' never ran: %s", hook.name, self._reason(hook))

    def add(self, hook: Hook) -> None:
        """Run a hook from now on. Raises ConfigError if it saves files and the run has no folder."""
        if hook in self.hooks:
            return
        if self._folder() is None and any(action.name == "save_snapshot" for action in hook.actions):
            message = (
                f"the hook {hook.name!r} saves files, and this run has no folder: NeuralDbg(model, out='runs/mine')"
            )
            raise ConfigError(message)
        with self._changing:
            self.hooks.append(hook)
            if self._started:
                self._connect()

    def drop(self, hooks: Sequence[Hook]) -> None:
        """Take hooks away; without one the training costs what it did before."""
        with self._changing:
            self.hooks = [hook for hook in self.hooks if hook not in hooks]
            self._matched = {}
            self._moments.keep(self._of_layers())
            self._pace()

    def watch_steps(self) -> None:
        """Be ready for hooks before a step that another thread adds later."""
        self._moments.watch_steps()

    def see_each_step(self) -> None:
        """Deliver each step as soon as it is over, also without a hook: something must stop at its step."""
        self._at_once = True
        self._pace()

    def see_steps_soon(self) -> None:
        """Deliver each step as soon as its values are here: an alert waits for no device."""
        self._each_step = True
        self._pace()

    def _pace(self) -> None:
        delivery = self._capture.delivery
        delivery.at_once = self._at_once or any(not hook.sampled for hook in self.hooks)
        delivery.batch = 1 if self.hooks or self._each_step or self._at_once else self._usual_batch

    def check(self, hook: Hook) -> None:
        """Raise UnknownLayer if a pattern fits none of the layers that are known, and some are."""
        for error in self._unknown(hook):
            raise error

    def _unknown(self, hook: Hook) -> Iterator[UnknownLayer]:
        """Yield an error, with the nearest names, for each pattern that fits no layer; none before layers are known."""
        layout = self._layout()
        for pattern in hook.patterns if layout.layers else ():
            if not matching(layout, pattern):
                try:
                    resolve(layout, pattern)
                except UnknownLayer as error:
                    yield error

    def stepped(self, step: Step) -> None:
        """Run the hooks of a step that has ended."""
        self._scalars, self._newest = step.scalars, step.index
        if not self.hooks:
            return
        self._prune()
        if step.index == 0:
            self._report_unknown()
        for hook in self.hooks:
            if hook.moment == "after_step" or (hook.moment == "on_loss" and step.loss is not None):
                self._run(hook, hook.moment, step.index)

    def _report_unknown(self) -> None:
        """Report patterns of layers that are not there, once the model was called."""
        for hook in self.hooks:
            unknown = list(self._unknown(hook))
            for error in unknown:
                _LOG.warning("neuraldbg: %s The training goes on without '%s'.", error, hook.name)
            if unknown and len(unknown) == len(hook.patterns):
                self._met.add(hook.serial)  # all is said of it

    def began(self, event: Event) -> None:
        """Run the hooks of an event that has begun."""
        for hook in self.hooks:
            if hook.moment == "on_event":
                self._run(hook, "on_event", event.first_step, event=event)

    @property
    def scalars(self) -> Mapping[str, float]:
        """The scalars of the step that ended last, by name."""
        return self._scalars

    @property
    def newest_loss(self) -> tuple[int, float | None]:
        """Number and loss of the step that was delivered last; the loss is None if none was read."""
        return self._newest, self._scalars.get("loss")

    # -- connection with the training ---------------------------------------------------------------------------

    def _connect(self) -> None:
        """Set what the hooks need: on layers that are attached already, and for steps."""
        if any(hook.moment == "before_step" and not hook.over for hook in self.hooks):
            self._moments.watch_steps()
        self._pace()  # a hook sees the numbers of the step before
        for path, module in list(self._capture.hooks.modules.items()):
            self._attach(path, module)

    def _attach(self, path: str, module: Any) -> None:
        """Set hooks on a layer for the moments that some hook has. Which hook is meant is seen when it is called: an
        alias such as ``Dense_1`` counts layers in the order of their calls.
        """
        moments = {hook.moment for hook in self.hooks if hook.of_layers and not hook.over}
        if moments and self._started:
            self._moments.attach(path, module, moments)

    def _prune(self) -> None:
        """Remove our hooks of moments that no hook of the user's waits for any more."""
        over = sum(hook.over for hook in self.hooks)
        if over != self._pruned:
            with self._changing:
                self._pruned = over
                self._moments.keep(self._of_layers())

    def _of_layers(self) -> set[str]:
        """Return the moments of layers that hooks wait for."""
        return {hook.moment for hook in self.hooks if hook.of_layers and not hook.over}

    def _tell(self, moment: str, path: str | None, value: Any, inputs: Any = None, call: int = 0) -> int:
        """Run the hooks of a moment of a layer, or, if ``path`` is None, those before a step. Return the number of the
        layer's call within the step, which is ``call`` if that is not 0.
        """
        if getattr(self._running, "inside", False):
            return call
        try:
            step = self._capture.steps
            if path is not None and not call:
                call = self._count(moment, path, step)
            full = self._capture.switch.in_full_step()
            for hook in list(self.hooks):
                if hook.moment == moment and (path is None or self._fits(hook, path)):
                    self._met.add(hook.serial)
                    if hook.sampled and not full:
                        continue
                    self._run(hook, hook.moment, step, path or "", value, inputs, call=call)
        except TrainingHalted:
            raise
        except Exception:  # noqa: BLE001 (an error of ours, and not one of the hook: that never comes here)
            self._capture.tally.caught("running hooks")
        return call

    def _count(self, moment: str, path: str, step: int) -> int:
        """Return how often a layer has been at a moment in this step: weights that are shared are called again."""
        if step != self._counted:
            self._counted = step
            self._numbers.clear()
        key = (moment, path)
        self._numbers[key] = call = self._numbers.get(key, 0) + 1
        return call

    def _fits(self, hook: Hook, path: str) -> bool:
        layout = self._capture.layout()
        if layout is not self._known:
            self._known, self._matched = layout, {}
        if not hook.patterns:
            layer = layout.by_path.get(path)
            return bool(path) and layer is not None and layer.type not in _CONTAINERS
        paths = self._matched.get(hook.serial)
        if paths is None:
            paths = self._matched[hook.serial] = frozenset().union(*(matching(layout, one) for one in hook.patterns))
        return path in paths

    def _run(
        self,
        hook: Hook,
        moment: Moment,
        step: int,
        path: str = "",
        value: Any = None,
        inputs: Any = None,
        event: Event | None = None,
        call: int = 1,
    ) -> None:
        """Run one hook with the values of the moment, as far as it needs them."""
        if not hook.due(step):
            return
        scalars = {**self._now(moment, value), "step": float(step)}
        if any(isinstance(one, Condition) and "memory" in one.names for one in hook.trigger.conditions):
            scalars["memory"] = whole_tensors.memory_in_use()
        context = Context(moment, step, path, call, loss=scalars.get("loss"), event=event, scalars=scalars)
        if moment == "before_step":
            context.optimizer = value
        if moment in OF_LAYERS:
            context.tensor = whole_tensors.first_tensor(value) if hook.takes_tensor else None
            if hook.reads and context.tensor is not None:
                context.statistics = self._statistics(context.tensor)
            taken = whole_tensors.detached if hook.takes_value else lambda each: each
            context.value, context.inputs = taken(value), taken(inputs)
        self._running.inside = True
        try:
            run_hook(hook, context, self._work, self._calls)
        finally:
            self._running.inside = False
        if hook.over:
            self._prune()

    def _statistics(self, tensor: Any) -> Mapping[str, float]:
        """Return the statistics of a layer's tensor, and count the time that they take."""
        began = perf_counter()
        try:
            return whole_tensors.statistics(tensor)
        finally:
            own_cost(self._capture.tally, began, "layers")

    def _now(self, moment: Moment, optimizer: Any) -> Mapping[str, float]:
        """Return the scalars for a moment: before a step the loss is that of the step."""
        if moment != "before_step":
            return self._scalars
        streams = self._capture.optimizers.streams
        at = next((stream.index for stream in streams if stream.opt() is optimizer), 0)
        try:
            loss = self._capture.losses.loss(closure=False, stream=at)
        except Exception:  # noqa: BLE001 (such as a loss on a device that cannot be read now)
            loss = None
        return self._scalars if loss is None else {**self._scalars, "loss": float(loss)}

    # -- actions ------------------------------------------------------------------------------------------------

    def _halt(self, reason: str, context: Context) -> None:
        self.halt(reason, self._capture.steps if applied(context) else context.step)

    def _stop(self, context: Context, hook: Hook) -> HookResult | None:
        """Stop in the debugger. An error of ours is not the hook's, which would be switched off."""
        try:
            return self.pause(context, hook.name)
        except TrainingHalted:
            raise
        except Exception:  # noqa: BLE001 (the breakpoint stays)
            self._capture.tally.caught("stopping in the debugger")
            return None

    def _reason(self, hook: Hook) -> str:
        try:
            self.check(hook)
        except UnknownLayer as error:
            return str(error)
        return (
            "its layers were not called, or only inside of a compiled graph, which calls no hook (with "
            "TORCH_COMPILE_DISABLE=1 nothing is compiled)"
        )
