"""The reader of cuts in the autograd graph, between the model and the loss or inside the model.

In steps whose facts are read, each call of a layer in a training pass is recorded: graph at its inputs and its output,
gradients on or off. The parameters with gradients are known after the step. A cut is where a layer that was never
reached is followed by one that is, and whose input has no graph although it comes from the first.

Backward passes whose graph reaches no parameter of any watched model are counted: a loss made again from a number
(``torch.tensor(loss.item(), requires_grad=True)``) has no graph at all.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.graph_ends import GraphEnds
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import modules, own_parameters, tensors, training
from neuraldbg.capture.guest.source_trace import Source
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from neuraldbg.capture.guest.user_code import Place
    from neuraldbg.capture.loop.forward_pass import Model
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

_PASSES, _OUTPUTS = 16, 4
"""Passes of a step, and outputs of each, that are recorded."""
_CALLS = 512
"""Calls of layers that are recorded per pass."""
_STRENGTH = ("next", "shape", "shared")
_SETTLED = 50
"""Step from which on the source is searched during the training: that takes some milliseconds, which a run of a few
steps would feel. A shorter run is searched at its end."""


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


@dataclass(eq=False)
class _Pass:
    """One training pass of a model."""

    model: Model
    calls: list[Called]
    outputs: list[StorageWeakRef] = field(default_factory=list)
    """Memory of the outputs, by which a detached view of one is known."""


@dataclass(frozen=True)
class _Joint:
    """A layer whose output the next one gets without its graph."""

    before: str
    after: str
    how: str
    place: Place | None
    own: bool
    """True if the optimizer that stepped next holds weights of the layer before: for that step the cut is no choice."""

    @property
    def rank(self) -> tuple[int, bool]:
        """The evidence that it is a cut, and that it is the guilty one of several."""
        return _STRENGTH.index(self.how), self.own


class Cuts(Reader):
    """Follows the passes of the steps whose facts are read."""

    sampled = frozenset({"backward_begins", "call_ends", "step_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._calls: list[Called] = []
        self._given: set[int] = set()
        """Storages of the arguments of the current call, by address."""
        self._called_at: Place | None = None
        """The user's line that calls the current model."""
        self._passes: list[_Pass] = []
        self._earlier: list[_Pass] = []
        """Passes of the step before: a generator is often called once for the steps of both optimizers."""
        self._held: set[int] = set()
        """Tensors of the optimizers that stepped in this step, by identity."""
        self._outside: dict[str, Place | None] = {}
        """Layers of a model, or part of one, called with gradients off in this step, each with the user's line."""
        self._off: dict[str, Place | None] = {}
        self._joints: dict[str, _Joint] = {}
        """The strongest cut behind a layer of each model, by the model's name."""
        self._ends: dict[Place, Place | None] = {}
        """Lines that end the graph of what is called on a line, as far as they were searched for."""
        self._modes: dict[Place, Place | None] = {}
        """Lines that switch gradients off around a line, likewise."""
        self._output_graph: bool | None = None
        self._looked = self._dry = self._leaf = 0
        self._dry_place: Place | None = None
        self._ending = False
        """True from the first question about the whole run on."""
        self._found: dict[str, tuple[dict[str, Any] | None, dict[str, Place | None], dict[str, Any]]] = {}
        """The last findings about each model, by its name: the cut, the layers without gradients, the rest."""
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
        self._calls, self._passes, self._earlier, self._outside = [], [], [], {}
        self._held = set()
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
            self._called_at = user_place()
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
        if not self._calls:
            self._find_model_before(one, given)
            return
        before = next((call for call in reversed(self._calls) if call.graph_out), None)
        if before is not None:
            how = _kinship(before, given, self._calls[-1] is before)
            one.cut_from, one.how, one.place = before.path, how, user_place()

    def _find_model_before(self, one: Called, given: Tensor) -> None:
        """Find the model whose output came in without its graph: the one of that memory, else the one called before."""
        memory = _memory(given)
        known = [*self._earlier, *self._passes]
        before, how = None, ""
        for done in reversed(known):
            if memory is not None and any(memory == output and not output.expired() for output in done.outputs):
                before, how = _last_with_graph(done), "shared"
                break
        if before is None and self._passes:
            before = _last_with_graph(self._passes[-1])
            how = _kinship(before, given, self._passes[-1].calls[-1] is before) if before is not None else ""
        if before is not None and how != "next":
            one.cut_from, one.how, one.place = before.path, how, self._called_at

    def call_ends(self, call: Call, output: Any) -> None:
        """Keep the calls of a training pass until the reach of the loss is known."""
        if not self.scene.reading:
            return
        self.scene.hooks.trail = None
        calls, self._calls = self._calls, []
        if not call.grad:
            return
        made = [x for _, x in leaves(output)]
        self._output_graph = any(x.requires_grad for x in made)
        if calls and len(self._passes) < _PASSES:
            outputs = [memory for x in made[:_OUTPUTS] if x.requires_grad and (memory := _memory(x)) is not None]
            self._passes.append(_Pass(call.model, calls, outputs))

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Record the tensors of the optimizer that is about to step."""
        del stream
        self._held |= {id(x) for x in tensors(opt)}

    def step_closes(self) -> None:
        """Log the cuts in this step's passes."""
        passes, self._passes = self._passes, []
        self._earlier = passes
        outside, self._outside = self._outside, {}
        if self.scene.reading and passes and self.scene.optimizers.streams:
            for path, place in outside.items():
                self._off.setdefault(path, place)
            mine = {w.layer for w in self.scene.params.by_id.values() if w.key in self._held}
            for done in passes:
                self._learn(done.calls, mine)
            models = {id(done.model): done.model for done in passes}
            for model in (models | {id(m): m for m in self.scene.models.found if outside}).values():
                self._tell(model)
        self._held = set()
        if self._dry and self.scene.reading:
            self._tell_dry()

    def _learn(self, calls: list[Called], held: set[str]) -> None:
        layers = self.scene.hooks.layers
        for one in calls:
            if not one.grad:
                self._off.setdefault(one.path, one.place)
            if one.cut_from is not None and one.cut_from != one.path:
                model = layers[one.cut_from].model if one.cut_from in layers else ""
                joint = _Joint(one.cut_from, one.path, one.how, one.place, one.cut_from in held)
                known = self._joints.get(model)
                if known is None or joint.rank > known.rank:
                    self._joints[model] = joint

    def _tell(self, model: Model) -> None:
        mine = [w for w in self.scene.params.by_id.values() if w.model == model.name and w.ref.requires_grad]
        held = self.scene.optimizers.rates()
        reached = {w.layer for w in mine if w.had_grad}
        anywhere = {w.layer for w in self.scene.params.by_id.values() if w.had_grad}
        unreached = [w.layer for w in mine if not w.had_grad and w.layer not in reached and w.key in held]
        lost = _lost(mine, set(held))
        gone = {*unreached, *lost}
        if not gone:
            cut: dict[str, Any] | None = None
            off: dict[str, Place | None] = {}
        else:
            joint = self._joints.get(model.name)
            off = {path: place for path, place in self._off.items() if path in gone}
            cut = None
            if joint is not None and joint.before in gone and joint.after in anywhere and joint.after not in gone:
                cut = {"after": joint.before, "before": joint.after, "how": joint.how, "place": joint.place}
        rest = {"reached": sorted(reached), "unreached": list(dict.fromkeys(unreached)), "lost": lost}
        self._found[model.name] = cut, off, rest
        self._log(model.name)

    def _log(self, model: str) -> None:
        """Log the last findings about a model, with the lines of the source if they can be searched for now."""
        cut, off, rest = self._found[model]
        if cut is not None:
            cut = {**cut, "place": _told(cut["place"]), "end": _told(self._end(cut["place"]))}
        no_grad = {path: _told(self._switch(place)) for path, place in off.items()}
        self.scene.log(FactKey.CUTS, {"model": model, "cut": cut, "no_grad": no_grad, **rest})

    def _end(self, place: Place | None) -> Place | None:
        """Return the line that ends the graph of what is called on a line; None if it is not known, or not yet."""
        if place is not None and place not in self._ends and self._searches:
            self._ends[place] = GraphEnds(Source(place.file)).before(place.line)
        return self._ends.get(place) if place is not None else None

    def _switch(self, place: Place | None) -> Place | None:
        """Return the line that switches gradients off around a line, or the line itself."""
        if place is not None and place not in self._modes and self._searches:
            self._modes[place] = GraphEnds(Source(place.file)).switched_off(place.line)
        return place if place is None else self._modes.get(place) or place

    @property
    def _searches(self) -> bool:
        return self._ending or self.scene.step >= _SETTLED

    def summarise(self) -> None:
        """Log the cuts with the lines that were not searched for in a short run, and the number of backward passes that
        reached no parameter.
        """
        searched, self._ending = self._searches, True
        for model, (cut, off, _) in self._found.items():
            if (cut is not None or off) and not searched:
                self._log(model)
        if self._dry:
            self._tell_dry()

    def _tell_dry(self) -> None:
        value = {
            "dry": self._dry, "backwards": self._looked, "leaf": self._leaf, "output_grad": self._output_graph,
            "place": _told(self._dry_place), "step": self._dry_step,
        }  # fmt: skip
        self.scene.log(FactKey.DRY, value)


