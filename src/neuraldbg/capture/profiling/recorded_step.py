"""The recorded step of the profile of memory: what is set while it runs, and what is read at its moments.

torch's legacy profiler tells every allocation of it (``memory_records.py``). The step before is recorded as well and
not used: what it allocates is released in the measured one, and the profiler tells only of releases of what it has seen
allocated.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from neuraldbg.capture.compiled.recompile import is_compiled
from neuraldbg.capture.guest.guard import Tally, collecting_later
from neuraldbg.capture.guest.module_tree import modules
from neuraldbg.capture.guest.other_threads import others_wait
from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.guest.weak_references import named
from neuraldbg.capture.layers.layer_calls import LayerCalls
from neuraldbg.capture.loop.torch_patches import Patches
from neuraldbg.capture.profiling import memory_records, tensor_sizes
from neuraldbg.capture.profiling.operation_counts import Observer
from neuraldbg.capture.profiling.step_bounds import DATA_LOADER, MOST_EVENTS
from neuraldbg.capture.profiling.step_clock import own_cost
from neuraldbg.capture.profiling.step_events import StepEvents
from neuraldbg.capture.readers.loop.memory_in_use import device_bytes
from neuraldbg.clocks import perf_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.guest.weak_references import TensorRef
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.profiling.memory_records import Peaks
    from neuraldbg.capture.profiling.tensor_sizes import Sizes

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public way tells a recomputation from a forward pass)
_next_node = torch._C._autograd._get_sequence_nr  # noqa: SLF001 (no public name)
COST = "memory records"
"""The part of our costs that recording memory is counted in: the profile of times excuses its own from the budget."""


class RecordedStep:
    """Two steps that are recorded: what is set while they run, and what is read at their moments."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.tally = scene, scene.tally
        self.on = self.measures = False
        """True while steps are recorded, and in the one that is measured."""
        self.base = 0
        """Bytes at the begin of the measured step: of parameters, gradients, optimizer state, and of what the step
        before has left; on a device of all tensors."""
        self.activations: int | None = None
        """Bytes at the begin of its first backward pass beside parameters, gradients and optimizer state."""
        self._old = self._gradients_then = 0
        """Bytes of gradients older than the record at the begin of the step, and of all at its first backward pass."""
        self._gradients: list[tuple[TensorRef, TensorRef, int]] = []
        """Parameters, their gradients when the record began, and bytes of those, whose release is not told."""
        self.sizes: Sizes | None = None
        """Sizes before the optimizer's step."""
        self.events = StepEvents()
        self.outputs: dict[int, int] = {}
        """Bytes of each layer's outputs, by its number."""
        self.paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._open: list[tuple[int, set[int]]] = []
        """The open calls: layer, and addresses of its inputs and of outputs inside of it."""
        self._observer = Observer()
        self._patches = Patches()
        self._handle: RemovableHandle | None = None
        self._calls: LayerCalls | None = None
        self._around: LayerCalls | None = None
        self._hushed: Any = None
        self._thread = 0
        self._differentiated = False
        self.beside: int | None = None
        """Bytes on the device that were there before both steps beside the model, its gradients and the optimizer's
        state; None on the CPU."""
        self._events_left, self._longest_s, self._began = 0, math.inf, 0.0
        """Calls of layers that the record may still have, seconds that it may take, and the clock at its begin."""

    def start(self) -> None:
        """Set the hook that stays: torch raises in the program if hooks of all optimizers change while one steps, in
        whatever thread.
        """
        with numbers_apart():
            self._handle = register_optimizer_step_pre_hook(self._before_step)

    def begin(self, most: int = MOST_EVENTS, longest_s: float = math.inf) -> bool:
        """Begin to record, unless a profiler runs already. Return True if it began. A record with more than ``most``
        calls of layers ends, and one that takes more than ``longest_s`` seconds: its steps are no ordinary ones.
        """
        self.stop()  # what a record that was ended early has left
        if not _quietly_started(self._observer):
            return False
        self.on, self._thread = True, get_ident()
        self._events_left, self._longest_s, self._began = most, longest_s, perf_counter()
        self._gradients = tensor_sizes.gradients(self.scene)
        vars(self.tally)["tell"] = self._tells
        self.tally.__class__ = _Telling
        self._hushed, self.scene.switch.hushed = self.scene.switch.hushed, self._paused
        put = self._patches.surround
        put(torch.autograd.profiler, "_enable_profiler", self._other_profiler)
        put(torch.autograd, "backward", self._differentiates)
        put(torch.autograd, "grad", self._differentiates)
        loader = sys.modules.get(DATA_LOADER)
        if loader is not None:
            put(loader._BaseDataLoaderIter, "__next__", self._waits)  # noqa: SLF001 (no public name)
        self._follow_calls()
        return True

    def _follow_calls(self) -> None:
        hooks = self.scene.hooks
        self._calls = LayerCalls(hooks.direct, self._arrives, self._leaves)
        self._around = hooks.around
        hooks.around = _Both(self._around, self._calls) if self._around is not None else self._calls
        with collecting_later():
            self._calls.turn_on(self._layers)

    def measure(self) -> None:
        """Begin the measured step."""
        self.events, self.outputs, self.sizes, self._differentiated = StepEvents(), {}, None, False
        self._open.clear()
        there = tensor_sizes.sizes(self.scene)
        self._old = sum(
            size for p, grad, size in self._gradients if (now := named(p).grad) is not None and now is grad()
        )
        self._gradients.clear()
        lasting = sum(there.parameters.values()) + sum(there.optimizer.values()) + self._old
        held = device_bytes()  # 0 if CUDA is in use, and not for tensors
        self.base, self.beside = (held, held - lasting) if held else (lasting, None)
        self.measures = True
        self._observer.marks(memory_records.BEGINS)

    def end(self) -> Peaks | None:
        """End the measured step, and return its peaks; None if the record was ended before."""
        complete = self.on
        records = self._observer.stop()
        self.stop()
        if not complete or not records:
            return None
        device = self.beside is not None
        found = memory_records.peaks(records, self.events, device=device)
        if self.beside is not None:  # what the step before has left will go
            self.beside = max(0, self.beside - found.left)
        if not device:  # gradients that were made in the step before are in the record of it
            self.base += max(0, found.left)
        if found.before_backward is not None:
            made = found.left + found.before_backward
            self.activations = max(0, made + self._old - self._gradients_then)
        return found

    def stop(self) -> None:
        """Take away all that was set."""
        self.measures = False
        self._forget()
        hooks = self.scene.hooks
        if self._calls is not None:
            self._calls.turn_off()
            if hooks.around is self._calls or isinstance(hooks.around, _Both):
                hooks.around = self._around
            self._calls = self._around = None
        self._patches.restore()

    def disarm(self) -> None:
        """Remove the hook that stays between records."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _forget(self) -> None:
        """End the record: a profiler of the program starts, or code of ours runs the model."""
        self.on = False
        if type(self.tally) is _Telling:
            object.__setattr__(self.tally, "__class__", Tally)
        if self._hushed is not None:
            self.scene.switch.hushed, self._hushed = self._hushed, None
        with contextlib.suppress(RuntimeError):
            self._observer.stop()

    def _paused(self) -> None:
        hushed = self._hushed
        self._forget()
        if hushed is not None:
            hushed()

    def _other_profiler(self, *_: Any, **__: Any) -> Around:
        """Wrap the start of a profiler of the program, which refuses to start beside the record."""
        self._forget()
        yield

    # -- moments ------------------------------------------------------------------------------------------------

    def _here(self) -> bool:
        return self.on and get_ident() == self._thread and self.scene.switch.on and _graph_task() == -1

    def _goes_on(self) -> bool:
        """Return True if the steps may still be ordinary ones; else end the record."""
        self._events_left -= 1
        if self._events_left < 0 or perf_counter() - self._began > self._longest_s:
            self._forget()
        return self.on

    def _layers(self) -> Iterable[nn.Module]:
        """Return the modules whose calls are marked: not those inside of compiled ones."""
        seen: dict[int, tuple[str, nn.Module]] = {}
        for path, module in self.scene.hooks.modules.items():
            seen.setdefault(id(module), (path, module))
        if self.scene.hooks.compiles():
            inside = {
                id(part) for _, one in seen.values() if is_compiled(one) for part in modules(one) if part is not one
            }
            seen = {key: each for key, each in seen.items() if key not in inside}
        for key, (path, _) in seen.items():
            if key not in self._numbers:
                self._numbers[key] = len(self.paths)
                self.paths.append(path)
        return [module for _, module in seen.values()]

    def _guarded(self, act: Any, *args: Any) -> None:
        """Call ``act`` at a moment of the measured step; an error ends the record."""
        began = perf_counter()
        try:
            if not self._here() or not self._goes_on() or not self.measures:
                return
            with unheard(), torch.no_grad():
                act(*args)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self._failed()
        finally:
            own_cost(self.tally, began, COST)

    def _tells(self, name: str) -> None:
        """Mark the begin or the end of our own work; an error ends the record."""
        try:
            self._observer.marks(name)
        except Exception:  # noqa: BLE001 (the guards themselves call this)
            self._failed()

    def _failed(self) -> None:
        """Count the exception being handled, and end the record."""
        try:
            self._forget()
        except Exception:  # noqa: BLE001
            self.on = False
        self.tally.caught("recording memory")

    def _arrives(self, module: nn.Module, args: Any) -> None:
        self._guarded(self._enter, module, args)

    def _leaves(self, module: nn.Module, args: Any, output: Any) -> None:
        self._guarded(self._leave, module, output)

    def _enter(self, module: nn.Module, args: Any) -> None:
        layer = self._numbers.get(id(module))
        if layer is None:
            return
        call = self.events.enter(layer, _next_node(), 0.0, graded=torch.is_grad_enabled())
        self._open.append((layer, tensor_sizes.output_bytes(args, ())[1]))
        self._observer.enters(call)

    def _leave(self, module: nn.Module, output: Any) -> None:
        layer = self._numbers.get(id(module))
        if layer is None:
            return
        call = self.events.leave(layer, _next_node(), 0.0)
        if call < 0:
            return
        self._observer.leaves(call)
        known: set[int] = set()
        while self._open:  # calls inside of it that raised end with it
            open_, known = self._open.pop()
            if open_ == layer:
                break
        size, fresh = tensor_sizes.output_bytes(output, known)
        self.outputs[layer] = self.outputs.get(layer, 0) + size
        if self._open:
            self._open[-1][1].update(fresh)

    def _differentiates(self, *_: Any, **__: Any) -> Around:
        """Wrap a backward pass."""
        self._guarded(self._backward)
        yield
        self._guarded(self._observer.marks, memory_records.AFTER_BACKWARD)

    def _waits(self, *_: Any) -> Around:
        """Wrap the ``next`` of a data loader's iterator: the program may evaluate a model that is not watched."""
        self._guarded(bool)
        yield

    def _backward(self) -> None:
        if not self._differentiated:
            self._differentiated = True
            self._gradients_then = tensor_sizes.gradient_bytes(self.scene)
        self._observer.marks(memory_records.BACKWARD)

    def _before_step(self, *_: Any) -> None:
        self._guarded(self._optimizer)

    def _optimizer(self) -> None:
        if self.sizes is None:
            self.sizes = tensor_sizes.sizes(self.scene)
        self._observer.marks(memory_records.OPTIMIZER)


