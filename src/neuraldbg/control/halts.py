"""The halts of one session: judges each step before it is applied, by a trigger for each optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.control.trigger import TriggerEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.config import TriggerSettings
    from neuraldbg.control.trigger import Excess
    from neuraldbg.nouns import Event


class Halts:
    """The triggers of a session: one that the user gave, or one for each optimizer, for the sake of a GAN's losses."""

    def __init__(self, given: bool | TriggerEngine, settings: TriggerSettings) -> None:
        self._given, self._settings = given, settings
        self._engines: dict[int, TriggerEngine] = {}
        self._excess: Excess | None = None

    def judge(self, stream: int, loss: float | None, grad_norms: Mapping[str, float]) -> str | None:
        """Return the reason why a step must not be applied, None to apply it."""
        engine = self._given if isinstance(self._given, TriggerEngine) else self._engines.get(stream)
        if engine is None:
            engine = TriggerEngine(self._settings.grad_threshold, self._settings.spike_factor, above_start=True)
            self._engines[stream] = engine
        reason = engine.check(loss, grad_norms)
        self._excess = engine.excess if reason is not None else None
        return reason

    def event(self, step: int, known: Iterable[Event]) -> Event | None:
        """Return the event of the number for which a trigger halts; None if it is among those that are known."""
        event = self._excess.event(step) if self._excess is not None else None
        if event is None or any(
            one.kind == event.kind and one.last_step >= step and one.layer in (event.layer, None) for one in known
        ):
            return None
        return event
