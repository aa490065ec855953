"""The part of a session by which a user stops or joins a training: breakpoints, pauses, hooks, alerts, metrics."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from neuraldbg.arguments import function as checked
from neuraldbg.arguments import mapping, seconds, whole
from neuraldbg.arguments import text as text_of
from neuraldbg.control.alert_rules import rule_of
from neuraldbg.control.asked_stops import Asked, is_nan
from neuraldbg.control.hook_triggers import patterns_of
from neuraldbg.control.registered_hooks import register_with
from neuraldbg.errors import AttachError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from neuraldbg.capture import Capture
    from neuraldbg.control import Breakpoints
    from neuraldbg.control.condition import Condition
    from neuraldbg.control.hooks import Hook
    from neuraldbg.nouns import Layout
    from neuraldbg.nouns.alert import Alert
    from neuraldbg.record.loop_numbers import LoopNumbers
    from neuraldbg.session_alerts import SessionAlerts
    from neuraldbg.session_hooks import SessionHooks
    from neuraldbg.session_stops import Stops


class SessionControls:
    """The methods of ``NeuralDbg`` by which a user stops a training, or runs functions in it."""

    _capture: Capture
    _breakpoints: Breakpoints
    _stops: Stops
    _hooks: SessionHooks
    _alerts: SessionAlerts
    _numbers: LoopNumbers
    _running: bool

    @abstractmethod
    def _known_layout(self) -> Layout:
        """Return the layers that are known."""

    def add_breakpoint(
        self,
        kind: str | None = None,
        action: Callable[[Any], None] | None = None,
        *,
        layers: str | Sequence[str] = (),
        step: int | None = None,
        when: str | None = None,
        each: bool = False,
        backward: bool = False,
        before_step: bool = False,
    ) -> None:
        """Stop in the debugger, or call ``action``: when an event of a ``kind`` begins, or at layers and steps.

        ``kind`` is a kind of event, a layer or a cause. The kinds of events are ``activation_scale``, ``dead_units``,
        ``exploding_gradients``, ``gradient_spike``, ``large_weights``, ``loss_divergence``, ``loss_plateau``,
        ``loss_spike``, ``nonfinite_activation``, ``nonfinite_gradient``, ``nonfinite_input``, ``nonfinite_loss``,
        ``nonfinite_parameter``, ``saturated_units``, ``unchanged_parameters``, ``update_ratio_high``,
        ``update_ratio_low`` and ``vanishing_gradients``; families of events (``gradient_health``) and names of failures
        ("loss divergence") stand for theirs. A layer, by path or alias, stands for all events in it.

        The action gets the `Event`, once for each episode, when its detector has seen enough steps: maybe some steps
        after its ``first_step``, and also if it is less than 50% sure. For a cause it gets the `Hypothesis`, once that
        is credible (at least 50% sure): judged when a kind of event begins for the first time, whenever the number of
        steps has doubled, when ``halt`` stops the training, and at the end. An exception of the action is printed, and
        the training goes on, but for TrainingHalted, which stops it. Raises UnknownName, which lists the nearest names;
        with ``discover`` layers are known once their model was called.

        Without a kind, the stop is after each call of ``layers`` (paths, aliases, patterns), with ``backward`` at the
        gradient of their output, with ``each`` before each of them; ``before_step`` is before the optimizer changes the
        weights. ``step`` restricts it to one step, ``when`` to a `Condition`. The action gets a ``Context``. Raises
        UnknownLayer and ConfigError.

        >>> with NeuralDbg(model, overhead=None) as session:
        ...     session.add_breakpoint("nonfinite_loss", print)
        ...     train(3)
        nonfinite loss at step 0, 100% sure
        """
        wanted = Asked(patterns_of(layers), step, when, each, backward, before_step)
        if kind is None:
            self._stops.set(wanted, action)
            return
        if action is None and is_nan(kind):
            self._stops.stop_at_nan(wanted)
            return
        if wanted.any:
            raise ConfigError(f"a breakpoint on {kind!r} takes no layers, step, when, each, backward or before_step")
        from neuraldbg.explain import meaning  # noqa: PLC0415 (a program that is only watched needs none of it)

        checked(action, "action")
        asked = meaning(kind, self._known_layout())
        action = action or (lambda what: self._stops.met(kind, what))
        if asked.causes and not asked.kinds:
            self._breakpoints.on_causes(kind, asked.causes, action)
        elif asked.layer is not None:  # which layer "linear2" is, is known once the model was called
            self._breakpoints.on_events(kind, lambda event: meaning(kind, self._capture.layout()).has(event), action)
        else:
            self._breakpoints.on_events(kind, asked.has, action)
        self._hooks.see_each_step()  # a breakpoint must stop at its step

    def pause(self) -> None:
        """Stop in the debugger at this line. Without a terminal it logs that, and the program goes on.

        >>> with NeuralDbg(model) as session:  # doctest: +SKIP
        ...     train(3)
        ...     session.pause()
        """
        self._stops.here()

    def register_hook(self, moment: str | Hook, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Call a function at a moment of this session's training, or run a hook that a `HookBuilder` has built.

        Moments, arguments and options are those of `neuraldbg.register_hook`, which is for all sessions. Return the
        hook, or, without a function, a decorator that returns its function. Raises ConfigError, and UnknownLayer for
        a pattern that fits no layer, if the layers are known.

        >>> with NeuralDbg(model) as session:
        ...     hook = session.register_hook("after_step", lambda step, loss: print(step))
        ...     train(2)
        0
        1
        """
        return register_with(self._hooked, moment, function, options)

    def alert_on(
        self,
        rule: str | Condition,
        action: Callable[[Alert], Any] | None = None,
        *,
        severity: str | None = None,
        layers: str | Sequence[str] = (),
        every: float | None = None,
    ) -> None:
        """Raise an alert when an event of a kind, family or detector begins, a cause is credible, or a condition holds.

        Rules are names (``nan``, ``exploding_gradients``, ``lr_too_high``; ``any`` is every event that is a symptom) or
        conditions (``loss > 5``), with the severity in front if it is not in ``severity``: ``critical:loss > 5``.
        ``layers`` restricts a condition on a layer (``layer.rms > 100``). ``every`` is the number of seconds in which
        the rule tells at most one alert, by default that of the session. ``action`` is called with each `Alert` that
        is told. Raises ConfigError, and UnknownName, which lists the nearest names.

        >>> with NeuralDbg(model) as session:
        ...     session.alert_on("loss > 1e3", severity="critical")
        ...     train(3)
        """
        limit = None if every is None else seconds(every, "every")
        checked(action, "action")
        self._alerts.add(rule_of(rule, severity, layers=patterns_of(layers), every=limit, action=action))

    def alert(self, text: str, severity: str = "warning", *, rule: str = "program", value: float | None = None) -> None:
        """Raise an alert of the program's own, by all ways that this session has. ``rule`` names it for the rate limit.

        >>> with NeuralDbg(model) as session:
        ...     train(3)
        ...     session.alert("the validation accuracy has fallen", "error", value=0.4)
        """
        step = max(self._capture.steps - 1, 0)
        self._alerts.tell(text_of(rule, "rule"), severity, text_of(text, "text"), step=step, value=value)

    def log(self, values: Mapping[str, Any] | None = None, /, *, step: int | None = None, **metrics: Any) -> None:
        """Record metrics of the program's own, such as an accuracy or a reward, as scalars ``metric/NAME`` of a step.

        Values are numbers, or arrays and tensors of one element; one on a device is copied without a wait for it. NaN
        and infinite values are kept. Names that are no Python names are given as a mapping: ``log({"val/acc": 0.9})``.
        What the program logs by TensorBoard, wandb, mlflow, Lightning or the Trainer of transformers is recorded
        without this.

        A value belongs to the step that is open: from the first call of the model with gradients to the end of the
        optimizer's step. Between two steps it belongs to the one that has just ended, so that a validation after
        ``optimizer.step()`` belongs to the weights that it judges, also after the last step. Before the first step it
        belongs to that one. Of several values of a name in one step the mean counts, as of the losses of
        micro-batches. ``step`` is the loop's own number, see ``capture_step``; it does not choose the step.

        64 names are recorded; further ones are counted in the notes of the coverage. Raises ConfigError for what is no
        number, and AttachError if the session does not run.

        >>> with NeuralDbg(model) as session:
        ...     train(3)
        ...     session.log(accuracy=0.75)
        >>> session.metric("accuracy").at(2)
        0.75
        """
        from neuraldbg.capture.loop.logged_metrics import checked as numbers  # noqa: PLC0415

        given = numbers({**mapping({} if values is None else values, "values"), **metrics})
        own = None if step is None else whole(step, "step")
        if not self._running:
            raise AttachError("the session does not run, and records nothing: log between start() and stop()")
        at = self._capture.metrics.log(given)
        if own is not None and at is not None:
            self._numbers.add(at, own)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Hooks of this session, with their results."""
        return tuple(self._hooks.hooks)

    def _hooked(self, hook: Hook) -> None:
        if self._capture.models.found or not self._capture.models.discover:
            self._hooks.check(hook)
        self._hooks.add(hook)
