"""Hooks: the user's own work at moments of a training. Triggers and actions in, a hook with its results out."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from neuraldbg.control.condition import Condition
from neuraldbg.control.hook_moments import OF_LAYERS
from neuraldbg.control.hook_triggers import HookAction, HookTrigger, patterns_of
from neuraldbg.control.user_calls import traceback_of
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.control.hook_moments import Context, HookResult, Moment

RESULTS = 1_000
"""Results that a hook keeps at most; the oldest are dropped first."""
RECORDED_BYTES = 64 * 2**20
"""Bytes of recorded tensors that a hook keeps at most."""
_numbers, _serials = itertools.count(1), itertools.count(1)
_READING = ("inspect_tensor", "track_gradients")
_OF_TENSORS = (*_READING, "record_activations", "save_snapshot")
_USUAL: dict[str, Moment] = {"track_gradients": "after_backward"}
"""Moment of an action where no trigger says another; ``after_layer`` for the others that need a tensor."""


class Hook:
    """A hook: a trigger, the actions, and what they have found. A hook that raises is switched off."""

    def __init__(
        self, name: str, trigger: HookTrigger, actions: Iterable[HookAction], layers: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.serial = next(_serials)
        """Number of the hook in this process: an identity may come again once a hook is gone."""
        self.sampled = False
        """True if the hook runs in full steps only, in which layers are read anyway; a hook of the user's does not."""
        self.actions = tuple(actions)
        self.patterns = (*patterns_of(layers), *trigger.layers)
        self.trigger = replace(trigger, moment=trigger.moment or self._usual(trigger))
        self.results: deque[HookResult] = deque(maxlen=RESULTS)
        self.executions = 0
        """Number of executions so far."""
        self.enabled = True
        """False once the hook has raised, or was removed."""
        self.error: str | None = None
        """Traceback of the exception that switched the hook off; None if it never raised."""
        if not self.actions:
            message = f"the hook {name!r} does nothing: give it an action, such as HookAction.INSPECT_TENSOR"
            raise ConfigError(message)
        wrong = [one.name for one in self.actions if one.name in _OF_TENSORS]
        if wrong and self.moment not in OF_LAYERS:
            message = f"{wrong[0]} needs the tensor of a layer, and {self.moment} has none: use {', '.join(OF_LAYERS)}"
            raise ConfigError(message)
        if any(one.name == "track_gradients" for one in self.actions) and self.moment != "after_backward":
            message = "track_gradients needs the moment after_backward: use HookTrigger.EVERY_BACKWARD, or no moment"
            raise ConfigError(message)
        if self.patterns and self.moment not in OF_LAYERS:
            message = f"{self.moment} is a moment of a step: leave out layers={self.patterns!r}"
            raise ConfigError(message)
        if self.trigger.reads and self.moment not in OF_LAYERS:
            message = f"a condition about layer.… needs a moment of a layer: {', '.join(OF_LAYERS)}"
            raise ConfigError(message)

    def _usual(self, trigger: HookTrigger) -> Moment:
        """Return the moment that the actions ask for."""
        wanted: dict[Moment, None] = dict.fromkeys(
            _USUAL.get(one.name, "after_layer") for one in self.actions if one.name in _OF_TENSORS
        )
        if len(wanted) > 1:
            message = f"the actions of the hook {self.name!r} need two moments: make two hooks, or say one by a trigger"
            raise ConfigError(message)
        return next(iter(wanted), "after_layer" if self.patterns or trigger.reads else "after_step")

    @property
    def moment(self) -> Moment:
        """Moment at which the hook runs."""
        assert self.trigger.moment is not None
        return self.trigger.moment

    @property
    def of_layers(self) -> bool:
        """True if the hook runs at a moment of a layer."""
        return self.moment in OF_LAYERS

    @property
    def reads(self) -> bool:
        """True if an action or a condition needs the statistics of the tensor."""
        return self.trigger.reads or any(one.name in _READING for one in self.actions)

    @property
    def takes_tensor(self) -> bool:
        """True if an action or a condition needs the first tensor."""
        return self.reads or any(one.name in _OF_TENSORS for one in self.actions)

    @property
    def takes_value(self) -> bool:
        """True if an action or a condition gets the detached tensors."""
        asks = any(not isinstance(one, Condition) for one in self.trigger.conditions)
        return asks or any(one.name in ("callback", "pause") for one in self.actions)

    def remove(self) -> None:
        """Switch the hook off for good. Results stay.

        >>> hook = HookBuilder("statistics").action(HookAction.INSPECT_TENSOR).build()
        >>> hook.remove()
        >>> hook
        <Hook 'statistics': after_layer, 0 executions, off>
        """
        self.enabled = False

    @property
    def over(self) -> bool:
        """True if the hook will never run again: it is switched off, or has run as often as it may."""
        most = self.trigger.executions
        return not self.enabled or (most is not None and self.executions >= most)

    def due(self, step: int) -> bool:
        """Return True if the hook may run in a step, its conditions aside."""
        trigger = self.trigger
        return (
            not self.over
            and trigger.first <= step
            and (trigger.last is None or step <= trigger.last)
            and (step - trigger.first) % trigger.every == 0
        )

    def run(self, context: Context, work: Work) -> None:
        """Run the actions if the conditions hold. Whatever a function of the user's raises passes."""
        if not all(_holds(one, context) for one in self.trigger.conditions):
            return
        self.executions += 1
        for action in self.actions:
            found = work.do(action, context, self)
            if found is not None:
                self.results.append(found)

    def switch_off(self, error: Exception) -> None:
        """Switch the hook off because it has raised."""
        self.enabled, self.error = False, traceback_of(error)

    def __repr__(self) -> str:
        state = "" if self.enabled else ", off"
        layers = f" of {', '.join(self.patterns)}" if self.patterns else ""
        return f"<Hook {self.name!r}: {self.moment}{layers}, {self.executions} executions{state}>"


