"""The reader of what each summand of a loss reaches: the parameters of which optimizer.

In the graph of a loss its summands are found from the top: what is added, scaled by a number, or negated. Each is
walked down to its parameters. The optimizer that steps first after the backward pass is the one that the loss is for;
a summand that reaches none of its tensors trains nothing there, as the adversarial term of a generator whose images
were detached, which reaches the discriminator alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.autograd.graph_walk import op_name, parents
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.module_tree import tensors
from neuraldbg.capture.guest.program_objects import attributes, is_a
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.guest.user_code import Place, user_frame, user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene

_SUMMANDS, _LIMIT = 8, 20_000
"""Summands of a loss, and nodes of the graph of one, that are walked at most."""
_SCALES = frozenset({"mul", "div"})
_SUMS = frozenset({"add", "sub", "neg"})
_LINES = 16
_NAMES = 256


@dataclass(eq=False)
class _Summand:
    """One summand of the loss of one line, over the readings."""

    name: str
    place: Place
    read: int = 0
    hits: int = 0
    """Readings in which it reached a tensor of the optimizer that stepped first."""
    stream: int = -1
    """That optimizer."""
    reached: set[int] = field(default_factory=set)
    """Optimizers whose tensors it reached."""


class TermReach(Reader):
    """Compares what the summands of a loss reach with the optimizer that steps next."""

    sampled = frozenset({"backward_begins", "step_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._waiting: list[tuple[tuple[Any, ...], str, Place, set[int]]] = []
        """Summands since the last step: key, name, line of the backward pass, and the leaves that they reach."""
        self._line: Place | None = None
        """Line of the newest backward pass without a step since."""
        self._owners: dict[int, int] = {}
        """Optimizers by the identity of their tensors."""
        self._first: dict[tuple[str, int], set[int]] = {}
        """Optimizers that stepped first after the backward pass of a line."""
        self._following: set[int] = set()
        """Optimizers that once stepped without a backward pass since the step before, on what that had left."""
        self._found: dict[tuple[Any, ...], _Summand] = {}
        self._due = 3

    def resumes(self) -> None:
        """Forget backward passes whose steps were not seen."""
        self._waiting, self._line = [], None

    def backward_begins(self, backward: Backward) -> None:
        """Walk the summands of a loss, where there are several optimizers."""
        place = user_place() if backward.accumulates else None
        root = node_of(backward.root)
        if place is None or root is None:
            return
        self._line = place
        if len(self.scene.optimizers.streams) < 2:
            return
        nodes = _summands(root)
        if len(nodes) < 2 or len(self._first) > _LINES:
            return
        names = _names(nodes)
        for at, node in enumerate(nodes):
            reached = _leaves(node)
            if reached is None:
                return
            name = names.get(at, "")
            self._waiting.append(((place.file, place.line, at, len(nodes)), name, place, reached))

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Compare the summands since the last step with the tensors of the optimizer that steps first after them."""
        mine = {id(x) for x in tensors(opt)}
        self._owners = {each: of for each, of in self._owners.items() if of != stream.index}
        self._owners.update(dict.fromkeys(mine, stream.index))
        if self._line is None:
            self._following.add(stream.index)
        else:
            self._first.setdefault((self._line.file, self._line.line), set()).add(stream.index)
        for key, name, place, reached in self._waiting:
            one = self._found.setdefault(key, _Summand(name, place))
            one.name = one.name or name
            one.read += 1
            one.hits += bool(reached & mine)
            one.stream = stream.index
            one.reached |= {self._owners[each] for each in reached if each in self._owners}
        self._waiting, self._line = [], None

    def step_closes(self) -> None:
        """Log the summands whenever the readings have doubled."""
        if max((one.read for one in self._found.values()), default=0) >= self._due:
            self._due *= 2
            self._log()

    def summarise(self) -> None:
        """Log the summands."""
        if self._found:
            self._log()

    def _log(self) -> None:
        told = [
            {
                "name": one.name, "place": list(one.place), "stream": one.stream, "read": one.read, "hits": one.hits,
                "reached": sorted(one.reached),
                "own": sorted(each for each in one.reached if self._has_its_own(each, one.place)),
            }
            for one in self._found.values()
        ]  # fmt: skip
        self.scene.log(FactKey.REACH, {"summands": told[: 2 * _SUMMANDS]})

    def _has_its_own(self, stream: int, but: Place) -> bool:
        """Return True if an optimizer steps first after a backward pass on another line, and never without one."""
        if stream in self._following:
            return False
        return any(stream in first for line, first in self._first.items() if line != (but.file, but.line))


def _summands(root: Node) -> list[Node]:
    """Return the nodes that a loss is the sum of; [] if there are too many."""
    found: list[Node] = []
    todo = [root]
    while todo:
        node = todo.pop(0)
        below = [parent for parent, _ in parents(node)]
        if op_name(node) in _SUMS or (op_name(node) in _SCALES and len(below) == 1):
            todo = below + todo
        else:
            found.append(node)
        if len(found) + len(todo) > _SUMMANDS:
            return []
    return found


def _leaves(node: Node) -> set[int] | None:
    """Return the identities of the tensors that a node's graph ends in; None if it is too large."""
    found: set[int] = set()
    seen: set[Node] = {node}
    todo = [node]
    while todo:
        one = todo.pop()
        if op_name(one) == "accumulategrad":
            found.add(id(one.variable))
        for parent, _ in parents(one):
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
        if len(seen) > _LIMIT:
            return None
    return found


def _names(nodes: list[Node]) -> dict[int, str]:
    """Return the names that summands have in the user's function, by their places in the list."""
    frame = user_frame()
    found: dict[int, str] = {}
    if frame is None:
        return found
    variables = variables_of(frame)
    mine = next((value for name, value in variables if name == "self"), None)
    held = (
        [(f"self.{name}", value) for name, value in list(attributes(mine).items())[:_NAMES]] if mine is not None else []
    )
    for name, value in (*variables, *held):
        one_number = tensor_memory.readable(value) if is_a(value, Tensor) else None
        node = node_of(value) if one_number is not None and one_number.numel() == 1 and is_a(value, Tensor) else None
        if node is not None:
            for at, one in enumerate(nodes):
                if one is node:
                    found.setdefault(at, name)
    return found


READER = TermReach
