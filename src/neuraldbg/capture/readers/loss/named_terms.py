"""The reader of a loss's summands by their names: value, and whether they have a graph.

A summand that is a number when ``backward`` is called, as one that went through ``.item()``, ``detach()``, a comparison
or numpy, is added to the loss and trains nothing; the graph of the loss does not hold it. So the variables of the
function that calls ``backward`` are read, in steps whose facts are read, and no tensor of them is kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.autograd.graph_walk import SHAPE_ONLY, op_name, parents
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.guest.user_code import Place, user_frame, user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.guest.loss_summands import Summand
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene

_MOST = 16
"""Summands that are followed."""
_SUMS, _THROUGH, _DEEP = frozenset({"add", "sub", "rsub"}), SHAPE_ONLY | {"mul", "div", "neg", "mean", "sum"}, 8
"""Operations that add, those that a sum goes through up to the loss, and how many of them at most."""


@dataclass(eq=False)
class _Term:
    """One summand over the readings."""

    name: str
    place: list[Any] | None
    read: int = 0
    graph: int = 0
    """Readings in which it had a graph."""
    changes: int = 0
    """Readings in which it had another value than the time before."""
    low: float | None = None
    high: float | None = None
    last: float | None = None


class NamedTerms(Reader):
    """Reads the variables that a loss is the sum of."""

    sampled = frozenset({"backward_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._lines: dict[tuple[str, int], list[Summand]] = {}
        """Summands by file and line of the backward pass."""
        self._terms: dict[tuple[str, int, str], _Term] = {}
        self._due = 3
        """Readings from which on the terms are logged."""

    def backward_begins(self, backward: Backward) -> None:
        """Read the summands of the loss that is differentiated."""
        if not backward.accumulates or not _is_sum(node_of(backward.root)):
            return
        place = user_place()
        if place is None:
            return
        line = place.file, place.line
        if line not in self._lines:
            self._lines[line] = self._summands(place)
        wanted = self._lines[line]
        frame = user_frame() if wanted else None
        if frame is None:
            return
        names = {name for names in wanted for name in names}
        values = {name: value for name, value in variables_of(frame) if name in names}
        for group in wanted:
            plain = len(group) == 1 and type(values.get(group[0])) is float
            terms = [name for name in group if plain or _is_term(values.get(name))]
            factors = [values.get(name) for name in group if name not in terms]
            if len(terms) == 1 and all(type(one) in (int, float) for one in factors):
                self._read(place, terms[0], values[terms[0]])

    def _read(self, place: Place, name: str, value: Any) -> None:
        key = place.file, place.line, name
        if key not in self._terms:
            if len(self._terms) == _MOST:
                return
            self._terms[key] = _Term(name, list(place))
        one = self._terms[key]
        now = float(value.detach()) if is_a(value, Tensor) else float(value)
        one.read += 1
        one.graph += bool(is_a(value, Tensor) and value.requires_grad)
        one.changes += one.last is not None and now != one.last
        one.last = now
        if abs(now) < float("inf"):  # False for NaN
            one.low = now if one.low is None else min(one.low, now)
            one.high = now if one.high is None else max(one.high, now)

    def _summands(self, place: Place) -> list[Summand]:
        from neuraldbg.capture.guest.loss_summands import summands  # noqa: PLC0415 (a session is imported without it)

        return summands(self.scene.source(place.file), place.line)

    def step_closes(self) -> None:
        """Log the terms whenever the readings have doubled."""
        if max((one.read for one in self._terms.values()), default=0) >= self._due:
            self._due *= 2
            self._log()

    def summarise(self) -> None:
        """Log the terms."""
        if self._terms:
            self._log()

    def _log(self) -> None:
        told = [asdict(one) for one in self._terms.values()]
        for each in told:
            del each["last"]
        self.scene.log(FactKey.TERMS, {"terms": told})


def _is_sum(root: Node | None) -> bool:
    """Return True if a loss is a sum, maybe scaled or averaged: of no other a file has to be parsed."""
    for _ in range(_DEEP):
        if root is None or op_name(root) in _SUMS:
            return root is not None
        if op_name(root) not in _THROUGH:
            return False
        root = next((parent for parent, _ in parents(root)), None)
    return False


def _is_term(value: object) -> bool:
    """Return True for a real tensor of one element: a summand, and no factor, which is a plain number."""
    held = tensor_memory.readable(value) if is_a(value, Tensor) else None
    return held is not None and not held.is_complex() and held.numel() == 1


READER = NamedTerms
