"""The hooks and alerts of a session by hand: arrays of layers and numbers of steps in, results and alerts out.

Hooks, triggers, actions and alerts are those of the debugger (``control/``, ``hook_actions.py``,
``session_alerts.py``); here are their moments, which the program calls itself.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.arguments import function as checked
from neuraldbg.arguments import layer_name as layer_of
from neuraldbg.arguments import seconds, whole
from neuraldbg.control import Breakpoints, UserCalls
from neuraldbg.control.alert_rules import rule_of
from neuraldbg.control.condition import Condition
from neuraldbg.control.hook_moments import Context
from neuraldbg.control.hook_triggers import patterns_of
from neuraldbg.control.hooks import Hook, HookBuilder
from neuraldbg.control.registered_hooks import follow_registered, hook_of, registered
from neuraldbg.errors import ConfigError, UnknownLayer
from neuraldbg.hook_actions import HookActions, run_hook
from neuraldbg.layer_alias import fits, nearest
from neuraldbg.nouns import STATS, Fact, Layout, Step
from neuraldbg.nouns.layout import Layer
from neuraldbg.process_memory import resident_or_most
from neuraldbg.ranks import own_rank
from neuraldbg.session_alerts import SessionAlerts
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.hand_stops import HandStops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from neuraldbg.alerts import Alerts
    from neuraldbg.control.hook_moments import HookResult, Moment
    from neuraldbg.control.hook_triggers import HookAction
    from neuraldbg.nouns import Event, Hypothesis
    from neuraldbg.nouns.alert import Alert

_LOG = logging.getLogger("neuraldbg")
_UNSEEN = ("before_layer", "before_step")
"""Moments that a program by hand does not tell."""
_MATCHED = 100_000
"""Pairs of a hook and a layer that are remembered to fit or not."""
_EXPRESSION = frozenset("*+?[](){}|^$\\")
"""Signs without which a pattern is no regular expression: the dots of a path are none."""


class HandHooks:
    """Runs hooks for a program that calls their moments by hand, and raises their alerts.

    ::

        hook = (
            HookBuilder("Layer Monitor")
            .trigger(HookTrigger.EVERY_FORWARD)
            .action(HookAction.INSPECT_TENSOR)
            .layer_patterns(["attention.*"])
            .max_executions(100)
            .build()
        )
        number = session.hooks.register_hook(hook)
        results = session.hooks.execute_hooks("attention_layer_1", [1.0, 2.0, 3.0, 4.0], (2, 2))

    A pattern fits a layer as it does in a watched training (a path or its end, as ``fnmatch`` has it: ``attention.*``
    is ``layers.0.attention.query``), or, if it has a sign of one, as a regular expression that matches the whole name:
    ``attention.*`` is ``attention_layer_1``, too. A plain path is never taken for a regular expression. Types of layers
    are not known, so there are no aliases such as ``Dense_1``.

    ``step`` returns the number of the step that is open; ``statistics`` returns STATS, ``norm`` and ``absmax`` of an
    array; ``inspect`` keeps an array in the tensor inspector, by name, layer and operation, and returns its number;
    ``record_gradient`` gives the gradient of a layer to the gradient debugger; ``folder`` returns the folder of the
    run, None in memory; ``halt`` stops the training for a reason, and raises; ``layers`` returns the names of the
    layers. ``alerts`` are rules, or an `Alerts` with the ways by which alerts are told; ``note`` records facts. Rules
    about causes are judged when the session stops.

    >>> session = debug_session()
    """

    def __init__(
        self,
        *,
        step: Callable[[], int],
        statistics: Callable[[NDArray[Any]], Mapping[str, float]],
        inspect: Callable[[NDArray[Any], str, str, str], int],
        record_gradient: Callable[[str, NDArray[Any]], None],
        folder: Callable[[], Path | None],
        halt: Callable[[str], None],
        layers: Callable[[], Sequence[str]],
        alerts: Alerts | Sequence[str] | str | None = None,
        note: Callable[[tuple[Fact, ...]], None] = lambda _: None,
    ) -> None:
        self._step, self._statistics, self._inspect, self._gradient = step, statistics, inspect, record_gradient
        self._folder, self._layers = folder, layers
        self._calls = UserCalls()
        self._points = Breakpoints(self._calls)
        self._points.on_events("on_event", lambda _: True, self._began)
        self._changing = threading.RLock()
        """Held while hooks are added or removed."""
        self._hooks: list[Hook] = []
        self._scalars: dict[str, float] = {}
        self._steps = 0
        """Number of the step that ended last, plus one."""
        self._matched: dict[tuple[int, str], bool] = {}
        self._met: set[int] = set()
        """Serial numbers of the hooks of which a layer was there."""
        self._counted: tuple[int, dict[tuple[str, str], int]] = (-1, {})
        """A step, and the calls of each layer in it, by moment and name."""
        self._running = threading.local()
        self._alerting = SessionAlerts(
            alerts,
            self._calls,
            steps=lambda: self._steps,
            memory=self._memory,
            note=note,
            about=self._about,
            layout=self._layout,
            add_hook=self.add,
            see_each_step=lambda: None,
        )
        stops = HandStops(folder, statistics, layers, halt, self.add)
        self._actions = HookActions(
            _Arrays(),
            ".npy",
            folder=folder,
            halt=lambda reason, _: halt(reason),
            pause=stops.pause,
            alert=self._alerting.tell,
        )

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the hooks that ``neuraldbg.register_hook`` has set for all sessions, now and later, and prepare the ways
        of alerts.
        """
        self._alerting.start()
        for hook in registered():
            self.add(hook)
        follow_registered(self)

    def stop(self, credible: Sequence[Hypothesis] = ()) -> None:
        """Raise the alerts of causes that are credible, tell those that the rate limit holds back, wait some seconds
        for their delivery, and report hooks that no layer was there for.
        """
        self._alerting.judge(credible, max(self._steps - 1, 0))
        self._alerting.finish()
        self._alerting.stop()
        for hook in self._hooks:
            if hook.enabled and hook.of_layers and hook.serial not in self._met and self._steps:
                reasons = [str(UnknownLayer(one, nearest(self._layout(), one))) for one in hook.patterns]
                reason = " ".join(reasons) or "execute_hooks was not called for its moment"
                _LOG.warning("neuraldbg: the hook '%s' never ran: %s", hook.name, reason)

    @property
    def notes(self) -> list[str]:
        """Sentences on hooks that raised, and on alerts that were not delivered, for the coverage of the run."""
        return [*self._calls.notes, *self._alerting.notes]

    # -- hooks ----------------------------------------------------------------------------------------------------

    def register_hook(self, hook: Hook | str, function: Callable[..., Any] | None = None, **options: Any) -> int:
        """Run a hook from now on. Return its number, for ``remove_hook``.

        A hook is one of ``HookBuilder``, or a moment and a function, with the options of ``neuraldbg.register_hook``.
        Its moment is ``after_layer`` or ``after_backward``, for which ``execute_hooks`` runs it, or ``after_step``,
        ``on_loss`` or ``on_event``, for which the session does at the end of a step. Raises ConfigError for others, and
        for a hook that saves files of a run without a folder.

        >>> number = session.hooks.register_hook("after_layer", lambda layer, values: None, layers="attention.*")
        """
        made = hook.build() if isinstance(hook, HookBuilder) else hook_of(hook, function, **options)
        if made.moment in _UNSEEN:
            message = (
                f"the hook {made.name!r} runs at {made.moment}, which a session by hand is not told: use after_layer, "
                "after_backward, after_step, on_loss or on_event"
            )
            raise ConfigError(message)
        self.add(made)
        return made.serial

    def remove_hook(self, number: int) -> None:
        """Run a hook no more; its results stay in it. Raises ConfigError if no hook has the number.

        >>> session.hooks.remove_hook(number)
        """
        number = whole(number, "the number of a hook")
        with self._changing:
            kept = [hook for hook in self._hooks if hook.serial != number]
            if len(kept) == len(self._hooks):
                known = ", ".join(f"{hook.serial} ({hook.name})" for hook in kept) or "there is none"
                message = f"no hook has the number {number}: {known}"
                raise ConfigError(message)
            self._hooks = kept

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Hooks of this session, with their results."""
        return tuple(self._hooks)

    def add(self, hook: Hook) -> None:
        """Run a hook from now on; one of a moment that is not told by hand is left out. Raises ConfigError if it saves
        files and the run has no folder.
        """
        if hook in self._hooks or hook.moment in _UNSEEN:
            return
        if self._folder() is None and any(action.name == "save_snapshot" for action in hook.actions):
            message = f"the hook {hook.name!r} saves files, and this run has no folder: give the session an output_dir"
            raise ConfigError(message)
        with self._changing:
            self._hooks = [*self._hooks, hook]

    def execute_hooks(
        self,
        layer_name: str,
        values: Any,
        shape: Sequence[int] | None = None,
        is_forward: bool = True,
        step: int | None = None,
    ) -> list[HookResult]:
        """Run the hooks of a layer with its output, or with the gradient of its output if not ``is_forward``. Return
        their results; [] if none is due. Values are read only if one is.

        Values are an array or nested lists, of ``shape`` if one is given; ``step`` is by default the one that is open.
        A hook that raises is reported and switched off, and the training goes on. Raises ConfigError for values that
        are no numbers, or not as many as the shape has, and what ``halt`` raises for ``HookAction.HALT``.

        >>> number = session.hooks.register_hook(HookBuilder("look").action(HookAction.INSPECT_TENSOR))
        >>> session.hooks.execute_hooks("attention_layer_1", [1.0, 2.0, 3.0, 4.0], (2, 2))[0].statistics["mean"]
        2.5
        """
        path, number = layer_of(layer_name), self._step() if step is None else whole(step, "step")
        moment: Moment = "after_layer" if is_forward else "after_backward"
        if getattr(self._running, "inside", False):  # by a hook
            return []
        call = self._count(moment, path, number)
        fitting = [hook for hook in self._hooks if hook.moment == moment and self._fits(hook, path)]
        self._met.update(hook.serial for hook in fitting)
        due = [hook for hook in fitting if hook.due(number)]
        if not due:
            return []
        array = shaped(given(values, "values").values, shape)
        read = functools.cache(lambda: dict(self._statistics(array)) if array.size else {})
        found: list[HookResult] = []
        for hook in due:
            context = self._context(hook, moment, number, path)
            context.call, context.value, context.tensor = call, array, array if hook.takes_tensor else None
            context.statistics = read() if hook.reads else {}
            self._run(hook, context, found)
        return found

    def step_ended(self, step: int, scalars: Mapping[str, float], events: Sequence[Event] = ()) -> None:
        """Run the hooks of a step that has ended and of the events that begin, and raise its alerts. ``scalars`` are
        those of the step, by the names of ``nouns.step.SCALARS``. Raises what ``halt`` raises for ``HookAction.HALT``.
        """
        self._scalars = {name: float(value) for name, value in scalars.items()}
        self._steps = step + 1
        nothing = np.zeros((0, len(STATS)))
        self._alerting.stepped(Step(step, 0, 0.0, nothing, self._scalars), events)
        self._points.tell(events, step)
        for hook in self._hooks:
            wanted = hook.moment == "after_step" or (hook.moment == "on_loss" and "loss" in self._scalars)
            if wanted and hook.due(step):
                self._run(hook, self._context(hook, hook.moment, step), [])

    def _began(self, event: Event) -> None:
        for hook in self._hooks:
            if hook.moment == "on_event" and hook.due(event.first_step):
                context = self._context(hook, "on_event", event.first_step)
                context.event = event
                self._run(hook, context, [])

    def _context(self, hook: Hook, moment: Moment, step: int, layer: str = "") -> Context:
        """Return the values of a moment that every hook may ask for."""
        scalars = {**self._scalars, "step": float(step)}
        if any(isinstance(one, Condition) and "memory" in one.names for one in hook.trigger.conditions):
            scalars["memory"] = self._memory()
        return Context(moment, step, layer, loss=scalars.get("loss"), scalars=scalars)

    def _run(self, hook: Hook, context: Context, found: list[HookResult]) -> None:
        self._running.inside = True
        try:
            run_hook(hook, context, _Collected(self, found), self._calls)
        finally:
            self._running.inside = False

    def do(self, action: HookAction, context: Context, hook: Hook) -> HookResult | None:
        """Do an action: see ``neuraldbg.control.hooks.Work``."""
        result = self._actions.do(action, context, hook)
        if result is not None and action.name == "inspect_tensor":
            operation = "forward" if context.moment == "after_layer" else "backward"
            result.tensor_id = self._inspect(context.tensor, context.layer, context.layer, operation)
        elif result is not None and action.name == "track_gradients":
            self._gradient(context.layer, context.tensor)
        return result

    def _fits(self, hook: Hook, path: str) -> bool:
        if not hook.patterns:
            return True
        known = self._matched.get((hook.serial, path))
        if known is None:
            if len(self._matched) >= _MATCHED:
                self._matched.clear()
            known = any(pattern_fits(pattern, path) for pattern in hook.patterns)
            self._matched[hook.serial, path] = known
        return known

    def _count(self, moment: str, path: str, step: int) -> int:
        """Return how often a layer has been at a moment in this step."""
        if step != self._counted[0]:
            self._counted = step, {}
        numbers = self._counted[1]
        numbers[moment, path] = call = numbers.get((moment, path), 0) + 1
        return call

    # -- alerts ---------------------------------------------------------------------------------------------------

    def alert_on(
        self,
        rule: str | Condition,
        action: Callable[[Alert], Any] | None = None,
        *,
        severity: str | None = None,
        layers: str | Sequence[str] = (),
        every: float | None = None,
    ) -> None:
        """Raise an alert by a rule: the same as ``NeuralDbg.alert_on``. Raises ConfigError and UnknownName.

        >>> session.hooks.alert_on("critical:loss > 5")
        """
        limit = None if every is None else seconds(every, "every")
        checked(action, "action")
        self._alerting.add(rule_of(rule, severity, layers=patterns_of(layers), every=limit, action=action))

    @property
    def alerts(self) -> list[Alert]:
        """The alerts that were told, the newest 1,000, oldest first; those held back by the rate limit are counted in
        the next one.
        """
        return list(self._alerting.newest)

    def _memory(self) -> float:
        """Return the bytes of memory in use: of the device if the program gives them, else resident."""
        given = self._scalars.get("device_memory")
        return resident_or_most() if given is None else given

    def _about(self) -> dict[str, Any]:
        folder = self._folder()
        return {"rank": own_rank().rank, "run": str(folder) if folder else ""}

    def _layout(self) -> Layout:
        return Layout(tuple(Layer(name, "", "", leaf=True) for name in self._layers()))


class _Collected:
    """Does the actions of a session's hooks, and keeps the results of one execution."""

    def __init__(self, hooks: HandHooks, found: list[HookResult]) -> None:
        self._hooks, self._found = hooks, found

    def do(self, action: HookAction, context: Context, hook: Hook) -> HookResult | None:
        result = self._hooks.do(action, context, hook)
        if result is not None:
            self._found.append(result)
        return result


