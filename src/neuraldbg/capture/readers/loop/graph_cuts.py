"""The reader of cuts in the autograd graph, between the model and the loss or inside the model.

In steps whose facts are read, each call of a layer in a training pass is recorded: graph at its inputs and its output,
gradients on or off. The parameters with gradients are known after the step. A cut is where a layer that was never
reached is followed by one that is, and whose input has no graph although it comes from the first.

Backward passes whose graph reaches no parameter of any watched model are counted: a loss made again from a number
(``torch.tensor(loss.item(), requires_grad=True)``) has no graph at all.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import modules, own_parameters, training
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.capture.guest.user_code import Place
    from neuraldbg.capture.loop.forward_pass import Model
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.reader_context import Scene

_CALLS = 512
"""Calls of layers that are recorded per pass."""
_STRENGTH = ("next", "shape", "shared")


@dataclass(eq=False)
class Called:
    """One call of a layer that has parameters."""

    path: str
    grad: bool
    """True if gradients were on."""
    graph_in: bool
    """True if any input carried a graph."""
    graph_out: bool
    shape: tuple[int, ...]
    """Shape of the output."""
    output: weakref.ref[Tensor] | None
    cut_from: str | None = None
    """The layer whose output came in without its graph, None if there is none."""
    how: str = ""
    """Evidence for the cut: ``shared`` storage, equal ``shape``, or ``next`` in order; empty without a cut."""
    place: Place | None = None


class Cuts(Reader):
    """Follows the passes of the steps whose facts are read."""

    sampled = frozenset({"backward_begins", "call_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._calls: list[Called] = []
        self._given: set[int] = set()
        """Storages of the arguments of the current call, by address."""
        self._passes: list[tuple[Model, list[Called]]] = []
        self._outside: dict[str, Place | None] = {}
        """Layers of a model, or part of one, called with gradients off in this step, each with the user's line."""
        self._off: dict[str, Place | None] = {}
        self._joints: dict[str, tuple[str, str, str, Place | None]] = {}
        """By model: (layer before the cut, layer after it, evidence, line)."""
        self._output_graph: bool | None = None
        self._looked = self._dry = self._leaf = 0
        self._dry_place: Place | None = None
        self._dry_step = 0

    def backward_of_leaf(self, root: Tensor) -> None:
        """Count a backward pass of a tensor without a graph, unless the tensor is a known parameter."""
        if root.requires_grad and id(root) not in self.scene.params.by_id:
            self._looked += 1
            self._leaf += 1
            self._is_dry()

    def _is_dry(self) -> None:
        if not self._dry:
            self._dry_step, self._dry_place = self.scene.step, user_place()
        self._dry += 1

    def resumes(self) -> None:
        """Drop the passes of the step before."""
        self._calls, self._passes, self._outside = [], [], {}
        self.scene.hooks.trail = None

    def backward_begins(self, backward: Backward) -> None:
        """Check if this backward pass can reach any parameter of a watched model."""
        walk = backward.walk
        if walk is None or not backward.accumulates:
            return
        self._looked += 1
        known = self.scene.params.by_id
        if not any(key in known for key in walk.leaves) and not walk.edges and not walk.functions:
            self._is_dry()

    def call_begins(self, call: Call) -> None:
        """Start recording calls of layers, if facts are read."""
        self._calls = []
        hooks = self.scene.hooks
        if not self.scene.reading:
            hooks.trail = None
            return
        if not call.grad:
            self._without_gradients(call)
        elif not call.evaluating and training(call.module):
            self._given = {_storage(x) for _, x in leaves((call.args, call.kwargs))}
            hooks.trail = self._note

    def _without_gradients(self, call: Call) -> None:
        """Record a part of a model that the program calls with gradients off."""
        model = call.model
        trained = model.trained_in_train_mode or model.trained_in_eval_mode
        evaluation = not training(call.module) or (trained and call.module is model.root)
        if evaluation or len(self._outside) > _CALLS:
            return
        mine = {id(module) for module in modules(call.module)}
        place = user_place()
        for path, module in self.scene.hooks.modules.items():
            if id(module) in mine:
                self._outside[path] = place

    @guarded
    def _note(self, path: str, module: nn.Module, args: Any, output: Any) -> None:
        if len(self._calls) >= _CALLS or not own_parameters(module):
            return
        given = [x for _, x in leaves(args) if tensor_memory.floating(x)]
        made = next((x for _, x in leaves(output)), None)
        grad = torch.is_grad_enabled()
        graph_in = any(x.requires_grad for x in given)
        graph_out = made is not None and made.requires_grad
        shape = tensor_memory.shape_of(made) if made is not None else ()
        ref = weakref.ref(made) if made is not None else None
        one = Called(path, grad, graph_in, graph_out, shape, ref)
        if grad and given and not graph_in:
            self._find_cut(one, given[0])
        if not grad:
            one.place = user_place()
        self._calls.append(one)

    def _find_cut(self, one: Called, given: Tensor) -> None:
        """Find the layer whose output came in without its graph: in this model, or in the one called before."""
        if self._calls and _storage(given) in self._given:
            return  # an input of the model, not a result of a layer
        earlier = self._calls or (self._passes[-1][1] if self._passes else [])
        before = next((call for call in reversed(earlier) if call.graph_out), None)
        if before is None:
            return
        how = _kinship(before, given, earlier[-1] is before)
        if self._calls or how != "next":
            one.cut_from, one.how, one.place = before.path, how, user_place()

    def call_ends(self, call: Call, output: Any) -> None:
        """Keep the calls of a training pass until the reach of the loss is known."""
        if not self.scene.reading:
            return
        self.scene.hooks.trail = None
        calls, self._calls = self._calls, []
        if not call.grad:
            return
        self._output_graph = any(x.requires_grad for _, x in leaves(output))
        if calls and len(self._passes) < 16:
            self._passes.append((call.model, calls))

    def step_closes(self) -> None:
        """Log the cuts in this step's passes."""
        passes, self._passes = self._passes, []
        outside, self._outside = self._outside, {}
        if self.scene.reading and passes and self.scene.optimizers.streams:
            for path, place in outside.items():
                self._off.setdefault(path, place)
            for _, calls in passes:
                self._learn(calls)
            models = {id(model): model for model, _ in passes} | {id(m): m for m in self.scene.models.found if outside}
            for model in models.values():
                self._tell(model)
        if self._dry and self.scene.reading:
            self._tell_dry()

    def _learn(self, calls: list[Called]) -> None:
        layers = self.scene.hooks.layers
        for one in calls:
            if not one.grad:
                self._off.setdefault(one.path, one.place)
            if one.cut_from is not None and one.cut_from != one.path:
                model = layers[one.cut_from].model if one.cut_from in layers else ""
                known = self._joints.get(model)
                if known is None or _STRENGTH.index(one.how) > _STRENGTH.index(known[2]):
                    self._joints[model] = (one.cut_from, one.path, one.how, one.place)

    def _tell(self, model: Model) -> None:
        mine = [w for w in self.scene.params.by_id.values() if w.model == model.name and w.ref.requires_grad]
        held = self.scene.optimizers.rates()
        reached = {w.layer for w in mine if w.had_grad}
        anywhere = {w.layer for w in self.scene.params.by_id.values() if w.had_grad}
        unreached = [w.layer for w in mine if not w.had_grad and w.layer not in reached and w.key in held]
        if not unreached:
            cut: dict[str, Any] | None = None
            off: dict[str, Place | None] = {}
        else:
            joint = self._joints.get(model.name)
            off = {path: place for path, place in self._off.items() if path in unreached}
            cut = None
            if joint is not None and joint[0] in unreached and joint[1] in anywhere:
                cut = {"after": joint[0], "before": joint[1], "how": joint[2], "place": _told(joint[3])}
        value = {
            "model": model.name, "cut": cut, "no_grad": {path: _told(place) for path, place in off.items()},
            "reached": sorted(reached), "unreached": list(dict.fromkeys(unreached)),
        }  # fmt: skip
        self.scene.log(FactKey.CUTS, value)

    def summarise(self) -> None:
        """Log the number of backward passes that reached no parameter."""
        if self._dry:
            self._tell_dry()

    def _tell_dry(self) -> None:
        value = {
            "dry": self._dry, "backwards": self._looked, "leaf": self._leaf, "output_grad": self._output_graph,
            "place": _told(self._dry_place), "step": self._dry_step,
        }  # fmt: skip
        self.scene.log(FactKey.DRY, value)


def _kinship(before: Called, given: Tensor, adjacent: bool) -> str:
    """Return the evidence that a layer's input came from another layer's output."""
    output = before.output() if before.output is not None else None
    if output is not None and _storage(output) == _storage(given):
        return "shared"
    if adjacent and tensor_memory.shape_of(given) == before.shape and len(before.shape) > 1:
        return "shape"
    return "next"


def _storage(x: Tensor) -> int:
    held = tensor_memory.readable(x)
    return id(x) if held is None else held.untyped_storage().data_ptr()


def _told(place: Place | None) -> list[Any] | None:
    return list(place) if place is not None else None


READER = Cuts
