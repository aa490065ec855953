"""The stops of one session: enters the debugger at a moment of the training, and sets the next stop."""

from __future__ import annotations

import functools
import logging
import weakref
from contextlib import nullcontext
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.experiments.experiment import generators_restored
from neuraldbg.capture.guest.dynamo_skip import waits
from neuraldbg.capture.guest.module_tree import training
from neuraldbg.capture.statistics import state_digests, whole_tensors
from neuraldbg.control.asked_stops import NAN, Asked, is_nan
from neuraldbg.control.hook_moments import BETWEEN_STEPS, Context, HookResult
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.debugger.entry import NOT_MAIN, entry, stop, talk_in_another
from neuraldbg.debugger.missed_stops import MissedStops
from neuraldbg.debugger.stop import NAMES, QUIT, NoAnswer, Stop
from neuraldbg.errors import ConfigError, EndedByHand, UnknownLayer
from neuraldbg.layer_alias import alias
from neuraldbg.nouns.diagnosis import AS_WRITTEN
from neuraldbg.session_dashboard import PageStops, left_out_of_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.capture import Capture
    from neuraldbg.control import Breakpoints
    from neuraldbg.control.page_link import PageAddress
    from neuraldbg.session_hooks import SessionHooks

_LOG = logging.getLogger("neuraldbg")
_MAIN = {"before_layer": "inputs", "after_layer": "output", "after_backward": "grad"}
"""Name of the tensor that a moment of a layer is about."""
_NO_PAGE = "No page of the dashboard is open: this stop is here. Open the page, then `continue`: later stops are there."


@functools.cache
def _prompt_waits() -> None:
    """Tell that a prompt waits for a person: a signal of the program's may be handled there."""
    from neuraldbg.debugger.prompt import TAKES_COMMANDS  # noqa: PLC0415 (pdb is not loaded before the first stop)

    for function in (*TAKES_COMMANDS, talk_in_another):
        waits(function)


