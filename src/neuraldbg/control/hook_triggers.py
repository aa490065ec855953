"""The triggers and the actions that a hook is built of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from neuraldbg.control.condition import Condition
from neuraldbg.control.hook_moments import MOMENTS
from neuraldbg.errors import ConfigError
from neuraldbg.nouns.alert import AlertSeverity, Severity, severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.control.hook_moments import Context, Moment


@dataclass(frozen=True)
class HookTrigger:
    """The moments and steps at which a hook runs. Triggers are combined by ``&``: then all of them must hold."""

    moment: Moment | None = None
    """None leaves the moment to the actions."""
    every: int = 1
    """Of the steps, only each ``every``-th counts, from the first one on."""
    first: int = 0
    """First step."""
    last: int | None = None
    """Last step. None is no limit."""
    executions: int | None = None
    """Number of executions at most; None is no limit."""
    layers: tuple[str, ...] = ()
    """Patterns of layers; empty leaves them to the hook."""
    conditions: tuple[Condition | Callable[[Context], bool], ...] = ()
    """All must hold. Numbers of a step are those of the step that ended last."""

    EVERY_FORWARD: ClassVar[HookTrigger]
    """After each call of a layer."""
    EVERY_BACKWARD: ClassVar[HookTrigger]
    """When the gradient of a layer's output is there."""
    ONCE: ClassVar[HookTrigger]
    """At the first occasion only."""
    EveryForward: ClassVar[HookTrigger]
    """Second name of ``EVERY_FORWARD``."""
    EveryBackward: ClassVar[HookTrigger]
    """Second name of ``EVERY_BACKWARD``."""
    Once: ClassVar[HookTrigger]
    """Second name of ``ONCE``."""

    def __post_init__(self) -> None:
        if self.moment is not None and self.moment not in MOMENTS:
            message = f"there is no moment {self.moment!r}: use {', '.join(MOMENTS)}"
            raise ConfigError(message)
        for name, least in (("every", 1), ("first", 0)):
            _whole(name, getattr(self, name), least)
        for name, least in (("last", self.first), ("executions", 1)):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), least)

    @classmethod
    def every_n_steps(cls, n: int) -> HookTrigger:
        """Return a trigger for each ``n``-th step, from step 0 on.

        >>> HookTrigger.every_n_steps(10).every
        10
        """
        return cls(every=n)

    @classmethod
    def step_range(cls, first: int, last: int) -> HookTrigger:
        """Return a trigger for the steps from ``first`` to ``last``, both included.

        >>> both = HookTrigger.step_range(100, 200) & HookTrigger.every_n_steps(10)
        """
        return cls(first=first, last=last)

    @classmethod
    def loss_above(cls, bound: float) -> HookTrigger:
        """Return a trigger for steps after one with a loss above ``bound``, or with one that is not finite.

        >>> HookTrigger.loss_above(1e3).conditions[0].text
        'loss > 1000.0 or not isfinite(loss)'
        """
        return cls(conditions=(Condition(f"loss > {_real(bound)} or not isfinite(loss)"),))

    @classmethod
    def gradient_above(cls, bound: float) -> HookTrigger:
        """Return a trigger for steps after one whose gradient norm (L2, over all parameters) is above ``bound``.

        >>> HookTrigger.gradient_above(100).conditions[0].text
        'grad_norm > 100.0 or isnan(grad_norm)'
        """
        return cls(conditions=(Condition(f"grad_norm > {_real(bound)} or isnan(grad_norm)"),))

    @classmethod
    def memory_above(cls, bound: float) -> HookTrigger:
        """Return a trigger for more than ``bound`` bytes of memory in use: of the GPU if one is used, else resident.

        >>> HookTrigger.memory_above(8 * 2**30).conditions[0].text
        'memory > 8589934592.0'
        """
        return cls(conditions=(Condition(f"memory > {_real(bound)}"),))

    @classmethod
    def condition(cls, condition: str | Condition | Callable[[Context], bool]) -> HookTrigger:
        """Return a trigger for a text such as ``loss > 5 and layer.rms > 100`` or a function of the Context. Raises
        ConfigError.

        >>> seldom = HookTrigger.condition(lambda context: context.step % 100 == 0)
        """
        if callable(condition) or isinstance(condition, Condition):
            return cls(conditions=(condition,))
        return cls(conditions=(Condition(condition),))

    @classmethod
    def layer(cls, *patterns: str) -> HookTrigger:
        """Return a trigger for the layers of a path, an alias such as ``Dense_1``, or a pattern (``encoder.*``).

        >>> HookTrigger.layer("encoder.*", "Dense_1").layers
        ('encoder.*', 'Dense_1')
        """
        return cls(layers=patterns_of(patterns))

    def __and__(self, other: HookTrigger) -> HookTrigger:
        if not isinstance(other, HookTrigger):
            return NotImplemented
        if self.moment is not None and other.moment not in (None, self.moment):
            message = f"a hook has one moment: {self.moment} or {other.moment}; make two hooks"
            raise ConfigError(message)
        return HookTrigger(
            self.moment or other.moment,
            max(self.every, other.every) if 1 in (self.every, other.every) else _both(self.every, other.every),
            max(self.first, other.first),
            _least(self.last, other.last),
            _least(self.executions, other.executions),
            self.layers + other.layers,
            self.conditions + other.conditions,
        )

    @property
    def reads(self) -> bool:
        """True if a condition is about the tensor of a layer."""
        return any(isinstance(one, Condition) and one.of_a_layer for one in self.conditions)


