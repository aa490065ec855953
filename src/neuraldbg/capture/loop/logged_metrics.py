"""Metrics of the program's own: numbers with names enter, scalars ``metric/NAME`` of steps leave.

A value belongs to the step that is open, that is from the first call of a model with gradients to the end of the
optimizer's step; between two steps it belongs to the one that has just ended, and before the first step to that one.
So a validation after ``optimizer.step()`` belongs to the weights that it has judged, also after the last step. Of
several values in one step the mean counts, as of the losses of micro-batches.

A step is delivered soon after it ends. Values that come before are in its ``Step``; those that come later are added to
what is recorded of it. A value on a device is copied without a wait, and is added when the copy has arrived.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
    from contextlib import AbstractContextManager

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.nouns import Layout, Step

NAMES = 64
"""Names of metrics that are kept. The record has room for 1,024 scalars, and a metric takes up to four."""
LONGEST = 128
"""Characters of a name that are kept."""
_ON_DEVICES = 64
"""Copies from devices that are awaited at most: of a device that lags behind further no value is read."""
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


class _Awaited(NamedTuple):
    """Values of one step that are on their way from a device."""

    step: int
    means: dict[str, _Mean]
    names: list[str]
    sent: Sent


class Metrics:
    """Collects what the program logs, and adds it to the steps. ``emit`` receives each step with its metrics.

    ``amend`` is called with a step's number and scalars that came after it was delivered.
    """

    def __init__(
        self,
        tally: Tally,
        emit: Callable[[Step, Layout], None],
        amend: Callable[[int, Mapping[str, float]], None] | None,
    ) -> None:
        self.tally, self._emit, self._amend = tally, emit, amend or (lambda index, scalars: None)
        self._scene: Scene
        self._lock: AbstractContextManager[Any]
        self._pending: Callable[[], bool]
        self._steps: dict[int, dict[str, _Mean]] = {}
        """Metrics of the steps that are not delivered, and of the newest one that is."""
        self._delivered = -1
        self._awaited: list[_Awaited] = []
        self._names: set[str] = set()
        self._beyond: set[str] = set()
        """Names beyond ``NAMES``, as many again at most."""
        self._unread = self._without_step = 0
        """Values on a device that could not be read (``_unread``), and values without a step (``_without_step``)."""

    def complete(self, scene: Scene, lock: AbstractContextManager[Any], pending: Callable[[], bool]) -> None:
        """Add the parts that are made later. ``lock`` is held while steps are delivered; ``pending`` returns True while
        a step has ended and is not counted yet.
        """
        self._scene, self._lock, self._pending = scene, lock, pending

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
        with self._lock:  # no step is delivered meanwhile
            step = self._step()
            means = self._steps.setdefault(step, {})
            there: dict[str, Tensor] = {}
            for name, value in values.items():
                if not self._keeps(name := str.__str__(name)[:LONGEST]):
                    continue
                if (held := _on_device(value)) is not None:
                    there[name] = held
                elif (known := _known(value)) is not None:
                    means.setdefault(name, _Mean()).add(known)
            self._await(step, means, there)
            self._tell(step, means)
        return step

    def _step(self) -> int:
        """Return the number of the step that a value belongs to now."""
        scene = self._scene
        over = scene.step
        within = scene.models.owner.open or scene.light.midway
        return over if within or self._pending() else max(over - 1, 0)

    def _keeps(self, name: str) -> bool:
        if name in self._names:
            return True
        if len(self._names) < NAMES:
            self._names.add(name)
            return True
        if len(self._beyond) < NAMES:
            self._beyond.add(name)
        return False

    def _await(self, step: int, means: dict[str, _Mean], there: dict[str, Tensor]) -> None:
        """Start the copies of values on devices."""
        by_device: dict[torch.device, list[str]] = {}
        for name, held in there.items():
            by_device.setdefault(held.device, []).append(name)
        for names in by_device.values():
            tensors = [there[name] for name in names]
            if len(self._awaited) >= _ON_DEVICES or (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing()):
                self._unread += len(names)
            else:
                self._awaited.append(
                    _Awaited(step, means, names, Sent([x.to(torch.float64, copy=True) for x in tensors]))
                )

    def _tell(self, step: int, means: Mapping[str, _Mean]) -> None:
        """Add the metrics of a step to what is recorded of it, if it was delivered."""
        if step <= self._delivered and means:
            self._amend(step, _scalars(means))

    @silently
    def arrive(self, *, wait: bool = False) -> None:
        """Add the values that have arrived from devices; ``wait`` waits for all of them. Called by the program's own
        threads: while one captures a CUDA graph, no other may query a device.
        """
        if not self._awaited:
            return
        with self._lock:
            while self._awaited and (wait or self._awaited[0].sent.arrived()):
                step, means, names, sent = self._awaited.pop(0)
                for name, value in zip(names, sent.read(), strict=True):
                    means.setdefault(name, _Mean()).add(float(value.reshape(())))
                self._tell(step, means)

    # -- steps out ----------------------------------------------------------------------------------------------

    def deliver(self, step: Step, layout: Layout) -> None:
        """Deliver a step with its metrics. The caller holds the lock."""
        self._steps.pop(self._delivered, None)
        self._delivered = step.index
        if means := self._steps.get(step.index):
            step = replace(step, scalars={**step.scalars, **_scalars(means)})
        self._emit(step, layout)

    @guarded
    def finish(self) -> None:
        """Add the values of a step that never ended to the last one that did."""
        self.arrive(wait=True)
        with self._lock:
            last = self._steps.setdefault(self._delivered, {})
            for step in [step for step in self._steps if step > self._delivered]:
                for name, mean in self._steps.pop(step).items():
                    self._without_step += mean.count if self._delivered < 0 else 0
                    last.setdefault(name, mean)
            if self._delivered >= 0:
                self._tell(self._delivered, last)

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


def _scalars(means: Mapping[str, _Mean]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, mean in means.items():
        if mean.count:
            found |= metric_scalars(name, mean.total / mean.count, mean.nonfinite)
    return found
