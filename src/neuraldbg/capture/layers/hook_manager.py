"""Hooks on modules, which read activations and output gradients into a table. A hook reduces; it judges nothing."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.arguments import several
from neuraldbg.capture.compiled.recompile import anything_compiled, asked_to_compile, is_compiled
from neuraldbg.capture.compiled.traced_hook import Edge
from neuraldbg.capture.guest.guard import Tally, guarded
from neuraldbg.capture.guest.module_tree import (
    add_hook,
    children,
    hookable,
    modules,
    own,
    own_parameters,
    registered,
    walk,
)
from neuraldbg.capture.guest.own_hooks import OwnHook, numbers_apart
from neuraldbg.capture.guest.program_objects import class_member, is_a, name_of, note_closed, package_of
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.capture.guest.weak_references import Modules
from neuraldbg.capture.layers.layer_hook import Probe, Several, Told, Visit, inert
from neuraldbg.capture.layers.layer_names import layer_of, strip, wraps
from neuraldbg.capture.layers.read_state import ReadState
from neuraldbg.capture.statistics import operation
from neuraldbg.config import CaptureSettings
from neuraldbg.errors import AttachError, ConfigError
from neuraldbg.nouns import Layer, Site, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.layers.layer_calls import LayerCalls

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
DEFAULT_LAYERS = (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.Embedding)
"""Layer types that a HookManager used alone reports, as Neural Observer's does."""
_FUSED = (nn.TransformerEncoderLayer, nn.TransformerEncoder)
_UNITS_EVERY = 4
"""Steps of the run for one reading of unit activity at most, after the first window of steps."""


