"""The traced part of a layer's hook: samples of outputs and of gradients, for operators that read them.

A sample is taken by operations that the compiler knows, so that it fuses them with the operations that made the tensor,
and stores only the sample. Samples of outputs are kept until the outermost watched module returns, and read by one
operator there, or ``TOGETHER`` at a time: an operator per layer would prevent fusion, and make the compiler save
tensors for the backward pass that it would otherwise recompute. Gradients are read in the same way (``gradient_tap``),
by an operator whose result is the gradient of a ``leaf`` of ours: no computation of the program waits for it, and no
compiler can drop it. Where a part of a model is compiled by itself, each sample is read at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from neuraldbg.capture.compiled import device_operator, operators
from neuraldbg.capture.compiled.dynamo_guards import quieten
from neuraldbg.capture.compiled.gradient_tap import TOGETHER, keep, look, tap, tap_at
from neuraldbg.capture.compiled.operators import observe_at, sample
from neuraldbg.capture.guest.module_tree import own
from neuraldbg.capture.guest.program_objects import is_a, items
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

Sample: TypeAlias = tuple[Tensor, int, int, float, float]
"""(sample, row, elements of the output, bound, centre of saturation)."""
_DEPTH = 4
_OPENED: Any = None
"""First entry of a call's samples."""


KEPT = 1024
"""Elements that a graph keeps of one tensor at most, for the sizes that it was compiled with. They are written to
memory only to be read; eager mode reads tensors in place. Of independent values so many give the root mean square to
within 5% (two standard errors)."""


class Graph:
    """The samples gathered while a graph runs, and the table that they go to. Hooks of the watched models open and
    close it.

    ``table`` has shape (rows, operation.WIDTH); ``clock`` has shape (2,): see ``Tally``. Compiled graphs find a
    ``Graph`` by its ``handle``, all in the same way: each further way would be a guard at every call.
    """

    def __init__(
        self, table: Tensor, clock: npt.NDArray[np.float64], cap: int, mode: str, caught: Callable[[str], None]
    ) -> None:
        self.table, self.cap, self.kept = table, cap, min(cap, KEPT)
        self.caught = caught
        """Counts an error of ours, see ``Tally``."""
        self.reads = mode != "outside"
        """True if layers in a graph are read at all."""
        self.reads_there = mode == "observe"
        """True if layers on other devices are, too: ``device_operator.py`` has an operator for each."""
        self.left: dict[int, str] = {}
        """Types of devices whose layers in a graph were left alone, by the row of the layer, -1 without one."""
        self.handle = next(_handles)
        self._clock = clock
        self.leaf = torch.zeros((), dtype=torch.float32, device="cpu", requires_grad=True)
        """A leaf whose gradient is a zero, shape ()."""
        self.samples: list[Sample] = []
        """``_OPENED`` and the samples while a watched model is called in the graph; else empty. One list, because a
        graph writes back at each call all that a trace changes."""
        _graphs[self.handle] = self
        self.rest(resting=False)

    @property
    def opened(self) -> bool:
        """True while a watched model is called."""
        return bool(self.samples)

    def rest(self, *, resting: bool) -> None:
        """Close or open the table for compiled graphs, in light and full steps. The operators stay in the graph: a flag
        that the graph itself could see would cause a recompilation.
        """
        if not resting:
            operators.begin(self.handle, self.table, self._clock)
        else:
            operators.rest(self.handle)

    def close(self) -> None:
        """Stop reading for good. Errors are suppressed: the call may come from the end of the process."""
        with contextlib.suppress(Exception):
            self.rest(resting=True)
        _graphs.pop(self.handle, None)


_graphs: dict[int, Graph] = {}
"""Graphs by handle, for traces and compiled graphs."""
_handles = itertools.count()


class Plan:
    """The row and saturation bounds of a layer's output, for compiled graphs. Constant, else graphs would recompile."""

    def __init__(self, graph: Graph, row: int, grad_row: int, bound: float, centre: float) -> None:
        self.handle = graph.handle
        self.text = f"{row} {grad_row} {bound!r} {centre!r}" if row >= 0 else ""
        """Row, gradient row, bound and centre as one text, which is one guard at each call; four numbers are four."""
        self.places = torch.tensor([row, grad_row, bound, centre], dtype=torch.float64, device="cpu")
        """The same numbers as data, which is no guard: layers that are compiled one by one can share a graph."""


