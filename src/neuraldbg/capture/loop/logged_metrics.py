"""Metrics of the program's own: numbers with names enter, scalars ``metric/NAME`` of steps leave.

A value belongs to the step that is open, that is from the first call of a model with gradients to the end of the
optimizer's step; between two steps it belongs to the one that has just ended, and before the first step to that one.
So a validation after ``optimizer.step()`` belongs to the weights that it has judged, also after the last step. Of
several values in one step the mean counts, as of the losses of micro-batches.

A step is delivered soon after it ends. Values that come before are in its ``Step``; those that come later are added to
what is recorded of it. A value on a device is copied without a wait, and is added when the copy has arrived.

Whoever logs waits for no function of the program's: steps are delivered under a lock, which is held while ``on_step``
runs, and the program may log while it holds a lock that its ``on_step`` takes. Values are put down under a lock of
their own; if steps are being delivered meanwhile, what belongs to a delivered one is passed on afterwards.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.async_copy import Sent
from neuraldbg.errors import ConfigError
from neuraldbg.nouns.step import metric_scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import RLock

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.nouns import Layout, Step

NAMES = 64
"""Names of metrics that are kept. The record has room for 1,024 scalars, and a metric takes up to four."""
LONGEST = 128
"""Characters of a name that are kept."""
_ON_DEVICES = 64
"""Copies from devices that are awaited at most: of a device that lags behind further no value is read."""
_TRIES = 8
"""Times that the number of the step is looked up at most, if another thread ends steps meanwhile."""
_LEFT_OUT = 4
"""Names that a note lists at most."""


@dataclass
class _Mean:
    """The values of one metric in one step."""

    total: float = 0.0
    count: int = 0
    nonfinite: int = 0

    def add(self, value: float) -> None:
        """Add one value."""
        self.total += value
        self.count += 1
        self.nonfinite += not math.isfinite(value)

    def join(self, other: _Mean) -> None:
        """Add the values of another mean."""
        self.total += other.total
        self.count += other.count
        self.nonfinite += other.nonfinite


@dataclass
class _Logged:
    """The metrics of one step."""

    means: dict[str, _Mean] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    """The scalars that were passed on so far."""

    def mean(self, name: str) -> _Mean:
        """Return the mean of a metric, a new one if it has none."""
        return self.means.setdefault(name, _Mean())

    def scalars(self) -> dict[str, float]:
        """Return the metrics as scalars of the step."""
        found: dict[str, float] = {}
        for name, mean in self.means.items():
            if mean.count:
                found |= metric_scalars(name, mean.total / mean.count, mean.nonfinite)
        return found


class _Awaited(NamedTuple):
    """Values of one step that are on their way from a device."""

    step: int
    logged: _Logged
    names: list[str]
    sent: Sent


class Metrics:
    """Collects what the program logs, and adds it to the steps. ``emit`` receives each step with its metrics.

    ``amend`` is called with a step's number, scalars that came after it was delivered, and those that it had before.
    """

    def __init__(
        self,
        tally: Tally,
        emit: Callable[[Step, Layout], None],
        amend: Callable[[int, Mapping[str, float], Mapping[str, float]], None] | None,
    ) -> None:
        self.tally, self._emit, self._amend = tally, emit, amend or (lambda index, scalars, before: None)
        self._scene: Scene
        self._delivering: RLock
        self._pending: Callable[[int], bool]
        self._own = threading.RLock()  # a signal handler may log while its thread holds it
        """Held while the fields below are read or changed, and never while a function of the program's is called. Who
        holds it takes ``_delivering`` in no case: the order is the other way round."""
        self._steps: dict[int, _Logged] = {}
        """Metrics of the steps that are not delivered, and of the newest one that is."""
        self._late: dict[int, _Logged] = {}
        """Metrics of delivered steps that are to be passed on."""
        self._delivered = -1
        self._awaited: list[_Awaited] = []
        self._names: set[str] = set()
        self._beyond: set[str] = set()
        """Names beyond ``NAMES``, as many again at most."""
        self._unread = self._without_step = 0
        """Values on a device that could not be read (``_unread``), and values without a step (``_without_step``)."""

    def complete(self, scene: Scene, lock: RLock, pending: Callable[[int], bool]) -> None:
        """Add the parts that are made later. ``lock`` is held while steps are delivered; ``pending`` returns True while
        a step, given by its number, has ended and is not counted yet.
        """
        self._scene, self._delivering, self._pending = scene, lock, pending

    @property
    def listens(self) -> bool:
        """True while the session runs in this process, and the program runs, not an experiment of ours."""
        return self._scene.switch.on

    # -- values in ----------------------------------------------------------------------------------------------

    @guarded
    def log(self, values: Mapping[str, object]) -> int | None:
        """Record values by the names of their metrics; what is no number is passed over. Return the number of the step
        that they belong to, None if no session listens.
        """
        if not self.listens:
            return None
        self.arrive()
        with self._own:
            kept = [(n, value) for name, value in values.items() if self._keeps(n := str.__str__(name)[:LONGEST])]
        there = {name: held for name, value in kept if (held := _on_device(value)) is not None}
        known = [(name, found) for name, value in kept if name not in there and (found := _known(value)) is not None]
        sent = self._send(there)
        with self._own:  # no step is delivered meanwhile
            step = max(self._step(), self._delivered)
            logged = self._steps.setdefault(step, _Logged())
            for name, found in known:
                logged.mean(name).add(found)
            self._awaited += [_Awaited(step, logged, names, copy) for names, copy in sent]
            self._changed(step, logged)
        self.tell()
        return step

    def _step(self) -> int:
        """Return the number of the step that a value belongs to now."""
        scene, over, within = self._scene, 0, False
        with scene.light.counting:
            for _ in range(_TRIES):
                over = scene.step
                within = scene.models.owner.open or scene.light.midway or self._pending(over)
                if scene.step == over:
                    break
        return over if within else max(over - 1, 0)

    def _keeps(self, name: str) -> bool:
        if name in self._names:
            return True
        if len(self._names) < NAMES:
            self._names.add(name)
            return True
        if len(self._beyond) < NAMES:
            self._beyond.add(name)
        return False

    def _send(self, there: Mapping[str, Tensor]) -> list[tuple[list[str], Sent]]:
        """Start the copies of values on devices. Return them with the names of their values."""
        found: list[tuple[list[str], Sent]] = []
        by_device: dict[torch.device, list[str]] = {}
        for name, held in there.items():
            by_device.setdefault(held.device, []).append(name)
        for names in by_device.values():
            tensors = [there[name] for name in names]
            many = len(self._awaited) + len(found) >= _ON_DEVICES
            if many or (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing()):
                self._unread += len(names)
            else:
                found.append((names, Sent([x.to(torch.float64, copy=True) for x in tensors])))
        return found

    def _changed(self, step: int, logged: _Logged) -> None:
        """Note that metrics of a step have changed, if it was delivered. Call with ``_own``."""
        if step <= self._delivered:
            self._late[step] = logged

    @silently
    def arrive(self, *, wait: bool = False) -> None:
        """Add the values that have arrived from devices; ``wait`` waits for all of them. Called by the program's own
        threads: while one captures a CUDA graph, no other may query a device.
        """
        if not self._awaited:
            return
        ready = [one.sent for one in tuple(self._awaited)] if wait else []
        for sent in ready:  # without the lock, for which those who log would wait
            if not sent.arrived():
                sent.wait()
        with self._own:
            while self._awaited and (self._awaited[0].sent in ready or self._awaited[0].sent.arrived()):
                step, logged, names, sent = self._awaited.pop(0)
                for name, value in zip(names, sent.read(), strict=True):
                    logged.mean(name).add(float(value.reshape(())))
                self._changed(step, logged)

    # -- steps out ----------------------------------------------------------------------------------------------

    def deliver(self, step: Step, layout: Layout) -> None:
        """Deliver a step with its metrics. The caller holds the lock of the delivery."""
        self._pass_on()
        with self._own:
            if step.index > self._delivered:
                self._steps.pop(self._delivered, None)
                self._delivered = step.index
            scalars: dict[str, float] = {}
            if (logged := self._steps.get(step.index)) is not None:
                scalars = logged.told = logged.scalars()
            if step.index < self._delivered:  # a receiver of steps had a later one delivered in between
                self._steps.pop(step.index, None)
        if scalars:
            step = replace(step, scalars={**step.scalars, **scalars})
        self._emit(step, layout)

    def tell(self, *, wait: bool = False) -> None:
        """Add the metrics that have come since to what is recorded of delivered steps. While another thread delivers
        steps that is left to a later call, unless ``wait``.
        """
        if self._late and self._delivering.acquire(blocking=wait):
            try:
                self._pass_on()
            finally:
                self._delivering.release()

    def _pass_on(self) -> None:
        """Pass the late metrics on. Call with the lock of the delivery: none may overtake its step or a newer mean."""
        if not self._late:
            return
        changed: list[tuple[int, dict[str, float], dict[str, float]]] = []
        with self._own:
            late, self._late = self._late, {}
            for step, logged in late.items():
                before, logged.told = logged.told, logged.scalars()
                changed.append((step, logged.told, before))
        for step, scalars, before in changed:
            if scalars:
                self._amend(step, scalars, before)

    @guarded
    def finish(self) -> None:
        """Add the values of a step that never ended to the last one that did."""
        self.arrive(wait=True)
        with self._own:
            last = self._steps.setdefault(self._delivered, _Logged())
            for step in [step for step in self._steps if step > self._delivered]:
                for name, mean in self._steps.pop(step).means.items():
                    self._without_step += mean.count if self._delivered < 0 else 0
                    last.mean(name).join(mean)
            if self._delivered >= 0:
                self._changed(self._delivered, last)
        self.tell(wait=True)

    def notes(self) -> list[str]:
        """Return sentences about metrics that are not recorded."""
        found = []
        if self._beyond:
            named = sorted(self._beyond)
            more = f" and {len(named) - _LEFT_OUT} more" if len(named) > _LEFT_OUT else ""
            said = ", ".join(map(repr, named[:_LEFT_OUT]))
            found.append(f"more than {NAMES} metrics were logged: {said}{more} are not recorded")
        if self._unread:
            found.append(
                f"{self._unread:,} values of metrics were left out: to read them would have stopped the device"
            )
        if self._without_step:
            found.append(
                f"{self._without_step:,} values of metrics were logged, and no step was seen: none is recorded"
            )
        return found


@silently
def checked(values: Mapping[Any, Any]) -> dict[str, object]:
    """Return metrics that a person logs, other kinds of numbers as floats. Raises ConfigError for what is no number."""
    found: dict[str, object] = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"the name of a metric is a text, such as 'accuracy', not {name!r:.60}")
        if _on_device(value) is None and (known := _known(value)) is not None:
            value = known  # noqa: PLW2901
        elif _on_device(value) is None:
            value = _converted(name, value)  # noqa: PLW2901
        found[name.strip()] = value
    return found


def _converted(name: str, value: Any) -> float:
    """Return a number of a kind that we do not know, such as an array of JAX. Raises ConfigError if it is none."""
    shape = getattr(value, "shape", None)
    try:
        if value is not None and not isinstance(value, (str, bytes, bytearray)) and math.prod(shape or ()) == 1:
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    kind = f"{type(value).__name__} of shape {tuple(shape)}" if shape else f"{value!r:.60}"
    raise ConfigError(f"the metric {name!r} takes a number, or a tensor of one element, not {kind}")


def _known(value: object) -> float | None:
    """Return a number, or the one element of an array or a tensor on the CPU; None for anything else."""
    if type(value) is np.ndarray:
        return float(value.reshape(-1)[0]) if value.size == 1 and value.dtype.kind in "biuf" else None
    return number(value)


def _on_device(value: object) -> Tensor | None:
    """Return the one element of a tensor on a device, None for any other value."""
    if not is_a(value, Tensor):
        return None
    held = tensor_memory.readable(value)
    if held is None or held.numel() != 1 or held.is_complex() or not placement.lies(held):
        return None
    return held.detach()
