"""The stops of one session: enters the debugger at a moment of the training, and sets the next stop."""

from __future__ import annotations

import functools
import weakref
from contextlib import nullcontext
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.experiments.experiment import generators_restored
from neuraldbg.capture.guest.dynamo_skip import waits
from neuraldbg.capture.guest.module_tree import training
from neuraldbg.capture.statistics import state_digests, whole_tensors
from neuraldbg.control.asked_stops import NAN, Asked, is_nan
from neuraldbg.control.hook_moments import Context, HookResult
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.debugger.entry import entry, stop
from neuraldbg.debugger.missed_stops import MissedStops
from neuraldbg.debugger.stop import NAMES, QUIT, NoAnswer, Stop
from neuraldbg.errors import EndedByHand, UnknownLayer
from neuraldbg.layer_alias import alias
from neuraldbg.session_dashboard import PageStops, left_out_of_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.capture import Capture
    from neuraldbg.control.page_link import PageAddress
    from neuraldbg.session_hooks import SessionHooks

_MAIN = {"before_layer": "inputs", "after_layer": "output", "after_backward": "grad"}
"""Name of the tensor that a moment of a layer is about."""
BY_HAND = "the run as it was written"
"""What cannot be judged after values were changed in the debugger, in the words of the diagnosis."""


@functools.cache
def _prompt_waits() -> None:
    """Tell that the prompt waits for a person: a signal of the program's may be handled there."""
    from neuraldbg.debugger.prompt import TAKES_COMMANDS  # noqa: PLC0415 (pdb is not loaded before the first stop)

    for function in TAKES_COMMANDS:
        waits(function)


