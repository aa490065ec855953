"""The reader of optimizer state and its loss: new optimizer objects, cleared state, checkpoints loaded in part."""

from __future__ import annotations

import statistics
import weakref
from collections import UserDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.capture.guest.module_tree import groups, state, tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import Identities, attributes, filled, is_a, item, items, label, sequence
from neuraldbg.capture.guest.tensor_kinds import readable
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_DEPTH = 3
_WIDTH = 64
_FILES = 4
"""Checkpoints that are followed."""
_NUMBERS = 8


@dataclass(eq=False)
class Line:
    """The optimizers that trained the same tensors one after the other."""

    stream: int
    ids: frozenset[int]
    opt: weakref.ref[Optimizer]
    type: str
    steps: int = 0
    since: int = 0
    """Steps since the optimizer's state was last lost."""
    version: tuple[int, int] | None = None
    """(identity, version) of one tensor after the last step: equal values mean that training went on from there."""
    lr: float | None = None
    had_state: bool = False
    remade: int = 0
    emptied: int = 0
    first: int | None = None
    same_lr: bool = True
    lengths: list[int] = field(default_factory=list)
    whole: bool = True
    """True if every step since the optimizer's state was last lost was seen."""


@dataclass(eq=False)
class Checkpoint:
    """A file that holds an optimizer's state: its keys, no data."""

    where: str
    states: int
    keys: list[str]
    lr: float | None
    numbers: dict[str, float]
    weights: list[weakref.ref[Tensor]]
    """One tensor of each dictionary of weights in it."""
    model_loaded: int | None = None