def see(plan: Plan, output: Any) -> Any:
    """Sample the output of a layer, and return it with a tap on its gradient; None leaves the output unchanged. An
    exported model runs without us.
    """
    graph = _graphs.get(plan.handle)
    if graph is None or _neuraldbg_exporting():
        return None
    seen = None
    if graph.reads and torch.is_grad_enabled():  # Dynamo traces each of the following lines once per layer
        if isinstance(output, Tensor):
            seen = _see(plan, output, graph)
        else:
            _see_inside(plan, output, graph)
    _neuraldbg_quieten(plan.handle)
    return seen


def _see(plan: Plan, output: Tensor, graph: Graph) -> Tensor | None:
    if not output.is_floating_point():
        return None
    if placement.lies(output):
        if _neuraldbg_leaves(plan.handle, output.device.type, plan.text):
            return None
        return _see_there(plan, output, graph) if plan.text else None
    if not (_neuraldbg_keeps(plan.handle) and graph.samples):  # in this order: each attribute read here is a guard
        observe_at(sample(output, graph.kept), graph.table, plan.handle, plan.places, output.numel())
        tapped = output.requires_grad
        return tap_at(output, graph.leaf, plan.places, plan.handle, graph.kept) if tapped else None
    if not plan.text:
        return None
    grad_row = _keep(plan, output, graph)
    _read_some(graph)
    tapped = grad_row >= 0 and output.requires_grad
    return tap(output, graph.leaf, plan.handle, grad_row, graph.kept) if tapped else None


def _see_inside(plan: Plan, output: Any, graph: Graph) -> None:
    """Sample the tensors inside an output. Their gradients are not sampled."""
    kept = False
    for x in _tensors(output, 0):
        if not x.is_floating_point():
            continue
        if placement.lies(x):
            _neuraldbg_leaves(plan.handle, x.device.type, plan.text)
            continue
        if not (_neuraldbg_keeps(plan.handle) and graph.samples):
            observe_at(sample(x, graph.kept), graph.table, plan.handle, plan.places, x.numel())
        elif plan.text:
            _keep(plan, x, graph)
            kept = True
    if kept:  # else no attribute may be read
        _read_some(graph)


def _tensors(value: Any, depth: int) -> list[Tensor]:
    """Return the tensors in an output, by code that Dynamo can trace. A container whose class overrides iteration gives
    none: its code would become part of the graph.
    """
    if isinstance(value, Tensor):
        return [value]
    kind = type(value)
    if depth == _DEPTH or value is None:
        return []
    if issubclass(kind, dict):
        plain = kind.items in (dict.items, OrderedDict.items) and kind.__iter__ in (dict.__iter__, OrderedDict.__iter__)
        inside = list(value.values()) if plain and kind.values in (dict.values, OrderedDict.values) else []
    elif issubclass(kind, (tuple, list)):
        inside = list(value) if kind.__iter__ in (tuple.__iter__, list.__iter__) else []
    elif dataclasses.is_dataclass(kind) and kind.__getattribute__ is object.__getattribute__:
        inside = [value.__dict__[name] for name in kind.__dataclass_fields__ if name in value.__dict__]
    else:
        inside = []
    return [x for part in inside for x in _tensors(part, depth + 1)]


def _keep(plan: Plan, x: Tensor, graph: Graph) -> int:
    """Keep a sample. Return the row of its gradient."""
    row, grad_row, bound, centre = plan.text.split(" ")
    graph.samples.append((keep(x, graph.kept), int(row), x.numel(), float(bound), float(centre)))
    return int(grad_row)


def _read_some(graph: Graph) -> None:
    if len(graph.samples) > TOGETHER:
        _have_read(graph)
        graph.samples.append(_OPENED)


def _see_there(plan: Plan, output: Tensor, graph: Graph) -> Tensor:
    """Return an output on another device with a tap that reads it and its gradient."""
    row, grad_row, bound, centre = plan.text.split(" ")
    rows, bounds = (int(row), int(grad_row)), (float(bound), float(centre))
    return device_operator.tap(output, graph.handle, rows, graph.cap, bounds)


def _have_read(graph: Graph) -> None:
    """Read the kept samples, and drop them."""
    taken = graph.samples[1:]
    graph.samples.clear()
    if taken:
        xs, rows, totals = [s[0] for s in taken], [s[1] for s in taken], [s[2] for s in taken]
        look(xs, graph.table, graph.handle, rows, totals, [value for s in taken for value in s[3:]])


F = TypeVar("F", bound="Callable[..., Any]")