class HookManager(ReadState):
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

    @silently
    def __init__(
        self,
        log_every: int = 1,
        *,
        layers: tuple[type[nn.Module], ...] | None = DEFAULT_LAYERS,
        param_grads: bool = True,
        settings: CaptureSettings | None = None,
        tally: Tally | None = None,
    ) -> None:
        super().__init__(settings or CaptureSettings(every=log_every), tally or Tally())
        self.layers: dict[str, Layer] = {}
        self.probes: dict[str, Probe] = {}
        self.direct: dict[int, Told] = {}
        """Probes that the replacement of ``Module.__call__`` calls with outputs, by the identity of the module. Used in
        place of hooks: torch takes longer to call one than a reading takes."""
        direct = self.direct  # the probe of a dead module must go: another module may get its identity
        self.modules = Modules(lambda key: direct.pop(key, None))
        self.fused = self.scripted = False
        """True if a layer has a fused path that hooks switch off (``fused``), or is of TorchScript (``scripted``)."""
        self.on_layer: list[Callable[[str, nn.Module], None]] = []
        """Called with path and module of each layer that is attached, containers included; None if not needed."""
        self._handles: list[OwnHook | RemovableHandle] = []
        self._edges: list[_Placed] = []
        if layers is not None and not all(isinstance(kind, type) for kind in several(layers)):
            raise ConfigError(
                f"layers: give types of modules, such as (torch.nn.Linear,), or None for all, not {layers}"
            )
        self._report = layers
        self._param_grads = param_grads
        self._attached: list[weakref.ref[nn.Module]] = []
        self._lifted = False
        self._listens = False
        """True if outputs are read without hooks."""
        self._compiles = False
        self.hooked = False
        """True once modules of the program have had hooks of ours."""
        self.around: LayerCalls | None = None
        """The functions around the calls of all layers, None if there are none."""

    @silently
    def attach(self, model: nn.Module, prefix: str = "", name: str = "") -> HookManager:
        """Hook every layer of a model, and return this manager. ``prefix`` is put before the paths of its layers.

        Raises AttachError if the model is attached already or is not a module.

        >>> observer = HookManager(log_every=10).attach(model)
        >>> observer.detach()
        """
        if not is_a(model, nn.Module):
            message = f"expected a torch.nn.Module, got {name_of(model)}"
            raise AttachError(message)
        root = wraps(model)
        if any(edge() is root for edge in self._attached):
            message = f"{name_of(root)} is attached already; detach() it first"
            raise AttachError(message)
        self._attached = [known for known in self._attached if known() is not None] + [weakref.ref(root)]
        scripted = is_a(root, torch.jit.ScriptModule) or not hookable(type(root))  # takes no hooks
        edges = [] if scripted else [_Placed(root, Edge(self.graph, opens=opens)) for opens in (True, False)]
        self._edges = [edge for edge in self._edges if not edge.gone] + edges
        if edges and not self._lifted:
            edges[0].put()
        name = name or name_of(root)
        for path, module in walk(root):
            self.add_layer(_joined(prefix, strip(path)) or (name if not children(module) else ""), module, name)
        if self._param_grads:
            for path, module in self.modules.items():
                self._hook_gradients(path, module)
        if edges and not self._lifted:  # behind the hook of a model that is a single layer
            edges[1].put()
        return self

    def sync(self, root: nn.Module, prefix: str, name: str) -> tuple[dict[str, nn.Module], list[str]]:
        """Attach layers that are new in a model, drop those that are gone. Return both, the latter by path; a replaced
        layer is in each.
        """
        now = {
            _joined(prefix, strip(path)) or (name if not children(module) else ""): module
            for path, module in walk(root)
        }
        mine = [path for path, layer in self.layers.items() if layer.model == name]
        gone = [path for path in mine if now.get(path) is None or self.modules.get(path) is not now[path]]
        for path in gone:
            self._forget(path)
        added = {path: module for path, module in now.items() if path not in self.layers}
        for path, module in added.items():
            self.add_layer(path, module, name)
        return added, gone

    def drop(self, name: str, root: nn.Module | None = None) -> list[str]:
        """Remove all hooks from a model. Return the paths of its layers; their rows stay, and are not read any more.
        ``root`` is needed where ``attach`` raised halfway: it may be none of the layers yet.
        """
        mine = [path for path, layer in self.layers.items() if layer.model == name]
        roots = {id(module) for path in mine if (module := self.modules.get(path)) is not None} | {id(root)}
        for path in mine:
            self._forget(path)
        for edge in [edge for edge in self._edges if edge.key in roots]:
            edge.take_off()
            self._edges.remove(edge)
        self._attached = [known for known in self._attached if id(known()) not in roots]
        return mine

    def _forget(self, path: str) -> None:
        module = self.modules.get(path)
        del self.layers[path]
        if module is not None:
            del self.modules[path]
        self.called.pop(path, None)
        probe = self.probes.pop(path, None)
        told = self.direct.pop(id(module), probe) if module is not None else probe
        if module is not None and told is not probe:  # other paths of the module have probes, too
            for other in [other for other in self.probes if self.modules.get(other) is module]:
                self._tell(module, self.probes[other])
        if probe is not None and probe.removable is not None:
            probe.removable.remove()

    def lift(self) -> None:
        """Remove the hooks from the layers for some steps: one that returns at once still costs a microsecond or two.
        Not if layers were compiled with hooks: compiled graphs do not check for them.
        """
        self._stop_listening()
        if not anything_compiled():
            self._lifted = True
            for probe in self.probes.values():
                self._take_off(probe)
            self._take_edges_off()

    def _stop_listening(self) -> None:
        self.direct.clear()
        self._listens = False
        if self.around is not None:
            self.around.put()

    def _take_edges_off(self) -> None:
        for edge in self._edges:
            edge.take_off()

    @staticmethod
    def _take_off(probe: Probe) -> None:
        if probe.removable is not None:
            probe.removable.remove()

    def listen(self, *, directly: bool) -> bool:
        """Read the steps to come: by hooks, or ``directly`` if nothing is compiled; then the program's modules hold no
        hook, and are saved, copied and nested as without us. Return True if a graph was compiled while there were no
        hooks.
        """
        if not directly or self.compiles():
            return self.put_back()
        if not self._listens:
            self._lifted = self._listens = True
            self._take_edges_off()
            if self.around is not None:
                self.around.lift()
            for path, probe in self.probes.items():
                self._hear(path, probe)
            if self.around is not None:
                self.around.put()
        return False

    def _hear(self, path: str, probe: Probe) -> None:
        """Read the outputs of a layer without a hook if its class calls like ``nn.Module``, else by a hook."""
        module = self.modules.get(path)
        if module is None:  # the module has died
            return
        if _called_as_torch_does(module):
            self._take_off(probe)
            self._tell(module, probe)
        else:
            self._put(path, probe)

    def _tell(self, module: nn.Module, probe: Probe) -> None:
        above = self.direct.get(id(module))
        before = above.probes if type(above) is Several else (above,) if type(above) is Probe else ()
        self.direct[id(module)] = Several(*before, probe) if before else probe

    def visit(
        self,
        module: nn.Module,
        arrives: Callable[[nn.Module, Any], None],
        leaves: Callable[[nn.Module, Any, Any], None],
    ) -> Visit | None:
        """Call ``arrives`` and ``leaves`` around calls of a module without a hook, until the visit is removed. None if
        hooks are in use, or the program has pre hooks on the module, which must run first: they give a lazy module its
        shapes.
        """
        if not self._listens or not _called_as_torch_does(module) or registered(module, "_forward_pre_hooks"):
            return None
        return Visit(self.direct, module, arrives, leaves)

    def compiles(self) -> bool:
        """Return True if the program has ever compiled a graph or called torch.compile: it may do so again."""
        self._compiles = self._compiles or anything_compiled() or asked_to_compile()
        return self._compiles

    def expect_compiling(self, called: nn.Module) -> None:
        """Set hooks if the program has called torch.compile since, or calls a compiled module now: a graph compiled
        without hooks does not notice later ones. (``torch._dynamo.reset`` forgets such calls.)
        """
        if self._listens and (self.compiles() or is_compiled(called)):
            self._compiles = True
            self.put_back()

    def rest(self, *, resting: bool) -> None:
        """Stop or resume the readings of compiled graphs in the steps to come."""
        self.graph.rest(resting=resting)
        self.table.resting = resting
        if not resting:
            self.table.begin()  # a replayed CUDA graph went on writing

    def put_back(self) -> bool:
        """Set removed hooks again, behind the program's. Return True if a graph was compiled while there were none."""
        self._stop_listening()
        if not self._lifted:
            return False
        self._lifted = False
        for edge in self._edges[::2]:
            edge.put()
        for path, probe in self.probes.items():
            self._put(path, probe)
        for edge in self._edges[1::2]:
            edge.put()
        return anything_compiled()

    def _put(self, path: str, probe: Probe) -> None:
        module = self.modules.get(path)
        if module is None:  # the module has died
            return
        self.hooked = True
        if probe.removable is None:
            probe.removable = add_hook(module, "_forward_hooks", probe)
            self._handles.append(probe.removable)
        else:
            probe.removable.put()

    @silently
    def detach(self) -> None:
        """Remove every hook that this manager has set. It may be attached again.

        >>> HookManager().attach(model).detach()
        """
        for handle in self._handles:
            handle.remove()
        self._take_edges_off()
        self._handles.clear()
        self._edges.clear()
        self._attached.clear()
        self._stop_listening()
        self.nodes = None

    def begin_step(self, step: int) -> None:
        """Decide which readings a full step of a session has."""
        self.active = self.sampled = step % self.settings.every == 0
        # Full steps are rare later: then the units of each are read, until a share of all steps has been.
        spare = step // _UNITS_EVERY + self.settings.window
        self.reads_units = self.active and self._units_read < spare
        self._units_read += self.reads_units
        self.binned = self.settings.histograms and self.table.binning.begin(step)

    def reset_step(self) -> None:
        """Begin a step, clearing all readings.

        >>> observer = HookManager().attach(model)
        >>> observer.reset_step()
        >>> loss = loss_fn(model(inputs[0]), inputs[0].sum(dim=1, keepdim=True))
        >>> loss.backward()
        >>> list(observer.grad_norms)
        ['0', '2']
        >>> observer.detach()
        """
        self.table.begin()
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
        return self._report is None or is_a(self.modules.get(path), self._report)

    def add_layer(self, path: str, module: nn.Module, model: str) -> None:
        if path in self.layers:
            return
        self.layers[path] = layer_of(path, module, model)
        self.modules[path] = module
        for told in self.on_layer:
            told(path, module)
        self.fused |= is_a(module, _FUSED)
        self.scripted |= is_a(module, torch.jit.ScriptModule)
        if is_a(module, _CONTAINERS) or (not path and children(module)):
            return
        if is_a(module, torch.jit.ScriptModule):  # takes no hooks: parameters and gradients are read all the same
            self.called.setdefault(path)
            return
        if not hookable(type(module)):
            note_closed(type(module))
            self.called.setdefault(path)
            return
        probe = self.probes[path] = Probe(self, path, module)
        if self._listens:
            self._hear(path, probe)
        elif not self._lifted:
            self._put(path, probe)

    def _hook_gradients(self, path: str, module: nn.Module) -> None:
        for name, parameter in own_parameters(module):
            row = self.table.add(Site("param_grad", path, 0, name))
            if row is not None and parameter.requires_grad:
                hook = functools.partial(self._accumulated, row)
                with numbers_apart():
                    self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    @guarded
    def _accumulated(self, row: int, parameter: Tensor) -> None:
        grad = operation.shown(parameter.grad)
        if grad is not None:
            self.table.reset([row])  # .grad is a running sum over micro-batches: the last reading counts
            self.table.observe(grad, row)

    def refine(self, following: dict[str, frozenset[str]], sources: frozenset[str]) -> None:
        """Apply the loss graph: the functional activation behind each layer that the graph reached."""
        for path, probe in self.probes.items():
            if path in sources:
                probe.refine(following.get(path, frozenset()))

    @contextlib.contextmanager
    def off(self, root: Any) -> Iterator[None]:
        """Remove our hooks from a model in this context: ``torch.jit.script`` compiles hooks, but cannot
        compile ours.
        """
        lifted = []
        for module in modules(root) if is_a(root, nn.Module) else ():
            stores = (own(module).get(name) for name in ("_forward_hooks", "_forward_pre_hooks"))
            for hooks in (store for store in stores if is_a(store, dict)):  # the program may swap the dictionaries
                mine = [key for key, hook in hooks.items() if package_of(type(hook)) == "neuraldbg" or inert(hook)]
                if mine:
                    lifted.append((hooks, dict(hooks)))
                for key in mine:
                    del hooks[key]
        try:
            yield
        finally:
            for hooks, before in lifted:
                hooks.clear()
                hooks.update(before)

    def never_fired(self) -> list[str]:
        """Return the hooked layers that have not been called, or only without gradients."""
        return [path for path in list(self.probes) if path not in self.called]

    def note_without_grad(self, module: nn.Module) -> None:
        """Record that a module was called without gradients, where nothing is read."""
        self.without_grad.update((path, None) for path, one in list(self.modules.items()) if one is module)

    def only_without_grad(self, paths: list[str]) -> list[str]:
        """Return those of some layers that are within a module that was called without gradients."""
        outer = list(self.without_grad)
        return [p for p in paths if any(not o or p == o or p.startswith(f"{o}.") for o in outer)]


class _Placed:
    """An ``Edge`` of a watched model, and the handle of its hook."""

    def __init__(self, root: nn.Module, edge: Edge) -> None:
        self._root, self.key, self._edge = weakref.ref(root), id(root), edge
        self._handle: OwnHook | None = None

    @property
    def gone(self) -> bool:
        """True if the model has died."""
        return self._root() is None

    def put(self) -> None:
        """Set the hook, behind those of the program."""
        hooks = "_forward_pre_hooks" if self._edge.opens else "_forward_hooks"
        root = self._root()
        if root is None:  # the model has died
            return
        if self._handle is None:
            self._handle = add_hook(root, hooks, self._edge)
        else:
            self._handle.put()

    def take_off(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()


def _called_as_torch_does(module: nn.Module) -> bool:
    return class_member(type(module), "__call__") is nn.Module.__dict__["__call__"]


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path
