"""Hooks on modules: activations and the gradients at their outputs, into a table. A hook reduces; it judges nothing."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture import kinds, op
from neuraldbg.capture.graph import Marks
from neuraldbg.capture.guest import Tally, guarded
from neuraldbg.capture.leaves import leaves
from neuraldbg.capture.names import layer_of, strip, wraps
from neuraldbg.capture.table import Table
from neuraldbg.config import CaptureSettings
from neuraldbg.errors import AttachError
from neuraldbg.nouns import Layer, Site, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.utils.hooks import RemovableHandle

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
DEFAULT_LAYERS = (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.Embedding)
"""What a HookManager used by hand reports, as Neural Observer's does."""
ROWS = 16_384
_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public way tells a recomputation from a forward pass)
_tracing = torch._C._get_tracing_state  # noqa: SLF001


class HookManager:
    """Reads the norms of a model's activations and gradients while it trains.

    Usable alone::

        observer = HookManager(log_every=10).attach(model)
        for step, (x, y) in enumerate(batches):
            observer.reset_step()
            loss_fn(model(x), y).backward()
            optimizer.step()
            print(observer.grad_norms, observer.act_norms)

    Activations are read at every ``log_every``-th step, gradients at every step, so that no explosion falls between two
    logged steps. ``layers`` limits what is *reported* to these module types; None reports every layer.
    """

    def __init__(
        self,
        log_every: int = 1,
        *,
        layers: tuple[type[nn.Module], ...] | None = DEFAULT_LAYERS,
        param_grads: bool = True,
        settings: CaptureSettings | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.settings = settings or CaptureSettings(every=log_every)
        self.tally = tally or Tally()
        self.table = Table(ROWS, self.settings.block_cap, self.settings.window)
        self.step = 0
        self.active = True
        """Whether activations are read now: off in passes without gradients, and between logged steps."""
        self.sampled = True
        """Whether this step is one of those whose activations are read."""
        self.reads_units = True
        """Whether the activity of units is read in this step."""
        self.thread: int | None = None
        """The thread whose passes are read, None for any: another may serve predictions while this one trains."""
        self.passes = 0
        """Counts forward passes: call indices start again with each."""
        self.marks = Marks()
        self.nodes: Marks | None = None
        """Where nodes are marked with their layer while the loss graph of this step is to be read, else None."""
        self.foreign_saves = False
        """Whether saved-tensor hooks (checkpointing, offloading) were seen: then no saved tensor is touched."""
        self.called: dict[str, None] = {}
        """Paths of the layers that fired, in order of first call."""
        self.layers: dict[str, Layer] = {}
        self.modules: dict[str, nn.Module] = {}
        self.probes: dict[str, Probe] = {}
        self._handles: list[RemovableHandle] = []
        self._report = layers
        self._param_grads = param_grads
        self._attached: set[int] = set()

    def attach(self, model: nn.Module, prefix: str = "", name: str = "") -> HookManager:
        """Hook every layer of a model. AttachError if it is attached already or is not a module."""
        if not isinstance(model, nn.Module):
            message = f"expected a torch.nn.Module, got {type(model).__name__}"
            raise AttachError(message)
        root = wraps(model)
        if id(root) in self._attached:
            message = f"{type(root).__name__} is attached already; detach() it first"
            raise AttachError(message)
        self._attached.add(id(root))
        name = name or type(root).__name__
        for path, module in root.named_modules():
            self._add(_joined(prefix, strip(path)) or (name if not module._modules else ""), module, name)  # noqa: SLF001
        if self._param_grads:
            for path, module in self.modules.items():
                self._hook_gradients(path, module)
        return self

    def sync(self, root: nn.Module, prefix: str, name: str) -> tuple[dict[str, nn.Module], list[nn.Module]]:
        """Attach layers that are new in a model, drop those that are gone. Returns both; a replaced one is in each."""
        now = {
            _joined(prefix, strip(path)) or (name if not module._modules else ""): module  # noqa: SLF001
            for path, module in root.named_modules()
        }
        mine = [path for path, layer in self.layers.items() if layer.model == name]
        gone = [path for path in mine if self.modules[path] is not now.get(path)]
        dropped = [self.modules[path] for path in gone]
        for path in gone:
            del self.layers[path], self.modules[path]
            self.called.pop(path, None)
            probe = self.probes.pop(path, None)
            if probe is not None and probe.removable is not None:
                probe.removable.remove()
        added = {path: module for path, module in now.items() if path not in self.layers}
        for path, module in added.items():
            self._add(path, module, name)
        return added, dropped

    def detach(self) -> None:
        """Remove every hook that this manager has set."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._attached.clear()
        self.nodes = None

    def reset_step(self) -> None:
        """Start a new step: what was read before is forgotten."""
        self.table.clear()
        self.passes += 1
        self.step += 1
        self.active = self.sampled = (self.step - 1) % self.settings.every == 0

    @property
    def act_norms(self) -> dict[str, float]:
        """L2 norm of each layer's output at the last logged step, over the whole batch, by layer path."""
        return self._norms("activation")

    @property
    def grad_norms(self) -> dict[str, float]:
        """L2 norm of the gradient of each layer's parameters in this step, by layer path; NaN if any is not finite."""
        return self._norms("param_grad")

    def _norms(self, kind: str) -> dict[str, float]:
        self.table.gather()
        table = self.table.derive(self.step)
        found: dict[str, float] = {}
        for row, site in enumerate(self.table.sites):
            if site.kind != kind or table[row, column("count")] == 0 or not self._reported(site.module):
                continue
            square = table[row, column("rms")] ** 2 * table[row, column("total")]
            if table[row, column("nonfinite")] > 0:
                square = float("nan")
            found[site.module] = found.get(site.module, 0.0) + float(square)
        return {layer: value**0.5 for layer, value in found.items()}

    def _reported(self, path: str) -> bool:
        return self._report is None or isinstance(self.modules.get(path), self._report)

    def _add(self, path: str, module: nn.Module, model: str) -> None:
        if path in self.layers:
            return
        self.layers[path] = layer_of(path, module, model)
        self.modules[path] = module
        if isinstance(module, _CONTAINERS) or (not path and module._modules):  # noqa: SLF001
            return
        if isinstance(module, torch.jit.ScriptModule):  # takes no hooks: parameters and gradients are read all the same
            self.called.setdefault(path)
            return
        probe = self.probes[path] = Probe(self, path, module)
        probe.removable = module.register_forward_hook(probe)
        self._handles.append(probe.removable)

    def _hook_gradients(self, path: str, module: nn.Module) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            row = self.table.add(Site("param_grad", path, 0, name))
            if row is not None and parameter.requires_grad:
                hook = functools.partial(self._accumulated, row)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    @guarded
    def _accumulated(self, row: int, parameter: Tensor) -> None:
        grad = parameter.grad
        if grad is not None and op.observable(grad):
            self.table.reset([row])  # .grad is a running sum over micro-batches: the last reading counts
            self.table.observe(grad, row)

    @guarded
    def observe_grad(self, row: int, grad: Tensor) -> None:
        """Read the gradient at a module's output; called by autograd."""
        if op.observable(grad):
            self.table.observe(grad, row)

    def refine(self, following: dict[str, frozenset[str]], sources: frozenset[str]) -> None:
        """Use what the loss graph told: the functional activation behind each layer that it reached."""
        for path, probe in self.probes.items():
            if path in sources:
                probe.refine(following.get(path, frozenset()))

    def wrap_saving(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        """Make what stands in for the start of a region whose saved tensors are packed: to look at one unpacks it."""

        @functools.wraps(original)
        def enter(region: Any) -> None:
            self.foreign_saves = True
            return original(region)

        return enter

    def wrap_script(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make what stands in for ``torch.jit.script``, which compiles hooks too and cannot compile ours."""

        @functools.wraps(original)
        def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
            lifted = []
            for module in obj.modules() if isinstance(obj, nn.Module) else ():
                hooks = module._forward_hooks  # noqa: SLF001 (a handle would give the hook a new place)
                lifted.append((hooks, dict(hooks)))
                for key in [key for key, hook in hooks.items() if isinstance(hook, Probe) or _inert(hook)]:
                    del hooks[key]
            try:
                return original(obj, *args, **kwargs)
            finally:
                for hooks, before in lifted:
                    hooks.clear()
                    hooks.update(before)

        return script

    def never_fired(self) -> list[str]:
        """Hooked layers that have not been called."""
        return [path for path in list(self.probes) if path not in self.called]


def _inert(hook: Any) -> bool:
    """Whether a hook is what a copied model has in the place of ours."""
    return isinstance(getattr(hook, "__self__", None), contextlib.nullcontext)


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


class Slot:
    """The rows of one output tensor of one call of a module."""

    __slots__ = ("activation", "gradient", "hooked")

    def __init__(self, activation: int | None, gradient: int | None) -> None:
        self.activation = activation
        self.gradient = gradient
        self.hooked = -1  # the forward pass in which the gradient hook was set


class Probe:
    """The forward hook of one module. A copy or a pickle of it does nothing, so models stay copyable and loadable."""

    def __init__(self, owner: HookManager, path: str, module: nn.Module) -> None:
        self.owner = owner
        self.path = path
        self.raw, self.handle = owner.table.raw, owner.table.handle
        self.cap = owner.settings.block_cap
        self.traced = owner.settings.compiled == "observe"
        self.bound, self.centre = kinds.saturation(module)
        self.graph_bound, self.graph_centre = self.bound, self.centre  # constants: a change would recompile the graph
        self.counts_units = isinstance(module, (*kinds.RECTIFIERS, nn.Linear, *_conv_and_norm()))
        self.always_units = isinstance(module, kinds.RECTIFIERS)
        self.slots: dict[tuple[int, str], Slot] = {}
        self.first = self.slot(0, "")
        self.row = self.first.activation if self.first.activation is not None else -1
        self.grad_row = self.first.gradient if self.first.gradient is not None else -1
        self.removable: RemovableHandle | None = None
        self.calls = self.recalls = 0
        self.seen_pass = -1

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Read the output; in a traced graph, return it with a tap on its gradient."""
        if torch.compiler.is_exporting():  # what is exported is used without us
            return None
        if torch.compiler.is_compiling():
            return self.in_graph(output) if self.traced else None
        owner = self.owner
        if owner.active and _tracing() is None and self.ours():
            self.read(module, output)
        return None

    def ours(self) -> bool:
        """Whether this is a pass of the thread that trains; a recomputation runs in whatever thread autograd uses."""
        return self.owner.thread in (None, threading.get_ident()) or _graph_task() != -1

    def __reduce__(self) -> tuple[Any, ...]:
        # A saved or deep-copied model must not need this package: an accept-anything callable of the standard library.
        return (getattr, (contextlib.nullcontext(), "__exit__"))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__

    @property
    def tally(self) -> Tally:
        """Where errors and time are counted."""
        return self.owner.tally

    def in_graph(self, output: Any) -> Any:
        """What a compiled graph holds: the operator on the output, and a tap on its gradient."""
        if self.row < 0 or not torch.is_grad_enabled():
            return None
        if not isinstance(output, Tensor):
            for _, x in leaves(output):
                if x.is_floating_point() and x.device.type == "cpu":
                    op.observe(x.detach(), self.raw, self.row, self.cap, self.graph_bound, self.graph_centre)
            return None
        if not output.is_floating_point() or output.device.type != "cpu":
            return None
        op.observe(output.detach(), self.raw, self.row, self.cap, self.graph_bound, self.graph_centre)
        if output.requires_grad and self.grad_row >= 0:
            return op.tap(output, self.handle, self.grad_row, self.cap)
        return None

    @guarded
    def read(self, module: nn.Module, output: Any) -> None:
        """Read the output in eager mode."""
        owner = self.owner
        if self.seen_pass != owner.passes:
            self.seen_pass, self.calls, self.recalls = owner.passes, 0, 0
        if _graph_task() != -1:  # inside a backward pass: activation checkpointing computes the forward again
            self.recomputed(output)
            return
        call = min(self.calls, owner.settings.max_calls - 1)
        self.calls += 1
        owner.called.setdefault(self.path)
        for leaf, x in (("", output),) if isinstance(output, Tensor) else leaves(output):
            if not op.observable(x):
                continue
            slot = self.slot(call, leaf)
            if slot.activation is None:
                continue
            owner.table.observe(x, slot.activation, self.bound, self.centre)
            if self.counts_units and owner.reads_units:
                self.read_units(module, x, slot.activation)
            self.follow(x, slot)

    def recomputed(self, output: Any) -> None:
        """Set the gradient hooks that the first forward could not: reentrant checkpointing runs it without grad."""
        call = min(self.recalls, self.owner.settings.max_calls - 1)
        self.recalls += 1
        for leaf, x in leaves(output):
            slot = self.slots.get((call, leaf))
            if slot is not None and slot.hooked != self.owner.passes and op.observable(x):
                self.follow(x, slot)

    def follow(self, x: Tensor, slot: Slot) -> None:
        """Hook the gradient at an output, and remember its node while the loss graph is to be read."""
        node = x.grad_fn
        if node is None:  # a leaf would keep the hook for ever
            return
        if slot.gradient is not None:
            x.register_hook(functools.partial(self.owner.observe_grad, slot.gradient))
            slot.hooked = self.owner.passes
        nodes = self.owner.nodes
        if nodes is not None:
            nodes.put(node, self.path)

    def read_units(self, module: nn.Module, x: Tensor, row: int) -> None:
        """Note which units were positive."""
        axis = kinds.unit_axis(module, x)
        if axis is None:
            return
        units = self.owner.table.units
        units.add(row, x.shape[axis], self.owner.step)
        units.observe(row, x, axis, self.cap)

    def refine(self, following: Iterable[str]) -> None:
        """Watch units only before a rectifier, and saturation of a functional sigmoid or tanh at its input."""
        names = set(following)
        if not self.always_units:
            self.counts_units = self.counts_units and bool(names & {"relu", "relu6", "threshold"})
        for name in names & kinds.PRE_ACTIVATION.keys():
            if not self.bound:
                self.bound, self.centre = kinds.PRE_ACTIVATION[name], 0.0

    def slot(self, call: int, leaf: str) -> Slot:
        """Return the rows for a call and an output leaf, made when first needed."""
        slot = self.slots.get((call, leaf))
        if slot is None:
            table = self.owner.table
            activation = table.add(Site("activation", self.path, call, leaf))
            gradient = table.add(Site("output_grad", self.path, call, leaf)) if activation is not None else None
            slot = self.slots[(call, leaf)] = Slot(activation, gradient)
        return slot


def _conv_and_norm() -> tuple[type[nn.Module], ...]:
    return (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001