def _constant(function: F) -> F:
    """Mark a function whose result Dynamo takes as a constant, as ``torch.compiler.assume_constant_result`` does,
    without importing Dynamo: that takes longer than the rest of a session's start.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def _traced() -> Any:
    """Return Dynamo's current trace, None if there is none. It writes each of our constants into the globals of the
    program's module, under the name of the function (``OutputGraph.register_attr_or_module``), and never reads it; a
    cleanup hook removes the names.
    """
    try:
        traced = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslator.current_tx().output
    except (AttributeError, ImportError):  # another torch, or an export without a trace
        return None
    if not any(getattr(hook, "func", None) is _clear_names for hook in getattr(traced, "cleanup_hooks", ())):
        traced.add_cleanup_hook(functools.partial(_clear_names, traced.global_scope))
    return traced


def _clear_names(scope: dict[str, Any]) -> None:
    if scope is globals():  # torch 2.6 compiles the hook on a model of a class of its own by itself
        return
    for name in [name for name in list(scope) if name.startswith(("sub_neuraldbg_", "_neuraldbg_"))]:
        scope.pop(name, None)


@_constant
def _neuraldbg_exporting() -> bool:
    """Return True while a model is exported; called only while one is compiled or exported. In several versions of
    torch Dynamo takes ``torch.compiler.is_exporting()`` for True in every graph (2.11), and 2.6 has no such function:
    there an export that Dynamo does not trace sets the flag of ``is_compiling``.
    """
    flags = vars(torch.compiler)
    by_flag = flags.get("_is_exporting_flag", flags.get("_is_compiling_flag", False))
    return bool(getattr(_traced(), "export", False) or by_flag)


@_constant
def _neuraldbg_leaves(handle: int, device: str, text: str) -> bool:
    """Return True if layers on another device are left alone, and note the device by the row in a ``Plan.text``."""
    _traced()
    graph = _graphs.get(handle)
    if graph is not None and graph.reads_there:
        return False
    if graph is not None:
        graph.left[int(text.partition(" ")[0] or -1)] = device
    return True


@_constant
def _neuraldbg_keeps(handle: int) -> bool:
    """Return True if samples can be kept until the watched model returns: its call is part of the trace, or its
    ``forward`` is what is traced. False in the body of an operator, as activation checkpointing makes one, and in a
    part of a model that is compiled by itself: samples kept there would be a guard of all other parts.
    """
    try:
        traced = _traced()
        if traced is None or not traced.is_root_tracer():
            return False
        # The state before the trace: a hook traced in it has opened the graph.
        return not _graphs[handle].opened or _watched(traced.root_tx.f_locals.get("self"), handle)
    except AttributeError:  # another torch: False is always safe
        return False


@_constant
def _neuraldbg_quieten(handle: int) -> None:
    """Drop the guards that exist because of the hook being traced, which has finished."""
    with contextlib.suppress(AttributeError):  # another torch
        traced = _traced()
        if traced is not None and traced.is_root_tracer():
            quieten(traced, functools.partial(_watched, handle=handle))


def _watched(module: Any, handle: int) -> bool:
    """Return True if a module is a watched model of a graph."""
    hooks = own(module).get("_forward_pre_hooks") if is_a(module, nn.Module) else None
    return any(type(hook) is Edge and hook.handle == handle for _, hook in items(hooks))


class Edge:
    """A hook on a watched model, which opens the graph before the model's call and closes it after. A copy does
    nothing.

    For a model of torch's own classes, and one called in a compiled function, the hooks are part of the graph. For any
    other Dynamo calls them outside: then the samples are results of its graph.
    """

    unseen: ClassVar[bool] = True

    def __init__(self, graph: Graph, *, opens: bool) -> None:
        self.handle, self.opens = graph.handle, opens

    def __call__(self, module: nn.Module, args: Any, output: Any = None) -> None:
        """Open the graph, or read the kept samples and close it."""
        graph = _graphs.get(self.handle)
        if graph is None:
            return
        if torch.compiler.is_compiling():
            if not _neuraldbg_exporting():
                self._passed(graph)
                _neuraldbg_quieten(self.handle)
            return
        try:
            if not operators.of_another_thread(self.handle):
                self._passed(graph)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            graph.caught("reading compiled layers")

    def _passed(self, graph: Graph) -> None:
        if graph.reads and self.opens:
            graph.samples.clear()
            graph.samples.append(_OPENED)
        elif graph.reads:
            _have_read(graph)

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))  # as for a Probe

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__