@dataclass(frozen=True)
class HookAction:
    """A thing that a hook does when it runs."""

    name: str
    """Name of the action: ``inspect_tensor``, ``track_gradients``, ``record_activations``, ``save_snapshot``,
    ``pause``, ``halt``, ``alert`` or ``callback``."""
    function: Callable[[Context], Any] | None = None
    """The user's function, of a callback."""
    severity: Severity = "warning"
    """Severity of an alert."""
    message: str = ""
    """Text of an alert."""

    INSPECT_TENSOR: ClassVar[HookAction]
    """Keep the statistics of the layer's tensor."""
    TRACK_GRADIENTS: ClassVar[HookAction]
    """Keep the statistics of the gradient of the layer's output."""
    RECORD_ACTIVATIONS: ClassVar[HookAction]
    """Keep a copy of the layer's tensor on the CPU, up to RECORDED_BYTES."""
    SAVE_SNAPSHOT: ClassVar[HookAction]
    """Write the layer's tensor to a file in the run's folder, by ``torch.save``."""
    PAUSE: ClassVar[HookAction]
    """Stop in the debugger, as ``neuraldbg debug`` does."""
    HALT: ClassVar[HookAction]
    """Raise TrainingHalted."""
    InspectTensor: ClassVar[HookAction]
    """Second name of ``INSPECT_TENSOR``."""
    TrackGradients: ClassVar[HookAction]
    """Second name of ``TRACK_GRADIENTS``."""
    RecordActivations: ClassVar[HookAction]
    """Second name of ``RECORD_ACTIVATIONS``."""
    SaveSnapshot: ClassVar[HookAction]
    """Second name of ``SAVE_SNAPSHOT``."""
    Pause: ClassVar[HookAction]
    """Second name of ``PAUSE``."""
    Halt: ClassVar[HookAction]
    """Second name of ``HALT``."""

    @classmethod
    def alert(cls, message: str, severity: Severity | AlertSeverity = "warning") -> HookAction:
        """Return an action that raises an alert with a message and a severity: ``info``, ``warning``, ``error`` or
        ``critical``. Raises ConfigError for another.

        >>> HookAction.alert("the loss is large", "error").severity
        'error'
        """
        return cls("alert", severity=severity_of(severity), message=str(message))

    @classmethod
    def callback(cls, function: Callable[[Context], Any]) -> HookAction:
        """Return an action that calls a function with the Context. Raises ConfigError for what cannot be called.

        >>> told = HookAction.callback(lambda context: print(context.step, context.layer))
        """
        if not callable(function):
            message = f"a callback is a function of one Context, not {function!r:.60}"
            raise ConfigError(message)
        return cls("callback", function)


def patterns_of(patterns: Iterable[str] | str) -> tuple[str, ...]:
    """Return patterns of layers as a tuple; one text is one pattern. Raises ConfigError for what is no text."""
    found: tuple[Any, ...] = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    wrong = [one for one in found if not isinstance(one, str) or not one.strip()]
    if wrong:
        message = f"a pattern of layers is a text, such as 'encoder.*', not {wrong[0]!r:.60}"
        raise ConfigError(message)
    return found


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        message = f"{name} is a whole number of at least {least}, not {value!r:.60}"
        raise ConfigError(message)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        message = f"a bound is a finite number, not {value!r:.60}"
        raise ConfigError(message)
    return float(value)


def _least(first: int | None, second: int | None) -> int | None:
    given = [one for one in (first, second) if one is not None]
    return min(given) if given else None


def _both(first: int, second: int) -> int:
    message = f"a hook runs at each {first}-th or each {second}-th step, not both: make two hooks"
    raise ConfigError(message)


HookTrigger.EVERY_FORWARD = HookTrigger("after_layer")
HookTrigger.EVERY_BACKWARD = HookTrigger("after_backward")
HookTrigger.ONCE = HookTrigger(executions=1)
for _name in ("INSPECT_TENSOR", "TRACK_GRADIENTS", "RECORD_ACTIVATIONS", "SAVE_SNAPSHOT", "PAUSE", "HALT"):
    setattr(HookAction, _name, HookAction(_name.lower()))

# Second names, for those who know these from other tools: ``HookTrigger.EveryForward is HookTrigger.EVERY_FORWARD``.
HookTrigger.EveryForward, HookTrigger.EveryBackward = HookTrigger.EVERY_FORWARD, HookTrigger.EVERY_BACKWARD
HookTrigger.Once = HookTrigger.ONCE
HookAction.InspectTensor, HookAction.TrackGradients = HookAction.INSPECT_TENSOR, HookAction.TRACK_GRADIENTS
HookAction.RecordActivations, HookAction.SaveSnapshot = HookAction.RECORD_ACTIVATIONS, HookAction.SAVE_SNAPSHOT
HookAction.Pause, HookAction.Halt = HookAction.PAUSE, HookAction.HALT
