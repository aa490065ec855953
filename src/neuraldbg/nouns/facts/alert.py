"""The ALERT fact: one alert that was told while the training ran."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class AlertFact(Known):
    """An alert, as ``neuraldbg.nouns.alert.Alert`` has it; run, script and rank are those of the run file."""

    KEY: ClassVar = "alert"

    number: Count
    """Number of the alert in its session, from 0."""
    severity: str
    """``info``, ``warning``, ``error`` or ``critical``."""
    rule: str
    """The rule that raised it."""
    text: str
    """The sentence."""
    time: float
    """Unix time, seconds."""
    layer: str | None = None
    """Path of the layer. None for the run as a whole."""
    value: float | None = None
    """The measured number. None if there is none."""
    subject: str = ""
    """Kind of the event or id of the cause; empty if there is none."""
    held_back: Count = 0
    """Alerts of the same rule and subject that were held back since the last one."""