def _lost(mine: list[Watched], held: set[int]) -> list[str]:
    """Return the layers that an optimizer holds, and that got gradients before, but none in this step, in which others
    did.
    """
    now = {w.layer for w in mine if w.ref.grad is not None}
    return list(dict.fromkeys(w.layer for w in mine if now and w.had_grad and w.layer not in now and w.key in held))


def _kinship(before: Called, given: Tensor, adjacent: bool) -> str:
    """Return the evidence that a layer's input came from another layer's output."""
    output = before.output() if before.output is not None else None
    if output is not None and _storage(output) == _storage(given):
        return "shared"
    if adjacent and tensor_memory.shape_of(given) == before.shape and len(before.shape) > 1:
        return "shape"
    return "next"


def _last_with_graph(done: _Pass) -> Called | None:
    return next((call for call in reversed(done.calls) if call.graph_out), None)


def _memory(x: Tensor) -> StorageWeakRef | None:
    """Return a weak reference to the memory of a tensor; None if it has none of its own."""
    held = tensor_memory.readable(x)
    return None if held is None else StorageWeakRef(held.untyped_storage())


def _storage(x: Tensor) -> int:
    held = tensor_memory.readable(x)
    return id(x) if held is None else held.untyped_storage().data_ptr()


def _told(place: Place | None) -> list[Any] | None:
    return list(place) if place is not None else None


READER = Cuts
