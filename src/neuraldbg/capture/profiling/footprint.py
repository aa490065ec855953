"""The memory of a step and of each layer by what it holds, and its peak: the FOOTPRINT fact.

By default bytes are read from parameters, gradients and optimizer state once, in a full step, and on a CUDA device the
allocator's own peak. If the profile was asked for, torch's legacy profiler tells every allocation of one step
(``recorded_step.py``). A dispatch mode, as ``torch.distributed._tools.mem_tracker`` uses one, would change the
training: torch then runs compiled graphs eagerly and computes some gradients out of place, with other last bits and
other peaks.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.loop.optimizers import wait_between_steps
from neuraldbg.capture.profiling import tensor_sizes
from neuraldbg.capture.profiling.part import Part
from neuraldbg.capture.profiling.recorded_step import COST, RecordedStep
from neuraldbg.capture.profiling.step_bounds import LeadOptimizer, most_events, recorded_s
from neuraldbg.capture.profiling.step_clock import own_cost
from neuraldbg.capture.readers.loop.memory_in_use import devices_in_use
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.clocks import perf_counter
from neuraldbg.nouns import Fact, FactKey

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.profiling.memory_records import Peaks
    from neuraldbg.capture.profiling.part import Profiling
    from neuraldbg.capture.profiling.step_events import StepEvents
    from neuraldbg.capture.profiling.tensor_sizes import Sizes

_FIRST = 9
"""Steps of the first optimizer before the recorded ones: the first are timed, without a profiler beside, and facts are
read at the eighth, which takes memory of ours."""
_TRIES = 8
"""Steps that are recorded at most until one was recorded to its end: the program's own profiler ends a record."""
_RECORDED = 2
"""Steps of a record."""
_RECENT = 8
"""Steps that tell how long one takes."""
_SIZES_S = 2e-5
"""Seconds that reading the sizes of a parameter takes at most."""