class _Telling(Tally):
    """A tally that marks the begin and the end of our own work, whose allocations are not the program's."""

    tell: Callable[[str], None]

    @property
    def inside(self) -> bool:
        """True while our code runs."""
        return bool(vars(self)["inside"])

    @inside.setter
    def inside(self, value: bool) -> None:
        before, vars(self)["inside"] = vars(self)["inside"], value
        if before != value:
            self.tell(memory_records.OURS if value else memory_records.OURS_ENDS)


class _Both(LayerCalls):
    """Two pairs of functions around the calls of layers."""

    def __init__(self, first: LayerCalls, second: LayerCalls) -> None:
        self._first, self._second = first, second

    def put(self) -> None:
        """Set both."""
        self._first.put()
        self._second.put()

    def lift(self) -> None:
        """Take both away."""
        self._second.lift()
        self._first.lift()


@functools.cache
def _warned() -> list[bool]:
    return [False]


def _quietly_started(observer: Observer) -> bool:
    """Start an observer of memory. torch writes a line to standard error at the first release that it has not seen
    allocated, once in a process; it would be read as the program's. Such a release is made here, while standard error
    is closed and no other thread of the program is at work.
    """
    if _warned()[0] or not others_wait():
        return observer.start(memory=True)
    unseen = [torch.empty(16, dtype=torch.uint8, device="cpu")]
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return observer.start(memory=True)
    try:
        os.dup2(nowhere, 2)
        started = observer.start(memory=True)
        unseen.clear()
        _warned()[0] = started
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
    return started
