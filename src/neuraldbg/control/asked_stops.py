"""The places where a person wants a training to stop, as on the command line of ``neuraldbg debug``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from neuraldbg.control.hook_moments import Moment

NAN = "a value that is not finite"
"""Name of the hooks that wait for the first NaN or infinite value."""
BIRTH: tuple[Moment, ...] = ("before_layer", "after_layer", "after_backward")
"""Moments at which the first value that is not finite may be seen; the inputs come first."""


def is_nan(name: object) -> bool:
    """Return True for a name of values that are not finite."""
    return isinstance(name, str) and name.strip().lower() in ("nan", "inf", "nonfinite")


@dataclass(frozen=True)
class Asked:
    """The stops that are asked for. Each option is a stop of its own; ``step`` and ``when`` restrict all of them."""

    layers: tuple[str, ...] = ()
    """Paths, aliases or patterns of layers; empty for all."""
    step: int | None = None
    """Only in this step."""
    when: str | None = None
    """Only if this condition holds."""
    each: bool = False
    """Before each layer."""
    backward: bool = False
    """At the gradient of each layer's output."""
    before_step: bool = False
    """Before the optimizer changes the weights."""

    @property
    def any(self) -> bool:
        """True if something is asked for."""
        return self != Asked()

    @property
    def name(self) -> str:
        """The wish in a few words."""
        told = [*self.layers, *([self.when] if self.when else [])]
        return f"breakpoint {', '.join(told)}" if told else "breakpoint"

    def hooks(self, action: HookAction) -> list[Hook]:
        """Return a hook for each stop. Raises ConfigError."""
        shared = self._shared()
        moments: list[HookTrigger] = []
        if self.each:
            moments.append(HookTrigger("before_layer", layers=self.layers))
        if self.backward:
            moments.append(HookTrigger("after_backward", layers=self.layers))
        if self.layers and not moments:
            moments.append(HookTrigger("after_layer", layers=self.layers))
        if self.before_step:
            moments.append(HookTrigger("before_step"))
        if not moments and self.when is not None:
            moments.append(HookTrigger("after_layer" if shared.reads else "after_step"))
        triggers = [shared & one for one in moments] or [shared & HookTrigger("before_layer", executions=1)]
        return [Hook(self.name, trigger, [action]) for trigger in triggers]

    def nan_hooks(self) -> list[Hook]:
        """Return the hooks that stop at the first value that is not finite: of a layer, a gradient or the loss. Raises
        ConfigError.
        """
        if self.each or self.backward or self.before_step:
            message = "a stop at the first NaN is restricted by layers, a step and a condition alone"
            raise ConfigError(message)
        shared = self._shared()
        bad = HookTrigger.condition("layer.nonfinite > 0")
        found = [
            Hook(NAN, shared & HookTrigger(moment, layers=self.layers) & bad, [HookAction.PAUSE]) for moment in BIRTH
        ]
        if not self.layers and not shared.reads:
            lost = HookTrigger.condition("not isfinite(loss)")
            found.append(Hook(NAN, shared & HookTrigger("before_step") & lost, [HookAction.PAUSE]))
        return found

    def _shared(self) -> HookTrigger:
        shared = HookTrigger() if self.when is None else HookTrigger.condition(self.when)
        return shared if self.step is None else shared & HookTrigger(first=self.step, last=self.step)