class Footprint(Part):
    """Reads sizes once, and records one step if the profile was asked for."""

    def __init__(self, profiling: Profiling) -> None:
        super().__init__(profiling)
        self._fact: Fact | None = None
        self._over = self._done = False
        """True after the end of the session, and once a step was recorded: a hook cannot be removed while it runs."""
        self._reader = _Steps(self)
        self._record = RecordedStep(self.scene)
        self._ends: RemovableHandle | None = None
        self._lead = LeadOptimizer()
        self._took: deque[float] = deque(maxlen=_RECENT)
        """Seconds of the newest steps."""
        self._last: float | None = None
        self._trace = profiling.trace
        self._number = self._tries = 0
        self._excused = 0.0
        """Seconds that recording has taken, as far as they were excused from the budget."""

    def start(self) -> None:
        """Begin to wait for the steps that are read."""
        self.scene.join(self._reader)
        if self.asked:
            wait_between_steps()
            self._record.start()
            with numbers_apart():
                self._ends = register_optimizer_step_post_hook(self._ended)

    def stop(self) -> None:
        """End the record, and remove all hooks."""
        self._over = True
        if self.asked:
            wait_between_steps()
        self._record.stop()
        self._record.disarm()
        if self._ends is not None:
            self._ends.remove()
            self._ends = None

    def facts(self) -> tuple[Fact, ...]:
        """Return the fact, once sizes are known."""
        return (self._fact,) if self._fact is not None else ()

    def step_closed(self) -> None:
        """Read the sizes in a full step: once the optimizers have made their state."""
        scene = self.scene
        if self._fact is not None or self._over or scene.step < 1 or not scene.params.by_id:
            return
        if self.asked or self.affords(_SIZES_S * len(scene.params.by_id)):
            self._tell(tensor_sizes.sizes(scene, expected=True), None, {}, [])

    # -- the recorded step --------------------------------------------------------------------------------------

    def _ended(self, optimizer: Any, *_: Any) -> None:
        """Handle the end of a step of any optimizer: a global post hook, while a record is still to be made."""
        scene = self.scene
        if self._done or not scene.switch.here() or scene.optimizers.stepping or scene.light.stepping:
            return
        if not self._lead.ends(optimizer):
            return
        began = perf_counter()
        try:
            with unheard(), torch.no_grad():
                self._step_ends()
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self._record.stop()
            self._done = True
            scene.tally.caught("recording memory")
        finally:
            own_cost(scene.tally, began, COST)
            taken = scene.tally.parts.get(COST, 0.0)
            try:
                self.excuse(taken - self._excused)
                self._excused = taken
            except Exception:  # noqa: BLE001 (as above)
                scene.tally.caught("recording memory")

    def _step_ends(self) -> None:
        self._number += 1
        now = perf_counter()
        took, self._last = now - (self._last or now), now
        record = self._record
        if record.measures:
            self._finish(record)
        elif record.on:
            record.measure()
        elif self._number >= _FIRST and not self._traced():
            self._tries += record.begin(most_events((), self._tries), recorded_s(self._took))
            if self._tries > _TRIES:
                self._done = True
        else:
            self._took.append(took)

    def _traced(self) -> bool:
        """Return True if a record of the next two steps would meet the window of ``torch.profiler``."""
        return self._trace is not None and self._trace[0] - _RECORDED <= self._number <= self._trace[1]

    def _finish(self, record: RecordedStep) -> None:
        found = record.end()
        if found is not None and found.moves:
            self._done = True
            self._tell(record.sizes or tensor_sizes.sizes(self.scene), found, record.outputs, record.paths)

    # -- the fact -----------------------------------------------------------------------------------------------

    def _tell(self, sizes: Sizes, found: Peaks | None, outputs: dict[int, int], paths: list[str]) -> None:
        record, devices = self._record, devices_in_use()
        parts = {
            "parameters": sum(sizes.parameters.values()), "gradients": sum(sizes.gradients.values()),
            "optimizer": sum(sizes.optimizer.values()),
        }  # fmt: skip
        value: dict[str, Any] = {
            "step": self.scene.step, "method": _method(devices, recorded=found is not None), **parts,
            "device_total": _device_total(devices),
        }  # fmt: skip
        if found is None and len(devices) == 1:
            value |= {"peak": torch.cuda.max_memory_allocated(devices[0]), "whole_run": True}
        numbers = {path: number for number, path in enumerate(paths)}
        layers = list(dict.fromkeys([*paths, *sizes.parameters]))
        if found is not None:
            value |= {"peak": record.base + found.whole, "peak_at": _words(found.at, record.events, paths)}
            value |= {"activations": record.activations or 0, "beside": record.beside}
        value["layers"] = [self._layer(path, numbers.get(path, -1), sizes, found, outputs) for path in layers]
        self._fact = Fact(self.scene.step, FactKey.FOOTPRINT.value, value)

    def _layer(
        self, path: str, number: int, sizes: Sizes, found: Peaks | None, outputs: dict[int, int]
    ) -> dict[str, Any]:
        told: dict[str, Any] = {
            "layer": path, "parameters": sizes.parameters.get(path, 0), "gradients": sizes.gradients.get(path, 0),
            "optimizer": sizes.optimizer.get(path, 0), "peak": None, "backward_peak": None,
            "activations": outputs.get(number, 0) if found is not None else None,
        }  # fmt: skip
        base = self._record.base
        if found is not None:
            for name, peaks in (("peak", found.forward), ("backward_peak", found.backward)):
                told[name] = base + peaks[number] if number in peaks else None
        return told


class _Steps(Reader):
    """Tells the part of the end of each full step."""

    def __init__(self, part: Footprint) -> None:
        super().__init__(part.scene)
        self._part = part

    @property
    def doing(self) -> str:
        """The work that an error ends."""
        return "reading the sizes of tensors"

    def step_closes(self) -> None:
        """Tell the part."""
        self._part.step_closed()


def _words(at: tuple[str, int], events: StepEvents, paths: list[str]) -> str:
    phase, call = at
    if call < 0:
        return phase
    path = paths[events.calls[call].layer]
    return f"{phase} of {path!r}" if path else f"{phase} of the model"


def _method(devices: list[int], *, recorded: bool) -> str:
    if len(devices) > 1:
        return f"CUDA allocators of {len(devices)} devices together"
    return "CUDA allocator" if devices else "CPU allocator" if recorded else "sizes"


def _device_total(devices: list[int]) -> int | None:
    """Return the memory of the one device in use, or of the machine; None for several devices: one of them may be full
    while the others are not, and records do not tell them apart.
    """
    if devices:
        return int(torch.cuda.get_device_properties(devices[0]).total_memory) if len(devices) == 1 else None
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


PART = Footprint
