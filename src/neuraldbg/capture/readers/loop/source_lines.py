"""The reader of the user's lines at which a step happens, so that a diagnosis can point at them.

Read with facts: the lines that call models, call backward passes, create and step optimizers, create schedulers, and
the code of the function that calls a backward pass, of its callers and of those that they name, such as one that
computes the loss. From
the line of a backward pass the source is searched, once, for the lines that compute its loss (``source_trace.py``), and
from the classes of a model for those that create its layers (``layer_lines.py``): autograd keeps no line of what it
records, and a patch of every loss function would cost every step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from neuraldbg.capture.guest.module_tree import walk
from neuraldbg.capture.guest.program_objects import Identities
from neuraldbg.capture.guest.source_code import step_code
from neuraldbg.capture.guest.source_trace import Trace
from neuraldbg.capture.guest.user_code import Place, user_place
from neuraldbg.capture.layers.layer_lines import layer_lines
from neuraldbg.capture.layers.layer_names import wraps
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_NEAR = {
    "softmax": frozenset({"softmax", "Softmax", "softmax_"}),
    "sigmoid": frozenset({"sigmoid", "Sigmoid", "sigmoid_"}),
}
"""Functions and layers whose line is searched for on the way to the loss, by kind."""
_SETTLED = 50
"""Step from which on the source is searched during the training: that takes some milliseconds, which a run of a few
steps would feel. A shorter run is searched at its end, a killed one of that length has no such lines."""
_MOST = 4
"""Lines of one kind that are kept: a GAN has two of each, a library that is no package may have many."""


class Places(Reader):
    """Collects the lines of each kind in order of appearance."""

    sampled = frozenset({"backward_begins", "call_begins", "step_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._lines: dict[str, dict[Place, None]] = {}
        self._made: Identities[Optimizer, Place] = Identities()
        self._differentiated: dict[Place, None] = {}
        """Lines of this step's backward passes: the loss of the optimizer that steps next."""
        self._applied: set[str] = set()
        """Functions on the way to a loss, from the graphs of the losses seen so far."""
        self._traced: set[object] = set()
        """Backward lines and models that were searched already."""
        self._losses: dict[Place, dict[Place, None]] = {}
        """Lines that compute the losses of each backward line."""
        self._codes: set[CodeType] = set()
        """The functions whose lines were read."""

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the constructors of optimizers and schedulers."""
        return [
            (Optimizer, "__init__", functools.partial(self._makes, self._made.__setitem__)),
            (LRScheduler, "__init__", functools.partial(self._makes, lambda _, at: self._keep("scheduler", at))),
        ]

    def _makes(self, note: Callable[[Any, Place], None], made: Any, *_: Any, **__: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._note_made, note, made)

    def _note_made(self, note: Callable[[Any, Place], None], made: Any) -> None:
        place = user_place()
        if place is not None:
            note(made, place)

    def call_begins(self, call: Call) -> None:
        """Record the line that calls a model, to train it or to evaluate it."""
        self._note("evaluation" if call.evaluating else "forward")

    def backward_begins(self, backward: Backward) -> None:
        """Record the line that differentiates a loss."""
        if backward.accumulates:
            place = self._note("backward")
            if place is not None:
                self._differentiated[place] = None
            for term in backward.terms or ():
                self._applied.update(term.get("chain") or ())
            if self.scene.reading:
                for kind, places in step_code(self._codes).items():
                    self._lines[kind] = dict.fromkeys(places)

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Record the line where an optimizer steps, the one where it was made, and those of its loss."""
        self._note("step")
        if self.scene.reading and self._differentiated:
            self._lines.setdefault(f"backward {stream.index}", dict(self._differentiated))
        if self.scene.reading and opt in self._made:
            self._keep("optimizer", self._made.get(opt))

    def step_closes(self) -> None:
        """Log the lines."""
        self._differentiated.clear()
        if self.scene.reading and self._lines:
            if self.scene.step >= _SETTLED:
                self._trace()
            self._tell()

    def summarise(self) -> None:
        """Search the source, if the run was too short for that, and log the lines."""
        if self._lines:
            self._trace()
            self._tell()

    def _trace(self) -> None:
        self._trace_losses()
        self._trace_layers()

    def _tell(self) -> None:
        told = {kind: [list(place) for place in places] for kind, places in self._lines.items()}
        self.scene.log(FactKey.PLACES, told)

    def _trace_losses(self) -> None:
        """Search the source for the lines that compute the losses of the backward passes seen so far."""
        for place in list(self._lines.get("backward", ())):
            if place in self._traced:
                continue
            self._traced.add(place)
            source = self.scene.source(place.file)
            trace = Trace(source)
            made = trace.losses(place.line)
            for value in made:
                at = source.place(value)
                self._keep("loss", at)
                self._losses.setdefault(place, {})[at] = None
            for kind, names in _NEAR.items():
                call = trace.nearest(made, names) if kind in self._applied else None
                if call is not None:
                    self._keep(kind, source.place(call))
        for kind in [kind for kind in self._lines if kind.startswith("backward ")]:
            found = {at: None for place in self._lines[kind] for at in self._losses.get(place, ())}
            if found:
                self._lines[f"loss {kind.removeprefix('backward ')}"] = found

    def _trace_layers(self) -> None:
        """Search the source for the lines that create the layers of the models seen so far."""
        caller = next(iter(self._lines.get("forward", ())), None)
        for model in self.scene.models.found:
            if caller is None or model.name in self._traced or model.gone:
                continue
            self._traced.add(model.name)
            path_of = {id(module): path for path, module in self.scene.hooks.modules.items()}
            root = wraps(model.root)
            below = dict(walk(root))
            for path, place in layer_lines(root, self.scene.source, caller.file).items():
                known = path_of.get(id(below.get(path)))
                if known is not None:
                    self._lines[f"layer {known}"] = {place: None}

    def _note(self, kind: str) -> Place | None:
        """Record the user's line that runs now, and return it; None if nothing is read or there is no such line."""
        place = user_place() if self.scene.reading else None
        if place is not None:
            self._keep(kind, place)
        return place

    def _keep(self, kind: str, place: Place) -> None:
        places = self._lines.setdefault(kind, {})
        if place in places or len(places) < _MOST:
            places[place] = None


READER = Places
