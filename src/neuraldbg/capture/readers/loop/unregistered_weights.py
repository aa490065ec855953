"""The reader of unregistered weights: the loss's graph reaches them, no module has them: layers in a list, loose
tensors.

The leaves of the graph are compared with the optimizers' tensors. Only if some are in no optimizer are the attributes
of the watched modules searched for them. Tensors that the program differentiates by itself (the inputs of
``torch.autograd.grad``: coordinates, images) or passes to a model as an input are no weights.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import is_parameter
from neuraldbg.capture.guest.program_objects import is_a, name_of, package_of, sequence
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.loop.attribute_search import Held
    from neuraldbg.capture.readers.reader import Patch

_MOST = 64
"""Unregistered tensors that are followed."""
_SAMPLE = 256
"""Values of each that are kept to detect changes."""
_LIBRARIES = ("torch", "torchvision", "transformers", "timm", "lightning", "lpips")
_INPUTS = 256
"""Tensors whose role as an input is remembered."""


@dataclass
class Candidate:
    """A leaf of a loss's graph that is in no optimizer."""

    ref: weakref.ref[Tensor]
    held: Held
    first: int
    before: Tensor
    """A copy of some of its values at the first reading."""
    feeds: set[str] = field(default_factory=set)
    seen: int = 0
    moved: bool = False
    told: dict[str, Any] = field(default_factory=dict)
    """The tensor's entry in the last fact, empty if it has none."""