class Stops:
    """Stops in the debugger for hooks, and does what its commands ask for."""

    def __init__(self, session: Any, capture: Capture, hooks: SessionHooks, breakpoints: Breakpoints) -> None:
        self._session, self._capture, self._hooks = weakref.ref(session), capture, hooks
        self._breakpoints = breakpoints
        self._watched: list[str] = []
        self._next: list[Hook] = []
        """Hooks of the commands ``next``, ``step`` and ``continue until``, gone after the next stop."""
        self._until: list[Callable[[Any], None]] = []
        """Action of the breakpoint of ``continue until``, gone after the next stop; empty if there is none."""
        self._ending: list[Hook] = []
        """Hook that ends a program which has swallowed the exception of ``quit``; empty before."""
        self._late: list[Hook] = []
        """Hooks of a stop at a gradient that another thread has seen; empty if there is none."""
        self._first: list[Hook] = []
        """Hooks of the stops that were asked for once, as by ``neuraldbg debug`` without an option."""
        self._over = False
        """True once the session is ending: nothing stops any more."""
        self._between = False
        """True if the newest stop is between two steps."""
        self._nan: list[Hook] = []
        """Hooks that wait for the first value that is not finite, gone once it is seen."""
        self.by_hand: dict[str, str] = {}
        """Sentence on the values that were changed at a stop, by AS_WRITTEN; empty if there are none."""
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
        """Let nothing stop any more: the program has ended, or a signal is ending it."""
        self._over = True
        self._hooks.drop([*self._next, *self._ending, *self._late])  # ours: the user does not miss that they never ran
        if self._page is not None:
            self._page.close()

    def pause(self, context: Context, title: str, name: str = "", *, late: bool = False) -> HookResult | None:
        """Stop on the dashboard if its page is open, else in the debugger. Where that cannot be, log it, keep the
        numbers and let the training go on. ``name`` is that of the breakpoint, if it is not the title; ``late`` is True
        for a stop that makes up for one in another thread. Raises TrainingHalted if the person ends the training.
        """
        if self._ending:  # nobody who has said `quit` is asked again
            return None
        where, self._between = (
            self._known(f"step {context.step}", self._where, context),
            context.moment in BETWEEN_STEPS,
        )
        if self._over:
            _LOG.warning("neuraldbg: '%s' does not stop at %s: the session has ended.", title, where)
            return None
        if self._page is not None and self._page.watched:
            self._drop_spent(title)
            self._page.stop(context, title)
            return None
        way, names = entry(), self._known(dict.fromkeys(NAMES), self._names, context)
        waits_for_main = way.refused == NOT_MAIN and context.moment == "after_backward" and not late
        if waits_for_main and not entry(later=True).refused:
            self._stop_later(context, title, name)
            return None
        if way.refused:
            reason = way.refused if self._page is None else self._without_page(way.refused)
            return self._missed(context, title, where, reason, names, name)
        if self._page is not None:
            way = way._replace(remark=_NO_PAGE)
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
            told = self.by_hand.get(AS_WRITTEN, "")
            told += f"{'; ' if told else ''}{', '.join(changed)} changed by hand at step {context.step}"
            self.by_hand[AS_WRITTEN] = told
        if left == QUIT:
            self._ending = [Hook("ended", HookTrigger("before_layer"), [HookAction.callback(_end)], ["*"])]
            self._hooks.add(self._ending[0])
            self._hooks.halt(f"ended by hand at {where}", context.step, EndedByHand)
        return None

    def _stop_later(self, context: Context, title: str, name: str) -> None:
        """Stop at the next moment with the gradient that is seen now: this is a thread of autograd's, as on a GPU, and
        a prompt is for the main thread.
        """
        if self._late:
            return

        def stop_now(_: Context) -> None:
            for hook in self._late:
                hook.remove()
            self._hooks.drop(self._late)
            self._late.clear()
            self.pause(context, title, name, late=True)

        for moment in ("before_layer", "before_step"):
            self._late.append(Hook("gradient", HookTrigger(moment), [HookAction.callback(stop_now)]))
        for hook in self._late:
            self._hooks.add(hook)

    def _without_page(self, refused: str) -> str:
        """Return why neither page nor debugger can stop here. A stop that was asked for once is made up for."""
        reason, page = f"no page of the dashboard is open, and {refused}", self._page
        if page is None or not any(hook.over for hook in self._first):
            return reason
        self._first.clear()
        at = HookTrigger("before_layer", executions=1) & HookTrigger.condition(lambda _: page.watched)
        self._hooks.add(Hook("breakpoint", at, [HookAction.PAUSE]))
        return f"{reason} (it stops once a page is open)"

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
        for action in self._until:
            self._breakpoints.drop(action)
        self._until.clear()

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
            if hook.trigger.executions is not None:
                self._first.append(hook)

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
        is, in words. Raises UnknownName, and ConfigError for a cause that is credible already.
        """
        if is_nan(name):
            self.stop_at_nan(Asked())
            return NAN
        session = self._session()
        assert session is not None
        from neuraldbg.explain import meaning  # noqa: PLC0415 (a program that is only watched needs none of it)

        asked = meaning(name, self._capture.layout())
        if asked.causes and not asked.kinds and self._breakpoints.named(asked.causes):
            message = f"{name} is credible already, and would stop nothing more: `diagnose` shows why"
            raise ConfigError(message)

        def once(what: Any) -> None:
            if once in self._until:  # it stops once, and not where another breakpoint has just stopped
                self.met(name, what)

        session.add_breakpoint(name, once)
        self._until.append(once)
        return name

    def met(self, name: str, what: Any) -> None:
        """Stop at an event that has begun, or a cause that is credible."""
        step = getattr(what, "last_step", None)
        step = self._capture.steps - 1 if step is None else step
        if self._over or self._ending:
            _LOG.warning("neuraldbg: '%s' does not stop at step %d: it was seen as the run ended.", name, step)
            return
        context = Context("on_event", step, event=what)
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
        first = self._capture.steps + (not self._between)
        trigger = HookTrigger("before_layer", first=first, executions=1)
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
