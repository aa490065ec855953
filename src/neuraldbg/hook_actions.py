"""The actions of hooks, done for a session: an action and the values of a moment in, a HookResult out.

What depends on the kind of tensor (its shape, a copy, a file) is done by ``Tensors``: torch's in a session that watches
a training, numpy's in one that is given its numbers by hand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from neuraldbg.control.alert_rules import met
from neuraldbg.control.condition import Condition
from neuraldbg.control.hook_moments import BETWEEN_STEPS, Context, HookResult
from neuraldbg.control.hooks import RECORDED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from neuraldbg.control import UserCalls
    from neuraldbg.control.hook_triggers import HookAction
    from neuraldbg.control.hooks import Hook, Work


class Tensors(Protocol):
    """The functions that read a tensor of one kind."""

    def shape_of(self, x: Any) -> tuple[tuple[int, ...], str]:
        """Return shape and dtype of a tensor, as plain values."""

    def copied(self, x: Any) -> Any:
        """Return a copy of a tensor on the CPU; its ``nbytes`` are counted."""

    def save(self, value: Any, file: Path) -> None:
        """Write the tensors of a value to a file, in a folder that may not be there yet. Raises OSError."""


class HookActions:
    """Does the actions of hooks.

    ``suffix`` is that of the files of ``tensors``; ``folder`` returns the folder of the run, None in memory; ``halt``
    stops the training for a reason before or after a step, and raises; ``pause`` stops in a debugger; ``alert`` tells
    an alert: rule, severity and text, then by name ``step``, ``layer`` and ``value``.
    """

    def __init__(
        self,
        tensors: Tensors,
        suffix: str,
        *,
        folder: Callable[[], Path | None],
        halt: Callable[[str, Context], None],
        pause: Callable[[Context, Hook], HookResult | None],
        alert: Callable[..., None],
    ) -> None:
        self._tensors, self._suffix = tensors, suffix
        self._folder, self._halt, self._pause, self._tell = folder, halt, pause, alert

    def do(self, action: HookAction, context: Context, hook: Hook) -> HookResult | None:
        """Do an action: see ``neuraldbg.control.hooks.Work``."""
        if action.name == "callback":
            assert action.function is not None
            action.function(context)
            return None
        if action.name == "alert":
            return self._alert(action, context, hook)
        if action.name == "pause":
            return self._pause(context, hook)
        result = HookResult(context.step, context.moment, action.name, context.layer, context.statistics)
        if action.name == "halt":
            self._halt(f"the hook '{hook.name}' asked for it", context)
            return result
        tensor = context.tensor
        if tensor is not None:
            result.shape, result.dtype = self._tensors.shape_of(tensor)
            if action.name == "record_activations":
                result.tensor = self._tensors.copied(tensor)
                _trim(hook.results, result)
        if action.name == "save_snapshot":
            result.file = str(self._save(context, hook))
        return result

    def _alert(self, action: HookAction, context: Context, hook: Hook) -> HookResult:
        where = f"step {context.step}" + (f", layer '{context.layer}'" if context.layer else "")
        text = f"{action.message} ({where})" if action.message else where
        value = None  # the number that the first condition of the hook is about
        for one in hook.trigger.conditions:
            if isinstance(one, Condition) and value is None:
                value = met(one, context.scalars, context.statistics)[1]
        self._tell(hook.name, action.severity, text, step=context.step, layer=context.layer, value=value)
        return HookResult(context.step, context.moment, "alert", context.layer, context.statistics, message=text)

    def _save(self, context: Context, hook: Hook) -> Path:
        folder = self._folder()
        assert folder is not None
        name = re.sub(r"[^\w.-]+", "_", f"{hook.name}-{context.layer}")
        file = folder / "snapshots" / f"{name}-{context.moment}-step{context.step:06}{self._suffix}"
        self._tensors.save(context.value, file)
        return file


def applied(context: Context) -> bool:
    """Return True at a moment at which the step has been applied: a halt is then before the next one."""
    return context.moment in BETWEEN_STEPS


def run_hook(hook: Hook, context: Context, work: Work, calls: UserCalls) -> None:
    """Run a hook that is due. One that raises is reported as the user's, and switched off."""
    role, place = f"the hook '{hook.name}'", f"layer '{context.layer}'" if context.layer else ""
    then = "it is switched off, and the training goes on"
    error = calls.call(role, context.step, hook.run, context, work, place=place, then=then, each=True)
    if error is not None:
        hook.switch_off(error)


def _trim(results: Sequence[HookResult], new: HookResult) -> None:
    """Drop the oldest recorded tensors until they fit into RECORDED_BYTES with a new one; their results stay."""
    held = [one for one in [*results, new] if one.tensor is not None]
    size = sum(one.tensor.nbytes for one in held)
    for one in held[:-1]:
        if size <= RECORDED_BYTES:
            break
        size -= one.tensor.nbytes
        one.tensor = None