class Work(Protocol):
    """The session's part of an action: whatever needs a tensor, a file or the record."""

    def do(self, action: HookAction, context: Context, hook: Hook) -> HookResult | None:
        """Do an action. Return its result, None if there is nothing to keep."""
        ...


class HookBuilder:
    """Builds a hook step by step.

    ::

        hook = (
            HookBuilder("Layer Monitor")
            .trigger(HookTrigger.EVERY_FORWARD)
            .action(HookAction.INSPECT_TENSOR)
            .layer_patterns(["attention.*"])
            .max_executions(100)
            .build()
        )
        dbg.register_hook(hook)
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._trigger = HookTrigger()
        self._actions: list[HookAction] = []

    def trigger(self, trigger: HookTrigger) -> HookBuilder:
        """Add a trigger; all triggers of a hook must hold.

        >>> builder = HookBuilder("late").trigger(HookTrigger.every_n_steps(10))
        """
        if not isinstance(trigger, HookTrigger):
            message = f"a trigger is a HookTrigger, such as HookTrigger.EVERY_FORWARD, not {trigger!r:.60}"
            raise ConfigError(message)
        self._trigger &= trigger
        return self

    def action(self, action: HookAction | Callable[[Context], Any]) -> HookBuilder:
        """Add an action; a function stands for ``HookAction.callback``.

        >>> builder = HookBuilder("gradients").action(HookAction.TRACK_GRADIENTS)
        """
        self._actions.append(action if isinstance(action, HookAction) else HookAction.callback(action))
        return self

    def layer_patterns(self, patterns: Iterable[str]) -> HookBuilder:
        """Restrict the hook to layers: paths, aliases such as ``Dense_1``, patterns such as ``attention.*``.

        >>> builder = HookBuilder("first").layer_patterns(["Dense_1"])
        """
        self._trigger &= HookTrigger.layer(*patterns_of(patterns))
        return self

    def max_executions(self, number: int) -> HookBuilder:
        """Switch the hook off after a number of executions.

        >>> builder = HookBuilder("few").max_executions(100)
        """
        self._trigger &= HookTrigger(executions=number)
        return self

    def build(self) -> Hook:
        """Return the hook. Raises ConfigError if it has no action, or one that its moment has no tensor for.

        >>> HookBuilder("statistics").action(HookAction.INSPECT_TENSOR).build()
        <Hook 'statistics': after_layer, 0 executions>
        """
        return Hook(self._name or f"hook {next(_numbers)}", self._trigger, self._actions)


def _holds(condition: Condition | Callable[[Context], bool], context: Context) -> bool:
    if isinstance(condition, Condition):
        return condition.holds(context.scalars, context.statistics)
    return bool(condition(context))
