"""The stops of one session on a dashboard: holds the training while a page is open, and does what the page asks for.

Requests come in the thread of the link. It sets hooks on layers, which torch looks up anew for each call; all else is
done by the thread that trains, when it is at a stop.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from neuraldbg import clocks
from neuraldbg.capture.experiments.experiment import generators_restored
from neuraldbg.capture.statistics import whole_tensors
from neuraldbg.control.hook_moments import BETWEEN_STEPS
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.control.page_link import PageLink
from neuraldbg.debugger.frames import own_lines
from neuraldbg.program_timers import time_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from neuraldbg.capture import Capture
    from neuraldbg.control.hook_moments import Context, Moment
    from neuraldbg.control.page_link import PageAddress
    from neuraldbg.session_hooks import SessionHooks

_LOG = logging.getLogger("neuraldbg")
_TENSORS: dict[str, tuple[tuple[str, str], ...]] = {
    "before_layer": (("inputs", "value"),),
    "after_layer": (("inputs", "inputs"), ("output", "value")),
    "after_backward": (("gradient of the output", "value"),),
}
"""Names of the tensors at a moment, and the attributes of the Context that have them."""
_NUMBERS = ("mean", "std", "rms", "min", "max", "norm")
"""Statistics that the page shows."""
_WAITS = {"pause": "pausing", "layer": "going on to the next layer", "step": "going on to the next step"}
"""States between a request and the stop that it asks for."""


@contextlib.contextmanager
def left_out_of_time(capture: Capture) -> Iterator[None]:
    """Leave the time in this context out of the durations of steps, of the overhead and of the program's timers: a
    person looks at a stop.
    """
    counts = capture.switch.here()
    if counts:  # steps that are over keep the times that they have, and are seen at the stop
        capture.tell_light()
        capture.delivery.deliver()
    began = clocks.perf_counter()
    try:
        with time_stopped():
            yield
    finally:
        if counts:
            capture.pace.skip(clocks.perf_counter() - began)


class PageStops:
    """Stops the training for a dashboard. ``where`` describes a moment in words, ``file`` returns the run file."""

    def __init__(
        self,
        address: PageAddress,
        capture: Capture,
        hooks: SessionHooks,
        where: Callable[[Context], str],
        file: Callable[[], Path | None],
    ) -> None:
        self._capture, self._hooks, self._where, self._file = capture, hooks, where, file
        self._link = PageLink(address, self.answer)
        self._process = os.getpid()
        self._turn = threading.RLock()
        """Held by the one thread that is at a stop."""
        self._changing = threading.Lock()
        """Held while the hooks of this class are changed."""
        self._breakpoints: set[tuple[str, Moment]] = set()
        self._standing: dict[Moment, Hook] = {}
        """Hooks of the breakpoints, one for each moment that some breakpoint has."""
        self._once: list[Hook] = []
        """Hooks of ``pause``, ``layer`` and ``step``, gone after the next stop."""
        self._waits = ""
        """Request that has set ``_once``; "" if there is none."""
        self._at: dict[str, Any] | None = None
        """Description of the stop at which the training waits; None while it runs."""
        self._late: dict[str, Any] | None = None
        """Description of a stop in a thread that cannot wait; None if there is none."""
        self._elsewhere = ""
        """Place at which the training is in the terminal's debugger; "" if it is not."""
        self._number, self._held_s, self._said = 0, 0.0, ""
        self.notes: list[str] = []
        """Sentences for the coverage of the run."""

    def start(self) -> None:
        """Connect to the dashboard. The thread that trains calls this, before its first step."""
        self._hooks.watch_steps()  # torch walks along the hooks of optimizers: no other thread may add one meanwhile
        self._link.start()

    def close(self) -> None:
        """End the connection, and remove the hooks of this class."""
        self._link.close()
        with self._changing:
            self._breakpoints.clear()
            self._remove([*self._once, *self._standing.values()])

    @property
    def watched(self) -> bool:
        """True if a page is open, and this process is no child of the one that it was opened for."""
        return os.getpid() == self._process and self._link.watched

    # -- in the thread that trains --------------------------------------------------------------------------------

    def stop(self, context: Context, title: str = "") -> None:
        """Hold the training at a moment until the page says how to go on, or no page is open any more."""
        if os.getpid() != self._process:
            return
        with self._turn:
            if self._at is not None:  # the program runs its model within the page's stop
                return
            if not self._link.watched:
                self._forget(context)
                return
            main = threading.main_thread().ident == _thread.get_ident()
            if context.moment == "after_backward" and not main:
                self._stop_later(context, title)
                return
            with self._changing:
                self._waits = ""
                self._remove(self._once)
            with left_out_of_time(self._capture), generators_restored():
                word = self._held(context, title)
            self._go_on(word, context)

    def _stop_later(self, context: Context, title: str) -> None:
        """Stop at the next moment with what is seen now: this is a thread of autograd's, as on a GPU. The main thread
        waits for it in C++, where no Ctrl-C would arrive.
        """
        if self._late is None:
            self._late = self._described(context, title)
            at = (HookTrigger(one, executions=1) for one in ("before_layer", "before_step"))
            self._set_once("gradient", *at)

    def let_go(self) -> None:
        """Go on if the training waits: a signal is about to end it."""
        if self._at is not None:
            self._link.say("end")

    def _held(self, context: Context, title: str) -> str:
        described, self._late = self._late or self._described(context, title), None
        self._link.forget()  # before the page can see this stop
        self._number += 1
        began = clocks.perf_counter()
        self._at, self._said = {**described, "number": self._number}, ""
        try:
            return self._link.hold()
        finally:  # also by Ctrl-C
            self._at = None
            self._held_s += clocks.perf_counter() - began
            times = f"{self._number} time{'' if self._number == 1 else 's'}"
            told = f"stopped on the dashboard {times}, for {self._held_s:.3g} s in all, which count for no step"
            self.notes[:] = [told, *self.notes[1:]]

    def _go_on(self, word: str, context: Context) -> None:
        if not word:
            self._forget(context, held=True)
        elif word == "layer":
            self._set_once(word, HookTrigger("before_layer", executions=1))
        elif word == "step":
            first = self._capture.steps + (context.moment not in BETWEEN_STEPS)
            self._set_once(word, *(_first_of(moment, first) for moment in ("before_layer", "before_step")))

    def _forget(self, context: Context, *, held: bool = False) -> None:
        """Go on without a page: nothing that it asked for stops the training any more."""
        self._late = None
        with self._changing:
            self._waits = ""
            self._breakpoints.clear()
            self._remove([*self._once, *self._standing.values()])
        how = "continued by itself" if held else "did not stop"
        self._said = f"{how} at {self._where(context)}: no page of the dashboard was open; its breakpoints are cleared"
        _LOG.warning("neuraldbg: the training %s.", self._said)
        self.notes[:] = [*(self.notes or [""]), f"the training {self._said}"]

    @contextlib.contextmanager
    def in_terminal(self, where: str) -> Iterator[None]:
        """Tell the page that the training is in the terminal's debugger in this context."""
        self._elsewhere = where
        try:
            yield
        finally:
            self._elsewhere = ""

    def _described(self, context: Context, title: str) -> dict[str, Any]:
        step, loss = (context.step, context.loss) if context.moment == "before_step" else self._hooks.newest_loss
        return {
            "where": self._where(context),
            "why": title,
            "step": context.step,
            "layer": context.layer,
            "loss": _number(loss),
            "loss_of": step,
            "tensors": [
                found for name, of in _TENSORS.get(context.moment, ()) for found in _tensors(name, getattr(context, of))
            ],
            "lines": own_lines(),
        }

    # -- in the thread of the link --------------------------------------------------------------------------------

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a page asks for, and return the state. A request of a page that shows an older stop does nothing."""
        do, at = request["do"], self._at
        if do == "pause" and at is None:
            self._set_once("pause", *(HookTrigger(one, executions=1) for one in ("before_layer", "before_step")))
        elif do in ("continue", "layer", "step") and at is not None and at["number"] == request["stop"]:
            self._link.say(do)
        elif do in ("set", "clear", "clear all"):
            self._change(do, request)
        return self._state(int(request.get("layers", -1)))

    def _change(self, do: str, request: Mapping[str, Any]) -> None:
        with self._changing:
            if do == "clear all":
                self._breakpoints.clear()
            elif do == "clear":
                self._breakpoints.discard((request["layer"], request["moment"]))
            elif request["layer"] in self._capture.hooks.modules:
                self._breakpoints.add((request["layer"], request["moment"]))
            wanted = {moment for _, moment in self._breakpoints}
            self._remove([hook for moment, hook in self._standing.items() if moment not in wanted])
            for moment in wanted - self._standing.keys():
                at = HookTrigger(moment) & HookTrigger.condition(self._is_one)
                hook = Hook("breakpoint", at, [HookAction.callback(self._at_breakpoint)], ["*"])
                self._standing[moment] = hook
                self._hooks.add(hook)

    def _is_one(self, context: Context) -> bool:
        return (context.layer, context.moment) in self._breakpoints

    def _at_breakpoint(self, context: Context) -> None:
        self.stop(context, "breakpoint")

    def _state(self, known: int) -> dict[str, Any]:
        """Return the state, with the layers if the page knows another number of them."""
        modules, file, at = self._capture.hooks.modules, self._file(), self._at
        state = "paused" if at is not None else "terminal" if self._elsewhere else "running"
        told: dict[str, Any] = {
            "state": state,
            "waits": _WAITS.get(self._waits, ""),
            "step": self._capture.steps,
            "at": at,
            "where": self._elsewhere,
            "said": self._said,
            "breakpoints": sorted(self._breakpoints),
            "file": file.name if file is not None else "",
        }
        if len(modules) != known:
            told["layers"] = [[path, type(module).__name__] for path, module in list(modules.items())]
        return told

    # -- hooks ----------------------------------------------------------------------------------------------------

    def _set_once(self, waits: str, *triggers: HookTrigger) -> None:
        """Stop at the first of some moments."""
        with self._changing:
            self._remove(self._once)
            self._waits, self._said = waits, ""
            for trigger in triggers:
                hook = Hook(waits, trigger, [HookAction.callback(self.stop)])
                self._once.append(hook)
                self._hooks.add(hook)

    def _remove(self, hooks: list[Hook]) -> None:
        gone = list(hooks)
        for hook in gone:
            hook.remove()
        self._hooks.drop(gone)
        self._once = [hook for hook in self._once if hook not in gone]
        self._standing = {moment: hook for moment, hook in self._standing.items() if hook not in gone}


def _first_of(moment: Moment, step: int) -> HookTrigger:
    return HookTrigger(moment, first=step, executions=1)


def _tensors(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """Yield name, shape, dtype and statistics of the first tensor of a value, as plain text."""
    count = len(whole_tensors.all_tensors(value))
    tensor = whole_tensors.first_tensor(value)
    if tensor is None:
        return
    shape, dtype = whole_tensors.shape_of(tensor)
    numbers = whole_tensors.statistics(tensor)
    counts = [f"{int(numbers[one]):,}" for one in ("total", "nonfinite", "zeros")] if numbers else []
    yield {
        "name": name if count < 2 else f"{name} (the first of {count} tensors)",
        "shape": shape,
        "dtype": dtype,
        "cells": [*counts, *(_number(numbers[one]) for one in _NUMBERS)] if numbers else [],
    }


def _number(value: float | None) -> str:
    """Write a number for the page: JSON has no NaN."""
    return "" if value is None else f"{value:.4g}"