class _Arrays:
    """Reads arrays of numpy: see ``neuraldbg.hook_actions.Tensors``."""

    def shape_of(self, x: NDArray[Any]) -> tuple[tuple[int, ...], str]:
        return tuple(x.shape), str(x.dtype)

    def copied(self, x: NDArray[Any]) -> NDArray[Any]:
        return x.copy()

    def save(self, value: NDArray[Any], file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, value, allow_pickle=False)


def pattern_fits(pattern: str, path: str) -> bool:
    """Return True if a pattern fits the name of a layer, as a path or as a regular expression: see `HandHooks`.

    >>> pattern_fits("attention.*", "attention_layer_1"), pattern_fits("attention.*", "layers.0.attention.query")
    (True, True)
    >>> pattern_fits("layers.1", "layers_1")
    False
    """
    if fits(pattern, path):
        return True
    expression = _compiled(pattern)
    return expression is not None and expression.fullmatch(path) is not None


@functools.lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    if _EXPRESSION.isdisjoint(pattern):
        return None
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):  # ``*.weight`` is a pattern of fnmatch alone
        return None


def shaped(array: NDArray[Any], shape: Sequence[int] | None) -> NDArray[Any]:
    """Return an array in a shape, itself for None. Raises ConfigError if it has another number of elements."""
    if shape is None:
        return array
    sizes = tuple(whole(size, "shape") for size in np.atleast_1d(np.asarray(shape, dtype=object)))
    if any(size < 0 for size in sizes) or int(np.prod(sizes, dtype=object)) != array.size:
        message = f"shape: {array.size:,} values do not fit {sizes}; leave it out to keep {tuple(array.shape)}"
        raise ConfigError(message)
    return array.reshape(sizes)
