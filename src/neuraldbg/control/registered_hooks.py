"""Plain functions as hooks, for one session or for all sessions of the process: ``register_hook``."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from neuraldbg.control.hook_moments import MOMENTS, OF_LAYERS
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from neuraldbg.control.hook_moments import Context


class _Registered:
    """The hooks of this process, for all its sessions, and the sessions to tell of new ones."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, hook: Hook) -> None:
        self.hooks = [*self.enabled(), hook]
        for session in list(self.sessions):
            session.add(hook)

    def enabled(self) -> list[Hook]:
        return [hook for hook in self.hooks if hook.enabled]


_REGISTERED = _Registered()


def registered() -> tuple[Hook, ...]:
    """Return the hooks that ``register_hook`` has set for all sessions of this process."""
    return tuple(_REGISTERED.enabled())


def follow_registered(session: Any) -> None:
    """Call ``session.add`` with each hook that ``register_hook`` sets from now on, as long as the session lives."""
    _REGISTERED.sessions.add(session)


def hook_of(
    moment: str | Hook,
    function: Callable[..., Any] | None,
    *,
    layers: Iterable[str] | str = (),
    every: int = 1,
    max_executions: int | None = None,
    when: str | Callable[[Context], bool] | None = None,
    name: str = "",
) -> Hook:
    """Return the hook that the arguments of ``register_hook`` mean. Raises ConfigError."""
    if isinstance(moment, Hook):
        return moment
    if not callable(function):
        message = f"a hook is a function, not {function!r:.60}"
        raise ConfigError(message)
    if moment not in MOMENTS:
        message = f"there is no moment {moment!r}: use {', '.join(MOMENTS)}"
        raise ConfigError(message)
    trigger = HookTrigger(moment, every, executions=max_executions)
    if when is not None:
        trigger &= HookTrigger.condition(when)
    called = HookAction.callback(_Arguments(function, moment))
    return Hook(name or getattr(function, "__name__", "hook"), trigger, [called], layers)


def register_hook(
    moment: str | Hook,
    function: Callable[..., Any] | None = None,
    *,
    layers: Iterable[str] | str = (),
    every: int = 1,
    max_executions: int | None = None,
    when: str | Callable[[Context], bool] | None = None,
    name: str = "",
) -> Any:
    """Call a function at a moment of every training that a session of this process watches, now and later.

    ::

        @register_hook("after_layer", layers="encoder.*", every=10)
        def look(layer_name, activations):
            print(layer_name, activations.abs().max())

    | Moment | Arguments |
    |---|---|
    | ``before_layer`` | ``(layer_name, inputs)``, the positional inputs as a tuple |
    | ``after_layer`` | ``(layer_name, activations)``, the output of the layer |
    | ``after_backward`` | ``(layer_name, gradients)``, the gradient of the loss by that output |
    | ``before_step`` | ``(step)``: gradients are final, the weights unchanged |
    | ``after_step`` | ``(step, loss)``; the loss is None if none was read |
    | ``on_loss`` | ``(step, loss)``, for steps with a loss |
    | ``on_event`` | ``(event)``, once for each event that begins |

    Tensors are detached: they share memory with those of the program, and must not be written to. ``layers`` are paths,
    aliases such as ``Dense_1`` or patterns; ``every`` counts steps; ``when`` is a condition (see ``Condition``) or a
    function of a ``Context``. A hook that raises is reported by the logger ``neuraldbg`` and switched off; the training
    goes on. Layers of a compiled model run without hooks.

    Return the hook, or, without a function, a decorator that returns its function. ``NeuralDbg.register_hook`` is the
    same for one session. Raises ConfigError.
    """
    options: dict[str, Any] = {
        "layers": layers, "every": every, "max_executions": max_executions, "when": when, "name": name,
    }  # fmt: skip
    return register_with(_REGISTERED.add, moment, function, options)


def register_with(
    add: Callable[[Hook], None], moment: str | Hook, function: Callable[..., Any] | None, options: Mapping[str, Any]
) -> Any:
    """Make a hook and ``add`` it, or return a decorator that does so."""
    if function is None and not isinstance(moment, Hook):

        def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
            add(hook_of(moment, decorated, **options))
            return decorated

        hook_of(moment, print, **options)  # wrong arguments are refused where they are written
        return decorate
    hook = hook_of(moment, function, **options)
    add(hook)
    return hook


class _Arguments:
    """Calls a plain function with the arguments of its moment."""

    def __init__(self, function: Callable[..., Any], moment: str) -> None:
        self._function, self._moment = function, moment

    def __call__(self, context: Context) -> Any:
        if self._moment in OF_LAYERS:
            return self._function(context.layer, context.value)
        if self._moment == "on_event":
            return self._function(context.event)
        return (
            self._function(context.step)
            if self._moment == "before_step"
            else self._function(context.step, context.loss)
        )