class Hidden(Reader):
    """Follows unregistered weights over the steps whose facts are read."""

    sampled = frozenset({"backward_begins", "call_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._leaves: dict[int, tuple[weakref.ref[Tensor], set[str]]] = {}
        """Leaves of this step's graphs by identity: (leaf, layers that it feeds)."""
        self._inputs: dict[int, weakref.ref[Tensor]] = {}
        self._known: dict[int, Candidate] = {}
        self._searched = False
        self._gaps = False
        """True once steps were not seen, in which an optimizer may have got these tensors."""

    def resumes(self) -> None:
        """Drop the leaves of the step before."""
        self._gaps = True
        self._leaves = {}

    def patches(self) -> Iterable[Patch]:
        """Return the wrapper of ``autograd.grad``: its inputs are no forgotten weights."""
        return [(torch.autograd, "grad", self._differentiates)]

    def _differentiates(self, *args: Any, **kwargs: Any) -> Around:
        if self.scene.switch.in_full_step() and not torch.compiler.is_compiling():
            self._not_weights(args[1] if len(args) > 1 else kwargs.get("inputs"))
        yield

    @guarded
    def _not_weights(self, given: Any) -> None:
        if is_a(given, Tensor):
            given = (given,)
        if len(self._inputs) > _INPUTS:
            self._inputs = {key: ref for key, ref in self._inputs.items() if ref() is not None}
        if len(self._inputs) <= _INPUTS:
            for count, x in enumerate(sequence(given)):
                if count == _INPUTS:
                    break
                if type(x) is Tensor and x.requires_grad and x.is_leaf:
                    self._inputs[id(x)] = weakref.ref(x)

    def call_begins(self, call: Call) -> None:
        """Record the inputs of a model, which are no weights."""
        if self.scene.reading:
            for _, x in leaves((call.args, call.kwargs)):
                self._not_weights(x)

    def backward_begins(self, backward: Backward) -> None:
        """Record the leaves of the graph; their optimizers are known when the step is over."""
        if backward.walk is None:
            return
        for key, (leaf, feeds) in backward.walk.leaves.items():
            if tensor_memory.present(leaf) and leaf.requires_grad:
                known = self._leaves.setdefault(key, (weakref.ref(leaf), set()))
                known[1].update(feeds)

    def step_closes(self) -> None:
        """Search the leaves that are in no optimizer."""
        noted, self._leaves = self._leaves, {}
        if not noted or not self.scene.optimizers.streams:
            return
        held = self._held()
        loose = {key: (ref(), feeds) for key, (ref, feeds) in noted.items() if key not in held and not self._given(key)}
        alive = {key: (x, feeds) for key, (x, feeds) in loose.items() if x is not None and tensor_memory.present(x)}
        strangers = {key for key in alive if not self._in_trained_model(key)}
        if not strangers:
            return
        if not self._searched:  # a walk through all objects, for optimizers that have not stepped yet
            self._searched = True
            self.scene.optimizers.find_unstepped()
            held = self._held()
        fresh = strangers - held - self._known.keys()
        if fresh and len(self._known) < _MOST:
            self._find(fresh, alive)
        self._follow(alive, held)

    def _held(self) -> set[int]:
        return set(self.scene.optimizers.rates())

    def _given(self, key: int) -> bool:
        ref = self._inputs.get(key)
        return ref is not None and ref() is not None

    def _in_trained_model(self, key: int) -> bool:
        """Return True if a watched model that an optimizer trains has registered it: other causes cover those."""
        owner = self.scene.params.by_id.get(key)
        if owner is None:
            return False
        rates = self.scene.optimizers.rates()
        return any(w.model == owner.model and other in rates for other, w in self.scene.params.by_id.items())

    def _find(self, wanted: set[int], alive: dict[int, tuple[Tensor, set[str]]]) -> None:
        hooks = self.scene.hooks
        names = {id(model.root): name_of(model.root) for model in self.scene.models.found}
        registered = {id(module) for module in hooks.modules.values()}
        from neuraldbg.capture.readers.loop.attribute_search import Search  # noqa: PLC0415 (few programs hide weights)

        for key, found in Search(wanted, registered).through(dict(hooks.modules.items()), names).items():
            leaf = alive[key][0]
            self._known[key] = Candidate(weakref.ref(leaf), found, self.scene.step, _sample(leaf))
        for key in wanted - self._known.keys():
            own = self._own_weight(key)
            if own is not None:
                leaf = alive[key][0]
                self._known[key] = Candidate(weakref.ref(leaf), own, self.scene.step, _sample(leaf))

    def _own_weight(self, key: int) -> Held | None:
        """Return the place of a weight that a module of the program's own class holds directly, in a model that is not
        trained.

        Such are the centres, proxies and temperatures of a loss. A fixed network of a loss has its weights in layers.
        """
        known = self.scene.params.by_id
        owner, modules = known.get(key), self.scene.hooks.modules
        if owner is None or any(_of_library(modules.get(w.layer)) for w in known.values() if w.model == owner.model):
            return None
        from neuraldbg.capture.readers.loop.attribute_search import Held  # noqa: PLC0415 (few programs hide weights)

        return Held(owner.name, owner.layer, owner.layer, owner.name.rpartition(".")[2], "model", owner.model, False)

    def _follow(self, alive: dict[int, tuple[Tensor, set[str]]], held: set[int]) -> None:
        for key, one in list(self._known.items()):
            leaf = one.ref()
            if leaf is None and self._went_with_its_model(one):
                continue
            if leaf is None or key in held or self._given(key):
                del self._known[key]
            elif key in alive:
                one.seen += 1
                one.feeds |= {layer if self._trains(layer) else "loss" for layer in alive[key][1]}
                one.moved = one.moved or (tensor_memory.present(leaf) and not torch.equal(_sample(leaf), one.before))
        self._tell()

    def _went_with_its_model(self, one: Candidate) -> bool:
        """Return True if a dead leaf was there for several readings, as a weight is and no leaf of one step, and a
        watched model has died, too.
        """
        return one.seen > 1 and any(model.gone for model in self.scene.models.found)

    def _trains(self, layer: str) -> bool:
        """Return True if a layer that a leaf feeds is part of a trained model."""
        known = self.scene.hooks.layers.get(layer)
        rates = self.scene.optimizers.rates()
        return known is not None and any(
            w.model == known.model and key in rates for key, w in self.scene.params.by_id.items()
        )

    def summarise(self) -> None:
        """Check once more if the tensors changed."""
        if self._known:
            if self._gaps:
                self.scene.optimizers.find_unstepped()
            held = self._held()
            self._follow({}, held)
            for one in self._known.values():
                leaf = one.ref()
                one.moved = one.moved or (tensor_memory.present(leaf) and not torch.equal(_sample(leaf), one.before))
            self._tell()

    def _tell(self) -> None:
        for one in self._known.values():
            leaf, held = one.ref(), one.held
            if leaf is None:
                continue
            one.told = {
                "name": held.name, "owner": held.owner, "layer": held.layer, "shape": list(leaf.shape), "how": held.how,
                "attribute": held.attribute, "holder": held.holder, "parameter": is_parameter(leaf),
                "lone": held.lone, "feeds": sorted(one.feeds), "seen": one.seen, "moved": one.moved, "first": one.first,
            }  # fmt: skip
        self.scene.log(FactKey.HIDDEN, {"weights": [one.told for one in self._known.values() if one.told]})


def _of_library(module: nn.Module | None) -> bool:
    return module is None or package_of(type(module)) in _LIBRARIES


def _sample(x: Tensor) -> Tensor:
    """Return a copy of evenly spaced values."""
    return operation.spaced(x.detach(), max(1, x.numel() // _SAMPLE), 2 * _SAMPLE).clone()


READER = Hidden
