"""What is known of a training before anything looks at it, and the grade of a diagnosis against that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg import Diagnosis

NEAR = 2
"""Steps by which the first step of a cause may be off."""
SURE = 0.5
"""From this confidence on a hypothesis counts as said."""
BAD = ("failing", "suspect")
HEALTHY = ("healthy",)
EARLY = ("healthy", "inconclusive")
"""Of healthy trainings that are too short, or too noisy, to be called healthy."""
UNCLEAR = ("failing", "suspect", "inconclusive")
"""Of trainings that something is wrong with, and nobody could say what from a record."""


@dataclass(frozen=True)
class Golden:
    """The right answer for one training."""

    cause: tuple[str, ...] = ()
    """Right answers. More than one only where a cause's page says that the two cannot be told apart."""
    layer: tuple[str, ...] = ()
    """The guilty layer; several where each of them is; empty where no single one is."""
    step: int | None = None
    """When the cause was first at work, None where that is not defined."""
    verdicts: tuple[str, ...] = HEALTHY
    also: tuple[str, ...] = ()
    """Further independent faults of the same training, each of which must be among the hypotheses."""
    tolerated: tuple[str, ...] = ()
    """What may be said as well, because it is true too, though nobody need find it."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong: any hypothesis at all is then an alarm."""
        return not self.cause and not set(self.verdicts) & set(BAD)

    @property
    def unclear(self) -> bool:
        """Whether something is wrong that no cause of the taxonomy stands for."""
        return not self.cause and not self.healthy

    @property
    def every(self) -> tuple[str, ...]:
        """All causes that are true of the training."""
        return (*self.cause, *self.also)


@dataclass(frozen=True)
class Grade:
    """What a diagnosis got right; None for what the golden leaves open."""

    verdict: bool
    cause: bool
    layer: bool | None = None
    step: bool | None = None
    top3: bool | None = None
    """Whether a right cause is among the first three hypotheses, however sure."""
    also: bool | None = None
    """Whether every further fault is among the hypotheses that are said."""
    said: str = ""
    wrong: tuple[str, ...] = field(default=())

    @property
    def right(self) -> bool:
        return not self.wrong


def golden(
    cause: str | tuple[str, ...] = (),
    *,
    layer: str | tuple[str, ...] | None = None,
    step: int | None = None,
    verdict: str | tuple[str, ...] = "",
    also: str | tuple[str, ...] = (),
    tolerated: str | tuple[str, ...] = (),
) -> Golden:
    """Make a golden; a verdict that is not given is ``healthy``, or ``failing`` or ``suspect`` with a cause."""
    causes = _tuple(cause)
    verdicts = _tuple(verdict or (BAD if causes else HEALTHY))
    return Golden(causes, _tuple(layer or ()), step, verdicts, _tuple(also), _tuple(tolerated))


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def grade(one: Golden, diagnosis: Diagnosis) -> Grade:
    """Compare a diagnosis with the golden. Any hypothesis at all is an alarm where nothing is wrong."""
    found = diagnosis.hypotheses
    top = found[0] if found else None
    named = top.cause if top is not None and top.confidence >= SURE else None
    said = diagnosis.verdict
    if top is not None:
        said += f": {top.cause} {top.confidence:.2f} at {top.layer or '-'} step {top.step}"
    layer: bool | None = None
    step: bool | None = None
    top3: bool | None = None
    also: bool | None = None
    if not one.cause:
        cause = top is None if one.healthy else named is None or named in one.tolerated
    else:
        cause = named in one.every
        # Of several faults either may come first; place and time are those of the one that the golden describes.
        mine = next((h for h in found if h.cause in one.cause), None) if one.also else top
        layer = None if not one.layer else mine is not None and mine.layer in one.layer
        step = None if one.step is None else mine is not None and mine.step is not None and _near(mine.step, one.step)
        top3 = any(h.cause in one.every for h in found[:3])
        if one.also:
            said_all = {h.cause for h in found if h.confidence >= SURE}
            also = set(one.also) <= said_all and bool(said_all & set(one.cause))
    verdict = diagnosis.verdict in one.verdicts
    checks = {"verdict": verdict, "cause": cause, "layer": layer, "step": step, "also": also}
    wrong = tuple(name for name, good in checks.items() if good is False)
    return Grade(verdict, cause, layer, step, top3, also, said, wrong)


def _near(found: int, wanted: int) -> bool:
    return abs(found - wanted) <= NEAR
