"""An alert: what a person is told while the training runs, with its severity."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from neuraldbg.errors import ConfigError
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from neuraldbg.nouns.run import RunRecord

ALERT_SCHEMA = "neuraldbg.alert/1"
"""Version of an alert as JSON. 1: the first."""
Severity: TypeAlias = Literal["info", "warning", "error", "critical"]
"""The severities of alerts, those of Python's logging."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class AlertSeverity(str, Enum):
    """The severities of alerts, for those who write no strings: ``AlertSeverity.CRITICAL`` is ``"critical"``."""

    INFO = "info"
    """Worth knowing."""
    WARNING = "warning"
    """Something is likely wrong."""
    ERROR = "error"
    """Something is wrong."""
    CRITICAL = "critical"
    """The training is lost if nobody acts."""


def severity_of(value: object) -> Severity:
    """Return a severity, given as text in any case or as an AlertSeverity. Raises ConfigError for another."""
    said = value.value if isinstance(value, AlertSeverity) else value
    named = said.strip().lower() if isinstance(said, str) else said
    if named not in SEVERITIES:
        message = f"there is no severity {said!r:.60}: use {', '.join(SEVERITIES)}"
        raise ConfigError(message)
    return named


@dataclass(frozen=True)
class Alert:
    """An alert: one sentence with its severity, the rule that raised it, and the place in the training.

    >>> print(Alert("critical", "loss > 5", "loss > 5: loss is 7.5 at step 12", step=12, value=7.5))
    CRITICAL [loss > 5] loss > 5: loss is 7.5 at step 12
    """

    severity: str
    """``info``, ``warning``, ``error`` or ``critical``."""
    rule: str
    """The rule that raised it, as it was written: ``nan``, ``loss > 5``, or the name of a hook."""
    text: str
    """The sentence."""
    step: int = 0
    """Number of the step, from 0, at which it was seen."""
    layer: str | None = None
    """Path of the layer. None for the run as a whole."""
    value: float | None = None
    """The measured number. None if there is none."""
    subject: str = ""
    """Kind of the event or id of the cause; "" for a condition, a hook, or an alert of the program's own."""
    held_back: int = 0
    """Alerts of the same rule and subject that the rate limit has held back since the last one."""
    time: float = 0.0
    """Unix time, seconds."""
    rank: int = 0
    """Rank of the process among those that train together."""
    run: str = ""
    """Folder of the run. "" if the run is in memory."""
    script: str = ""
    """The script that trains. "" if it is not known."""

    def to_json(self) -> str:
        """Return the alert as one line of strict JSON; a NaN is the string "NaN".

        >>> Alert("info", "hello", "it begins").to_json()[:51]
        '{"schema": "neuraldbg.alert/1", "time": "1970-01-01'
        """
        fields: Any = jsonable(self)
        when = datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="milliseconds")
        told = {"schema": ALERT_SCHEMA, "time": when.replace("+00:00", "Z")}
        return json.dumps({**told, **{name: value for name, value in fields.items() if name != "time"}})

    def __str__(self) -> str:
        more = f" ({self.held_back:,} more since the last)" if self.held_back else ""
        rank = f"rank {self.rank}: " if self.rank else ""
        return f"{self.severity.upper()} [{self.rule}] {rank}{self.text}{more}"


def alerts_of(run: RunRecord) -> tuple[Alert, ...]:
    """Return the alerts that a record has, oldest first."""
    found = [(fact.step, fact.value) for fact in run.facts_of("alert")]
    return tuple(
        Alert(step=step, script=run.info.script, **{name: value[name] for name in RECORDED_FIELDS if name in value})
        for step, value in sorted(found, key=lambda one: one[1]["number"])
    )


RECORDED_FIELDS = ("severity", "rule", "text", "layer", "value", "subject", "held_back", "time")
"""Fields of an alert that its fact has under the same name."""