class OptimizerState(Reader):
    """Reads the MEMORY fact and the RESUME fact."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._lines: list[Line] = []
        self._current: dict[int, Line] = {}
        self._files: list[Checkpoint] = []
        self._given: Identities[Optimizer, bool] = Identities()
        self._gave = self._given_steps = False

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the functions that load files, models and optimizers."""
        return [
            (torch, "load", self._loads),
            (torch.serialization, "load", self._loads),
            (nn.Module, "load_state_dict", self._loads_model),
            (Optimizer, "load_state_dict", self._loads_optimizer),
        ]

    def _loads(self, *_: Any, **__: Any) -> Around:
        found = yield
        if self.scene.switch.in_full_step():
            self.seen(self._look_into, found)

    def _loads_model(self, module: Any, state_dict: Any, *_: Any, **__: Any) -> Around:
        del module
        if self.scene.switch.in_full_step() and self._files:
            self.seen(self._weights_loaded, state_dict)
        yield

    def _loads_optimizer(self, opt: Any, *_: Any, **__: Any) -> Around:
        if self.scene.switch.in_full_step():
            self.seen(self._state_loaded, opt)
        yield

    def _state_loaded(self, opt: Any) -> None:
        self._gave = True
        self._given.add(opt)
        self._given_steps |= any(line.opt() is opt for line in self._lines)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _look_into(self, found: Any) -> None:
        if not is_a(found, (dict, UserDict)) or len(self._files) >= _FILES:
            return
        weights: list[weakref.ref[Tensor]] = []
        best: tuple[str, dict[str, Any]] | None = None
        for _, opt in _optimizers(found):  # whole objects, which may continue as they are
            self._given.add(opt)
        for where, part in _mappings(found):
            if is_a(part.get("state"), dict) and is_a(part.get("param_groups"), (list, tuple)):
                if filled(part["state"]) and (best is None or _size(part["state"]) > _size(best[1]["state"])):
                    best = (where, part)
            else:
                first = next((v for v in part.values() if is_a(v, Tensor) and readable(v) and v.numel() > 1), None)
                if first is not None and not where.startswith(("optim", "state", "sched")):
                    weights.append(weakref.ref(first))
        if best is None or not weights:
            return
        where, part = best
        keys = {label(k) for _, state in list(items(part["state"]))[:1] for k, _ in items(state)}
        rates = (number(item(group, "lr")) for group in sequence(part["param_groups"]))
        lr = next((rate for rate in rates if rate is not None), None)
        plain = {label(k): v for k, v in items(found) if type(v) in (int, float)}
        numbers = {k: float(v) for k, v in list(plain.items())[:_NUMBERS] if v == v and abs(v) < 1e300}  # noqa: PLR0124
        self._files.append(Checkpoint(where, _size(part["state"]), sorted(keys)[:8], lr, numbers, weights))

    def _weights_loaded(self, state_dict: Any) -> None:
        values = {id(v) for _, v in items(state_dict) if is_a(v, Tensor)}
        for file in self._files:
            if file.model_loaded is None and any(id(ref()) in values for ref in file.weights if ref() is not None):
                file.model_loaded = self.scene.step

    # -- the life of optimizers ---------------------------------------------------------------------------------

    def resumes(self) -> None:
        """Handle a gap: the age of each optimizer's state is not known."""
        for line in self._lines:
            line.whole = False

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Detect an optimizer that is new, or whose state was cleared."""
        line = self._current.get(stream.index)
        if line is None or line.opt() is not opt:
            line = self._current[stream.index] = self._follow(stream, opt)
        elif line.had_state and not filled(state(opt)):
            line.emptied += 1
            self._forgot(line)

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """Record the state after the step, and the version of the first tensor."""
        line = self._current.get(stream.index)
        if line is None:
            return
        line.steps += 1
        line.since += 1
        line.had_state = filled(state(opt))
        line.lr = stream.lr
        line.version = _version(opt)

    def _follow(self, stream: Stream, opt: Optimizer) -> Line:
        """Return the line of optimizers that a new object continues, or a new line."""
        ids = frozenset(id(t) for t in tensors(opt))
        if opt in self._given:
            self._gave = self._given_steps = True
        before = next((one for one in self._lines if one.ids == ids and one.type == stream.type), None)
        if before is None:
            line = Line(stream.index, ids, weakref.ref(opt), stream.type)
            self._lines.append(line)
            return line
        # Weights that were written to since then (loaded, initialised again) begin a new training: a client, a fold.
        if before.had_state and before.version == _version(opt) and opt not in self._given:
            before.remade += 1
            before.same_lr &= stream.lr == before.lr
            self._forgot(before)
        before.since, before.opt, before.whole = 0, weakref.ref(opt), True
        return before

    def _forgot(self, line: Line) -> None:
        if line.first is None:
            line.first = self.scene.step
        if line.whole and len(line.lengths) < 256:
            line.lengths.append(line.since)
        line.since, line.whole = 0, True

    # -- facts --------------------------------------------------------------------------------------------------

    def step_closes(self) -> None:
        """Log in steps whose facts are read, for a run that is killed."""
        if self.scene.reading:
            self.summarise()

    def summarise(self) -> None:
        """Log the losses of state."""
        for line in self._lines:
            if line.remade or line.emptied:
                seldom = self.scene.step // (line.remade + line.emptied)  # if no interval was seen whole
                every = int(statistics.median(line.lengths or [seldom]))
                value = {
                    "stream": line.stream, "type": line.type, "stateful": True, "steps": line.steps,
                    "remade": line.remade, "emptied": line.emptied, "every": every, "first": line.first,
                    "same_lr": line.same_lr,
                }  # fmt: skip
                self.scene.log(FactKey.MEMORY, value)
        for place, file in enumerate(self._files):
            value = {
                "id": place, "where": file.where, "states": file.states, "keys": file.keys, "lr": file.lr,
                "numbers": file.numbers, "model_loaded": file.model_loaded, "optimizer_loaded": self._gave,
                "loaded_steps": self._given_steps,
            }  # fmt: skip
            self.scene.log(FactKey.RESUME, value)


def _mappings(value: Any, where: str = "", depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a dict, and the dicts in it, as plain ones with text keys."""
    held = {label(key): part for key, part in items(value)}
    yield where, held
    if depth == _DEPTH or "param_groups" in held:
        return
    for name, opt in _optimizers(value):
        yield f"{where}.{name}" if where else name, {"state": state(opt), "param_groups": groups(opt)}
    for key, part in list(held.items())[:_WIDTH]:
        first = next(iter(sequence(part)), part) if is_a(part, (list, tuple)) else part  # Lightning keeps a list
        if is_a(first, (dict, UserDict)):
            yield from _mappings(first, f"{where}.{key}" if where else key, depth + 1)


def _optimizers(value: Any) -> Iterator[tuple[str, Optimizer]]:
    """Yield optimizers that were saved as objects: themselves, or inside an object of the program's."""
    for key, part in list(items(value))[:_WIDTH]:
        if is_a(part, Optimizer):
            yield label(key), part
        elif not is_a(part, (Tensor, nn.Module, dict, UserDict)):
            held = list(attributes(part).items())
            yield from ((f"{label(key)}.{name}", opt) for name, opt in held if is_a(opt, Optimizer))


def _size(state: Any) -> int:
    return sum(1 for _ in items(state))


def _version(opt: Optimizer) -> tuple[int, int] | None:
    """Return identity and version of the first trained tensor, None if none has a gradient."""
    found = next((t for t in tensors(opt) if t.grad is not None), None)
    return (id(found), found._version) if found is not None else None  # noqa: SLF001


READER = OptimizerState
