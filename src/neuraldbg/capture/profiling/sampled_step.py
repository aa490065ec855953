"""One sampled step: what is set while it runs, and taken away at its end.

- two functions around the calls of all layers, which need no hook on a module (``layers/layer_calls.py``)
- wrappers of ``torch.autograd.backward`` and ``grad``, which set hooks on nodes of the graph until the pass is over
- wrappers of the iterator of torch's data loader, and of its making
- a pre hook of all optimizers
- for the step that is counted: torch's observer of operators
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from neuraldbg.capture.compiled.recompile import is_compiled
from neuraldbg.capture.guest.guard import collecting_later
from neuraldbg.capture.guest.module_tree import modules
from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, kind_name
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.layers.layer_calls import LayerCalls
from neuraldbg.capture.layers.layer_names import wraps
from neuraldbg.capture.loop.torch_patches import Patches
from neuraldbg.capture.profiling.backward_nodes import nodes, set_node_hooks
from neuraldbg.capture.profiling.operation_counts import Observer
from neuraldbg.capture.profiling.step_bounds import DATA_LOADER, MOST_EVENTS
from neuraldbg.capture.profiling.step_clock import own_cost
from neuraldbg.capture.profiling.step_events import BACKWARD, DATA, OPTIMIZER, StepEvents
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.clocks import perf_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.profiling.step_clock import DeviceClock, ProcessorClock

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public way tells a recomputation from a forward pass)
_tracing = torch._C._get_tracing_state  # noqa: SLF001
_next_node = torch._C._autograd._get_sequence_nr  # noqa: SLF001 (no public name)
_CASTING = ("cpu", "cuda")
"""Devices that are asked for their autocast dtype."""
_TENSORS = 4
"""Tensors of an input or output that are described."""
_INPUTS_AT = 5
"""Position of ``inputs`` in ``torch.autograd.backward``: with it, the pass leaves nodes out."""


class SampledStep:
    """Collects the events of sampled steps, one after the other."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tally = scene.tally
        self.events = StepEvents()
        self.clock: ProcessorClock | DeviceClock
        """Given by ``begin``."""
        self.workers: int | None = None
        """``num_workers`` of the data loader that was waited for last, None if none was."""
        self.described: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Inputs and outputs of each layer in this step, by its number."""
        self.made: dict[int, tuple[int, ...]] = {}
        """The shape of each layer's first output in this step."""
        self.autocast: torch.dtype | None = None
        """The dtype of autocast in the forward pass, None if it was off."""
        self.whole = True
        """False if a backward pass was not split by layers: its graph is too large, or it is compiled."""
        self.plain = True
        """False once a layer was seen with a tensor that torch's observer cannot describe: it would write an error for
        each operator to standard error."""
        self.observer: Observer | None = None
        """The observer of operators, None if they are not counted in this step."""
        self.counts = False
        """True if operations are counted in this step, or were to be: its times are none of an ordinary step."""
        self.paths: list[str | None] = []
        """Path of each layer by its number, None for a wrapper of a model."""
        self.on = False
        """True while a step is sampled."""
        self.spoiled = False
        """True if the sample is to be dropped."""
        self.dropped = 0
        """Samples in a row that were dropped because they had more events than they might."""
        self._most, self._longest_s, self._began = MOST_EVENTS, math.inf, 0.0
        """Events that the step may have, seconds for which operators may be recorded, and the clock at its begin."""
        self._numbers: dict[int, int] = {}
        self._known: dict[str | None, int] = {}
        self._thread = 0
        self._differentiating = False
        self._hushed: Callable[[], None] | None = None
        """What is called before a pause of the session, None if it was not replaced."""
        self._patches = Patches()
        self._handles: list[RemovableHandle] = []
        self._calls = LayerCalls(scene.hooks.direct, self._arrives, self._leaves)
        scene.hooks.around = self._calls

    # -- begin and end ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the hook that stays: torch raises in the program if hooks of all optimizers change while one steps, in
        whatever thread.
        """
        with numbers_apart():
            self._handles.append(register_optimizer_step_pre_hook(self._before_step))

    def begin(
        self,
        clock: ProcessorClock | DeviceClock,
        *,
        counts: bool,
        most: int = MOST_EVENTS,
        longest_s: float = math.inf,
    ) -> None:
        """Begin to sample, in this thread. ``counts`` is True to count operations, which takes time in each. A step is
        dropped once it has ``most`` events, or its operators were recorded for ``longest_s`` seconds.
        """
        self.clock, self.events, self.spoiled = clock, StepEvents(), False
        self._most, self._longest_s, self._began = most, longest_s, perf_counter()
        self.described, self.made, self.whole = {}, {}, True
        self._thread, self._differentiating = get_ident(), False
        self.scene.models.tell_broken = self._raised
        with collecting_later():
            self._calls.turn_on(self._layers)
        put = self._patches.surround
        put(torch.autograd, "backward", functools.partial(self._differentiates, "tensors"))
        put(torch.autograd, "grad", functools.partial(self._differentiates, "outputs"))
        loader = sys.modules.get(DATA_LOADER)
        if loader is not None:
            put(loader._BaseDataLoaderIter, "__next__", self._waits)  # noqa: SLF001 (no public name)
            put(loader.DataLoader, "__iter__", self._waits_for_workers)
        self.counts, self.observer = counts, Observer() if counts else None
        if self.observer is not None:
            put(torch.autograd.profiler, "_enable_profiler", self._other_profiler)
            if not self.observer.start():
                self.observer = None
            else:  # experiments of ours run operators, too
                self._hushed, self.scene.switch.hushed = self.scene.switch.hushed, self._paused
        self.on = True

    def end(self) -> list[list[Any]]:
        """Take away all that was set. Return the records of the observer."""
        self.on = False
        records = self.observer.stop() if self.observer is not None else []
        if self._hushed is not None:
            self.scene.switch.hushed, self._hushed = self._hushed, None
        self.scene.models.tell_broken = None
        self._calls.turn_off()
        self._patches.restore()
        return records

    def stop(self) -> None:
        """End for good."""
        self.end()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self.scene.hooks.around is self._calls:
            self.scene.hooks.around = None

    def _layers(self) -> Iterable[nn.Module]:
        """Return the modules whose calls are timed: not those inside of compiled ones, which no one sees."""
        hooks = self.scene.hooks
        seen: dict[int, tuple[str | None, nn.Module]] = {}
        for path, module in hooks.modules.items():
            seen.setdefault(id(module), (path, module))
        fronts = [ref() for ref, _ in self.scene.models.outermost.values()]
        for front in fronts:  # DistributedDataParallel and other wrappers, and models compiled as a whole
            if front is not None and id(front) not in seen:
                whole = next((path for path, each in seen.values() if each is wraps(front)), None)
                seen[id(front)] = (whole if is_compiled(front) else None, front)
        if hooks.compiles():
            inside = {
                id(part) for _, one in seen.values() if is_compiled(one) for part in modules(one) if part is not one
            }
            seen = {key: each for key, each in seen.items() if key not in inside}
        self._numbers = {key: self._number(path) for key, (path, _) in seen.items()}
        return [module for _, module in seen.values()]

    def _number(self, path: str | None) -> int:
        if path not in self._known:
            self._known[path] = len(self.paths)
            self.paths.append(path)
        return self._known[path]

    def _here(self) -> bool:
        """Return True for events of the program's own training, in the thread that is followed."""
        mine = self.on and not self.spoiled and get_ident() == self._thread and self.scene.switch.on
        # A trace takes names from frames of Python.
        return mine and _graph_task() == -1 and _tracing() is None and self._goes_on()

    def _goes_on(self) -> bool:
        """Return True if the step may still be an ordinary one. Else drop the sample: its events, and its records."""
        try:
            large = len(self.events.marks) >= self._most
            if self.observer is not None:
                large |= perf_counter() - self._began > self._longest_s
            if large or self.clock.stopped():
                self.dropped += large
                self.drop()
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.spoiled = True
            self._failed()
        return not self.spoiled

    def drop(self) -> None:
        """Forget what was sampled of this step. The hooks stay to its end: they may be running."""
        self.spoiled, self.events = True, StepEvents()
        self._forget_operators()

    def _failed(self) -> None:
        """Count an error of ours; of a program that is nested to the limit, and has no room for us, drop the sample."""
        if isinstance(sys.exc_info()[1], RecursionError):
            self.spoiled = True
        else:
            self.tally.caught("timing layers")

    # -- layers -------------------------------------------------------------------------------------------------

    def _arrives(self, module: nn.Module, args: Any) -> None:
        """Note the begin of a layer's call."""
        if not self._here():
            return
        began = perf_counter()
        try:
            layer, node, mark = self._numbers.get(id(module)), _next_node(), self.clock.mark(began)
            if layer is not None:
                with unheard():  # a mode of the program hears of this, too
                    graded = torch.is_grad_enabled()
                call = self.events.enter(layer, node, mark, graded=graded)
                if self.observer is not None:
                    self.observer.enters(call)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self._failed()
        finally:
            own_cost(self.tally, began)

    def _leaves(self, module: nn.Module, args: Any, output: Any) -> None:
        """Note the end of a layer's call, and what went in and out."""
        if not self._here():
            return
        began = perf_counter()
        try:
            layer = self._numbers.get(id(module))
            if layer is None:
                return
            call = self.events.leave(layer, _next_node(), self.clock.mark(began))
            if self.observer is not None and call >= 0:
                self.observer.leaves(call)
            if layer not in self.described:
                self._describe(layer, args, output)
        except Exception:  # noqa: BLE001
            self._failed()
        finally:
            own_cost(self.tally, began)

    def _raised(self) -> None:
        """Note that the outermost call has raised: with it end all calls inside of it."""
        if not self._here():
            return
        began = perf_counter()
        try:
            self.events.broken(_next_node(), self.clock.mark(began))
        except Exception:  # noqa: BLE001
            self._failed()
        finally:
            own_cost(self.tally, began)

    def _describe(self, layer: int, args: Any, output: Any) -> None:
        with unheard():
            given, made = _described(args), _described(output)
            self.plain &= all(_plain(x) for value in (args, output) for _, x in leaves(value, closed=True))
            first = next((x for _, x in leaves(output) if _plain(x)), None)
            self.made[layer] = tuple(first.shape) if first is not None else ()
            if self.autocast is None and first is not None and first.device.type in _CASTING:
                kind = first.device.type
                self.autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self.described[layer] = given, made

    # -- phases -------------------------------------------------------------------------------------------------

    def _phase(self, note: Callable[[str, Any], None], phase: str) -> None:
        """Add the begin or the end of a phase."""
        began = perf_counter()
        try:
            note(phase, self.clock.mark(began))
        except Exception:  # noqa: BLE001
            self._failed()
        finally:
            own_cost(self.tally, began)

    def _differentiates(self, roots: str, *args: Any, **kwargs: Any) -> Around:
        """Wrap a backward pass."""
        if not self._here() or self._differentiating or torch.compiler.is_compiling():
            return
        events, part = self.events, roots == "outputs" or kwargs.get("inputs") is not None or len(args) > _INPUTS_AT
        handles: list[RemovableHandle] = []
        try:
            self._differentiating = True
            self._phase(events.begin, BACKWARD)
            handles = self._follow(events, args[0] if args else kwargs.get(roots), part=part)
            yield
        finally:
            self._differentiating = False
            began = perf_counter()
            for handle in handles or ():
                handle.remove()
            own_cost(self.tally, began)
            self._phase(events.end, BACKWARD)

    def _follow(self, events: StepEvents, roots: Any, *, part: bool) -> list[RemovableHandle]:
        """Set hooks on the graph of a loss; ``part`` is True if only a part of it may be run."""
        began = perf_counter()
        try:
            with unheard(), collecting_later():
                found = nodes(roots)
                if found is None:
                    self.whole = False
                    return []
                if self.observer is not None:
                    self.observer.needed |= {
                        each: tuple(below is not None for below, _ in node.next_functions)
                        for each, node in found
                        if type(node).__name__ == "ConvolutionBackward0"
                    }
                told = functools.partial(_reached, weakref.ref(self), events)
                return set_node_hooks(found, events.owner, told, every=part)
        except Exception:  # noqa: BLE001
            self._failed()
            return []
        finally:
            own_cost(self.tally, began)

    def reached(self, events: StepEvents, call: int) -> None:
        """Note that the backward pass is in nodes of a call, in whatever thread runs it. Whether there are too many is
        seen behind the pass: a recording cannot end in another thread.
        """
        if not self.on or self.spoiled or events is not self.events or len(events.marks) > self._most:
            return
        began = perf_counter()
        try:
            if not self.clock.stopped():
                events.node(call, self.clock.mark(began))
        except Exception:  # noqa: BLE001
            self._failed()
        finally:
            own_cost(self.tally, began)

    def _waits(self, iterator: Any) -> Around:
        """Wrap the ``next`` of a data loader's iterator."""
        if not self._here():
            return
        events = self.events
        found = number(attribute(iterator, "_num_workers"))
        self.workers = self.workers if found is None else int(found)
        self._phase(events.begin, DATA)
        try:
            yield
        finally:
            self._phase(events.end, DATA)

    def _waits_for_workers(self, loader: Any) -> Around:
        """Wrap the making of a data loader's iterator, which starts the workers."""
        if not self._here():
            return
        events = self.events
        self._phase(events.begin, DATA)
        try:
            yield
        finally:
            self._phase(events.end, DATA)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self._here():
            self._phase(self.events.begin, OPTIMIZER)

    def after_step(self, began: float) -> None:
        """Note the end of an optimizer's step, at ``began``."""
        if self._here():
            self.events.end(OPTIMIZER, self.clock.mark(began))

    def _other_profiler(self, *_: Any, **__: Any) -> Around:
        """Wrap the start of a profiler of the program, which refuses to start beside the observer."""
        self._forget_operators()
        yield

    def _paused(self) -> None:
        self._forget_operators()
        if self._hushed is not None:
            self._hushed()

    def _forget_operators(self) -> None:
        """End the observer: this step is not counted."""
        observer, self.observer = self.observer, None
        if observer is not None:
            with contextlib.suppress(RuntimeError):
                observer.stop()


def _reached(sampled: weakref.ref[SampledStep], events: StepEvents, call: int) -> None:
    """Tell a sampled step of a node, if it is still there: a graph may outlive the session."""
    if (found := sampled()) is not None:
        found.reached(events, call)


def _described(value: Any) -> tuple[str, ...]:
    """Return dtype and shape of the first tensors of a value: ``float32[32, 64]``."""
    found = []
    for _, x in leaves(value):
        # A nested tensor has no one shape, and raises where it is asked for it.
        plain = f"{str(x.dtype).removeprefix('torch.')}{[int(n) for n in x.shape]}" if _plain(x) else kind_name(type(x))
        found.append(plain)
        if len(found) == _TENSORS:
            break
    return tuple(found)


def _plain(x: Tensor) -> bool:
    """Return True for an ordinary dense tensor."""
    return type(x) in (Tensor, nn.Parameter) and x.layout is torch.strided and not x.is_nested


def devices_of(parameters: Iterable[Tensor]) -> set[torch.device]:
    """Return the devices of tensors."""
    with unheard():
        return {x.device for x in parameters}
