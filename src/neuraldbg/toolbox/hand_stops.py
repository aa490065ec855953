"""The stops of a session by hand: a hook's moment in, the debugger's prompt out, or numbers where nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.control.hook_moments import HookResult
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.debugger.entry import entry, stop
from neuraldbg.debugger.missed_stops import MissedStops
from neuraldbg.debugger.stop import NAMES, QUIT, NoAnswer, Stop
from neuraldbg.program_timers import time_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.control.hook_moments import Context

_MAIN = {"after_layer": "output", "after_backward": "grad"}
"""Name of the array that a moment of a layer is about."""


class HandStops:
    """Stops for the hooks of a session by hand, and does what the commands of the prompt ask for.

    ``folder`` returns the folder of the run, None in memory; ``statistics`` returns those of an array, ``layers`` the
    names of the layers; ``halt`` stops the training for a reason, and raises; ``add`` runs a hook.
    """

    def __init__(
        self,
        folder: Callable[[], Path | None],
        statistics: Callable[[Any], Mapping[str, float]],
        layers: Callable[[], Sequence[str]],
        halt: Callable[[str], None],
        add: Callable[[Hook], None],
    ) -> None:
        self._folder, self._statistics, self._layers, self._halt, self._add = folder, statistics, layers, halt, add
        self._missed = MissedStops(self._file, self.statistics)
        self._watched: list[str] = []
        self._newest = 0
        """Step of the newest stop."""

    def _file(self) -> Path | None:
        folder = self._folder()
        return folder / "rank0.ndbg" if folder is not None else None

    def pause(self, context: Context, hook: Hook) -> HookResult | None:
        """Stop in the debugger; where that cannot be, log it, keep the numbers and let the training go on. Raises what
        ``halt`` raises if the person ends the training.
        """
        where = f"step {context.step}" + (f", layer '{context.layer}'" if context.layer else "")
        known: dict[str, Any] = {"step": context.step, "loss": context.loss, "layer_name": context.layer or None}
        main = _MAIN.get(context.moment, "")
        names = {**dict.fromkeys(NAMES), **known, **({main: context.value} if main else {})}
        way = entry()
        if not way.refused:
            self._newest = context.step
            try:
                with time_stopped():
                    left = stop(Stop(f"{where} ({hook.name})", names, main, self, self._watched), way)
            except NoAnswer as error:
                return self._without(context, hook, where, f"no line can be read ({error})", names)
            if left == QUIT:
                self._halt(f"ended by hand at {where}")
            return None
        return self._without(context, hook, where, way.refused, names)

    def _without(
        self, context: Context, hook: Hook, where: str, reason: str, names: Mapping[str, Any]
    ) -> HookResult | None:
        """Record the numbers of a stop that nobody can answer."""
        if self._missed.ignores(hook.name):
            return None
        found = self._missed.add(hook.name, where, reason, names, context.scalars, hook.name)
        numbers = context.statistics or found.get(_MAIN.get(context.moment, ""), {})
        return HookResult(context.step, context.moment, "pause", context.layer, numbers, message=reason)

    # -- what the commands ask for ----------------------------------------------------------------------------------

    def layers(self) -> Sequence[tuple[str, str, str]]:
        """Return (name, "", "") of each layer: types are not known by hand."""
        return [(name, "", "") for name in self._layers()]

    def statistics(self, value: Any) -> Mapping[str, float]:
        """Return the statistics of an array; {} of anything else, and without elements."""
        return self._statistics(value) if isinstance(value, np.ndarray) and value.size else {}

    def numbers(self, value: Any) -> Any:
        """Return the numbers of an array, as a flat array of float64; None if it has none that can be drawn."""
        known = isinstance(value, np.ndarray) and value.size and value.dtype.kind in "fiub"
        return value.astype(np.float64).reshape(-1) if known else None

    def otherwise(self, value: Any) -> str:
        """Return why an array has no numbers to show, and what has; "" for anything else."""
        if not isinstance(value, np.ndarray):
            return ""
        if not value.size:
            return "it has no elements"
        return "it is complex: ask for its real or imag" if value.dtype.kind == "c" else f"its dtype is {value.dtype}"

    def diagnosis(self) -> str:
        """Return where the diagnosis is found."""
        return "A session that is given its numbers by hand is diagnosed by its report: report() or stop()."

    def stop_next_layer(self) -> None:
        """Stop at the next layer whose hooks are executed."""
        self._once("next", HookTrigger("after_layer", executions=1))

    def stop_next_step(self) -> None:
        """Stop at the first layer of the next step."""
        self._once("step", HookTrigger("after_layer", first=self._newest + 1, executions=1))

    def stop_at(self, name: str) -> str:
        """Stop when the hooks of a layer are executed. Return what it is, in words. Raises ConfigError."""
        self._once(f"until {name}", HookTrigger("after_layer", executions=1) & HookTrigger.layer(name))
        return f"the layer {name}"

    def _once(self, name: str, trigger: HookTrigger) -> None:
        self._add(Hook(name, trigger, [HookAction.PAUSE]))
