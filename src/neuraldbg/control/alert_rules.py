"""The rules by which alerts are raised: text in, a rule out; and the sentences on what a rule has met."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuraldbg.control.condition import Condition
from neuraldbg.errors import ConfigError
from neuraldbg.nouns.alert import SEVERITIES, Severity, severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from neuraldbg.nouns import Event
    from neuraldbg.nouns.alert import Alert

EVENTS = "any"
"""The rule for every event that is a symptom."""
_NAME = re.compile(r"[\w.\- ]+")
_WORDS = re.compile(r"\b(and|or|not)\b")
_MEASURED = ("nonfinite", "ratio", "rms", "norm", "loss", "level", "share")
"""Names of the number that an event is about, in its details: the first that is there."""
_PLACES = 3
"""Layers of one event that a sentence names."""


@dataclass(frozen=True)
class AlertRule:
    """A rule: a name (of an event, a family, a detector, a cause) or a condition, with a severity."""

    name: str
    """The rule as the user wrote it, without its severity."""
    severity: Severity | None = None
    """Severity of its alerts. None if it follows from what is met."""
    condition: Condition | None = None
    """The condition. None if the rule is a name."""
    layers: tuple[str, ...] = ()
    """Patterns of layers, of a condition on a layer; empty for all."""
    every: float | None = None
    """Seconds in which at most one alert is told. None for that of the session."""
    action: Callable[[Alert], Any] | None = None
    """The user's function, called with each alert that is told."""

    @property
    def of_layers(self) -> bool:
        """True if the rule is a condition on the tensor of a layer."""
        return self.condition is not None and self.condition.of_a_layer

    def severity_for(self, event: Event | None = None) -> Severity:
        """Return the severity of an alert: by default NaN and infinity are critical, an event that its detector is not
        sure of is information, and all else is a warning.
        """
        if self.severity is not None:
            return self.severity
        if event is not None and event.kind.startswith("nonfinite"):
            return "critical"
        return "warning" if event is None or event.sure else "info"


def rule_of(text: object, severity: object = None, **more: Any) -> AlertRule:
    """Return the rule of a text: ``nan``, ``loss > 5``, ``critical:loss > 5``. Raises ConfigError for what is none; a
    name is looked up later, when all names are known.
    """
    if isinstance(text, Condition):
        text = text.text
    if not isinstance(text, str) or not text.strip():
        message = f"a rule of alerts is a text, such as 'nan' or 'loss > 5', not {text!r:.60}"
        raise ConfigError(message)
    front, colon, rest = text.partition(":")
    if colon:
        try:
            severity = severity_of(front) if severity is None else severity
        except ConfigError:
            message = (
                f"the rule {text!r}: {front.strip()!r} is no severity: use {', '.join(SEVERITIES)}, as in "
                f"'critical:loss > 5', or leave out what is before the colon"
            )
            raise ConfigError(message) from None
    said = (rest if colon else text).strip()
    if not said:
        message = f"the rule {text!r} names nothing: write a name or a condition, such as 'critical:loss > 5'"
        raise ConfigError(message)
    # A name has no sign of a condition in it: `loss` is a family of events, `layer.rms` alone is neither.
    named = _NAME.fullmatch(said) and not _WORDS.search(said) and not said.startswith("layer.")
    condition = None if named else Condition(said)
    level = None if severity is None else severity_of(severity)
    if more.get("layers") and (condition is None or not condition.of_a_layer):
        message = f"layers= is for a condition on a layer, such as 'layer.rms > 100', and {said!r} is none"
        raise ConfigError(message)
    return AlertRule(said, level, condition, **more)


def met(condition: Condition, scalars: Mapping[str, float], layer: Mapping[str, float]) -> tuple[str, float | None]:
    """Return the sentence on a condition that holds, without its place, and the first number that it names."""
    found = condition.measured(scalars, layer)
    told = ", ".join(f"{name} = {number(value)}" for name, value in found.items() if name != "step")
    values = [value for name, value in found.items() if name != "step"]
    return f"{condition.text}{f' ({told})' if told else ''}", values[0] if values else None


def seen(events: Sequence[Event]) -> tuple[str, float | None]:
    """Return the sentence on events of one kind that begin together, and the number of the first."""
    first = events[0]
    layers = list(dict.fromkeys(event.place or "the model" for event in events if event.layer is not None))
    more = f" and {len(layers) - _PLACES} more layers" if len(layers) > _PLACES else ""
    where = f" in {', '.join(layers[:_PLACES])}{more}" if layers else ""
    value = next((first.details[name] for name in _MEASURED if isinstance(first.details.get(name), float)), None)
    name = next((name for name in _MEASURED if isinstance(first.details.get(name), float)), "")
    bound = first.details.get("threshold")
    told = []
    if name == "nonfinite" and value is not None:
        told = [f"{number(value)} values are NaN or infinite"]
    elif value is not None:
        told = [f"{name} {number(value)}"] + ([f"threshold {number(bound)}"] if isinstance(bound, float) else [])
    measured = f" ({', '.join(told)})" if told else ""
    return f"{first.kind.replace('_', ' ')}{where} at step {first.first_step:,}{measured}", value


def number(value: float) -> str:
    """Write a number with four digits: 0.0123, 7.5, 12,345, 1.2e+18."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.4g}"