class Stops:
    """Stops in the debugger for hooks, and does what its commands ask for."""

    def __init__(self, session: Any, capture: Capture, hooks: SessionHooks) -> None:
        self._session, self._capture, self._hooks = weakref.ref(session), capture, hooks
        self._watched: list[str] = []
        self._next: list[Hook] = []
        """Hooks of the commands ``next``, ``step`` and ``continue until``, gone after the next stop."""
        self._nan: list[Hook] = []
        """Hooks that wait for the first value that is not finite, gone once it is seen."""
        self.by_hand: dict[str, str] = {}
        """Sentence on the values that were changed at a stop, by BY_HAND; empty if there are none."""
        self.missed = MissedStops(self._file, self.statistics)
        hooks.pause = self.pause
        self._page: PageStops | None = None

    def listen(self, dashboard: PageAddress, file: Callable[[], Path | None]) -> None:
        """Let the page of a dashboard stop the training. ``file`` returns the run file."""
        self._page = PageStops(dashboard, self._capture, self._hooks, self._where, file)
        self._page.start()

    def let_go(self) -> None:
        """Go on if the training waits for a page."""
        if self._page is not None:
            self._page.let_go()

    def close(self) -> None:
        """Let no page stop the training any more."""
        if self._page is not None:
            self._page.close()

    def pause(self, context: Context, title: str, name: str = "") -> HookResult | None:
        """Stop on the dashboard if its page is open, else in the debugger. Where that cannot be, log it, keep the
        numbers and let the training go on. ``name`` is that of the breakpoint, if it is not the title. Raises
        TrainingHalted if the person ends the training.
        """
        where = self._known(f"step {context.step}", self._where, context)
        if self._page is not None and self._page.watched:
            self._drop_spent(title)
            self._page.stop(context, title)
            return None
        way, names = entry(), self._known(dict.fromkeys(NAMES), self._names, context)
        if way.refused:
            return self._missed(context, title, where, way.refused, names, name)
        _prompt_waits()
        self._drop_spent(title)
        at = f"{where} ({title}){self._known('', self._maker, context, title)}"
        elsewhere = nullcontext() if self._page is None else self._page.in_terminal(where)
        try:
            with left_out_of_time(self._capture), generators_restored(), elsewhere:
                before = self._known({}, self._state, names)
                left = stop(Stop(at, names, _MAIN.get(context.moment, ""), self, self._watched), way)
                changed = state_digests.changes(before, self._known(before, self._state, names) if before else {})
        except NoAnswer as error:
            return self._missed(context, title, where, f"no line can be read ({error})", names, name)
        if changed:
            told = self.by_hand.get(BY_HAND, "")
            told += f"{'; ' if told else ''}{', '.join(changed)} changed by hand at step {context.step}"
            self.by_hand[BY_HAND] = told
        if left == QUIT:
            self._hooks.add(Hook("ended", HookTrigger("before_layer"), [HookAction.callback(_end)], ["*"]))
            self._hooks.halt(f"ended by hand at {where}", context.step, EndedByHand)
        return None

    def _missed(
        self, context: Context, title: str, where: str, reason: str, names: Mapping[str, Any], name: str
    ) -> HookResult | None:
        """Record the numbers of a stop that nobody can answer. Hooks that have nothing left to do are removed: those
        for the first NaN, and one that only stops, once as many of its stops are recorded as ever are.
        """
        # Where another thread cannot stop, the main one may; and a page of the dashboard may be opened later.
        never = current_thread() is main_thread() and self._page is None
        if self.missed.ignores(name or title):
            spent = [one for one in self._hooks.hooks if never and (one.name, one.moment) == (title, context.moment)]
            self._retire([one for one in spent if all(action.name == "pause" for action in one.actions)])
            return None
        if title == NAN and never:
            self._retire(self._nan)
            self._nan.clear()
        found = self.missed.add(title, where, reason, names, context.scalars, name or title)
        numbers = context.statistics or found.get(_MAIN.get(context.moment, ""), {})
        return HookResult(context.step, context.moment, "pause", context.layer, numbers)

    def _known(self, otherwise: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function says of a stop, ``otherwise`` if it fails: its error is ours, and not the hook's."""
        try:
            return function(*args)
        except Exception:  # noqa: BLE001 (the stop itself is worth more than what is said of it)
            self._capture.tally.caught("preparing a stop")
            return otherwise

    def _drop_spent(self, title: str) -> None:
        """Remove the hooks that a stop has spent."""
        for spent in (self._next, self._nan if title == NAN else []):
            self._retire(spent)
            spent.clear()

    def _retire(self, hooks: Sequence[Hook]) -> None:
        for hook in hooks:
            hook.remove()
        self._hooks.drop(hooks)

    def set(self, asked: Asked, action: Callable[[Context], Any] | None = None) -> None:
        """Stop where it is asked for, or call ``action`` there. Raises UnknownLayer for a pattern that fits no layer,
        if layers are known, and ConfigError.
        """
        hooks = asked.hooks(HookAction.PAUSE if action is None else HookAction.callback(action))
        for hook in hooks:
            if self._capture.layout().layers:
                self._hooks.check(hook)
        for hook in hooks:
            self._hooks.add(hook)

    def told(self, coverage: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        """Return the coverage report with further notes and what was changed by hand."""
        page = self._page.notes if self._page is not None else ()
        coverage = {**coverage, "notes": [*coverage["notes"], *notes, *page]}
        if not self.by_hand:
            return coverage
        return {**coverage, "unread": {**(coverage.get("unread") or {}), **self.by_hand}}

    def here(self) -> None:
        """Stop at the line of the program that asks for it."""
        context = Context("after_step", max(self._capture.steps - 1, 0), scalars=self._hooks.scalars)
        context.loss = context.scalars.get("loss")
        self.pause(context, "dbg.pause()")

    def stop_at_nan(self, asked: Asked) -> None:
        """Stop where the first value that is not finite is seen, once. Raises ConfigError."""
        for hook in asked.nan_hooks():
            self._nan.append(hook)
            self._hooks.add(hook)

    def stop_on(self, name: str) -> str:
        """Stop once a named event or cause is seen; ``nan`` stops at the first value that is not finite. Return what it
        is, in words. Raises UnknownName.
        """
        if is_nan(name):
            self.stop_at_nan(Asked())
            return NAN
        session = self._session()
        assert session is not None
        met: list[Any] = []  # it stops once: `until` is no breakpoint that stays

        def once(what: Any) -> None:
            if not met:
                met.append(what)
                self.met(name, what)

        session.add_breakpoint(name, once)
        return name

    def met(self, name: str, what: Any) -> None:
        """Stop at an event that has begun, or a cause that is credible."""
        step = getattr(what, "last_step", None)
        context = Context("on_event", self._capture.steps - 1 if step is None else step, event=what)
        context.scalars = self._hooks.scalars
        context.loss = context.scalars.get("loss")
        self.pause(context, f"{name}: {what}", name)

    # -- what the commands ask for ----------------------------------------------------------------------------------

    def layers(self) -> Sequence[tuple[str, str, str]]:
        """Return (path, type, alias) of each layer."""
        layout = self._capture.layout()
        return [(layer.path, layer.type, alias(layout, layer.path)) for layer in layout.layers]

    def statistics(self, value: Any) -> Mapping[str, float]:
        """Return the statistics of the first tensor of a value; {} without one."""
        tensor = whole_tensors.first_tensor(value)
        return whole_tensors.statistics(tensor) if tensor is not None else {}

    def numbers(self, value: Any) -> Any:
        """Return the numbers of the first tensor of a value, as a flat array; None if it has none that can be drawn."""
        tensor = whole_tensors.first_tensor(value)
        if tensor is None or tensor.is_complex() or tensor.is_quantized:
            return None
        return whole_tensors.flat(tensor)

    def otherwise(self, value: Any) -> str:
        """Return why a value has no numbers to show, and what has; "" without a tensor."""
        return whole_tensors.otherwise(value)

    def diagnosis(self) -> str:
        """Return the diagnosis of the run so far, as text."""
        session = self._session()
        return str(session) if session is not None else ""

    def stop_next_layer(self) -> None:
        """Stop before the next layer that is called."""
        self._once(Hook("next", HookTrigger("before_layer", executions=1), [HookAction.PAUSE]))

    def stop_next_step(self) -> None:
        """Stop at the first layer of the next step."""
        trigger = HookTrigger("before_layer", first=self._capture.steps + 1, executions=1)
        self._once(Hook("step", trigger, [HookAction.PAUSE]))

    def stop_at(self, name: str) -> str:
        """Stop when a named event or cause is seen, or a layer has run. Return what it is, in words. Raises
        NeuralDbgError for an unknown name.
        """
        hook = Hook(f"until {name}", HookTrigger("after_layer", executions=1), [HookAction.PAUSE], [name])
        try:
            self._hooks.check(hook)
        except UnknownLayer:
            return self.stop_on(name)
        self._once(hook)
        return f"layer {name}"

    # -- parts of a stop --------------------------------------------------------------------------------------------

    def _file(self) -> Path | None:
        session = self._session()
        return session.file if session is not None else None

    def _once(self, hook: Hook) -> None:
        self._next.append(hook)
        self._hooks.add(hook)

    def _where(self, context: Context) -> str:
        at = f"step {context.step}"
        if not context.layer:
            return f"{at}, {context.moment.replace('_', ' ')}"
        layer = self._capture.layout().by_path.get(context.layer)
        kind = f" ({layer.type})" if layer is not None else ""
        moment = {
            "before_layer": "before layer",
            "after_layer": "after layer",
            "after_backward": "at the gradient of the output of layer",
        }
        module = self._capture.hooks.modules.get(context.layer)
        mode = ", eval mode" if module is not None and not training(module) else ""
        again = f", call {context.call}" if context.call > 1 else ""
        return f"{at}, {moment[context.moment]} '{context.layer}'{kind}{again}{mode}"

    def _maker(self, context: Context, title: str) -> str:
        """Write which layers' backward pass has made a gradient that is not finite, where the data flow is known."""
        if title != NAN or context.moment != "after_backward":
            return ""
        edges = self._capture.layout().edges
        behind = list(dict.fromkeys(repr(edge.target) for edge in edges if edge.source == context.layer))
        made = " and ".join(behind) or "what follows it"
        return f"\nIt comes from the backward pass of {made}."

    def _names(self, context: Context) -> dict[str, Any]:
        """Return the values of NAMES at a moment."""
        names: dict[str, Any] = dict.fromkeys(NAMES)
        hooks, models = self._capture.hooks, self._capture.models.found
        if context.layer:
            names["layer"], names["layer_name"] = hooks.modules.get(context.layer), context.layer
        layer = hooks.layers.get(context.layer)
        model = next((one for one in models if layer is not None and one.name == layer.model), None)
        if model is None and models:
            model = models[0]
        names["model"] = model.root if model is not None else None
        streams = [stream.opt() for stream in self._capture.optimizers.streams]
        names["optimizer"] = context.optimizer or next((one for one in streams if one is not None), None)
        names["step"], names["dbg"] = context.step, self._session()
        names["loss"] = context.loss
        names["inputs"] = context.inputs if context.moment == "after_layer" else None
        if context.moment in _MAIN:
            names[_MAIN[context.moment]] = context.value
        return names

    def _state(self, names: Mapping[str, Any]) -> state_digests.Digests:
        """Return the digests of what a person may change at a stop."""
        where = f" of layer '{names['layer_name']}'" if names["layer_name"] else ""
        values = {f"{name}{where}": names[name] for name in ("inputs", "output", "grad")}
        models = [one.root for one in self._capture.models.found if not one.gone]
        streams = [stream.opt() for stream in self._capture.optimizers.streams]
        return state_digests.digests(values, models, [one for one in streams if one is not None])


def _end(_: Context) -> None:
    """End a program that has swallowed the exception of ``quit``, such as one that leaves out batches that raise."""
    raise KeyboardInterrupt
