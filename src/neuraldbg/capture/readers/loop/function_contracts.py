"""The reader of broken contracts: calls of torch's functions whose arguments mean something else than they expect.

In steps whose facts are read, calls of the functions in ``capture/contracts`` are checked before they run, and
operations in the graph of the loss before it is freed. A check reads a sample of the values and changes nothing. The
user's line is looked up only where something is broken.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.contracts import CONTRACTS, nodes
from neuraldbg.capture.contracts.loading import OWN
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.contracts import Breach, Contract
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.guest.user_code import Place
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_KEPT = 32
"""Broken contracts that are kept."""
_STATES = 64
"""States that are remembered."""
_CALLS = 64
"""Calls of one function that are checked in a step at most: an agent calls its policy a thousand times."""


@dataclass(eq=False)
class _Broken:
    """A contract that was broken, and how often."""

    function: str
    rule: str
    given: str
    link: str
    first: int
    last: int
    place: Place | None
    layer: str
    broken: int = 0


class FunctionContracts(Reader):
    """Checks calls and operations of the steps whose facts are read."""

    sampled = frozenset({"backward_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._found: dict[tuple[str, str, Any], _Broken] = {}
        """By function, rule, and line or layer."""
        self._calls: dict[tuple[str, Any], int] = {}
        """Calls of a function, by line or layer where that is known to have broken a rule."""
        self._called_so_far: set[str] = set()
        """Functions that were called in steps that were read."""
        self._unless: dict[str, str] = {one.function: one.unless for one in CONTRACTS if one.unless}
        self._step: dict[str, int] = {}
        """Calls of each function in this step."""
        self._told = False
        """True once there is a fact: what is excused later is taken back."""
        self._states: list[tuple[weakref.ref[Any], int]] = []
        """The first tensors of the newest states that were taken, and the steps at which they were."""
        self._due = (0, 0)
        """Broken contracts, and calls, from which on they are logged again."""

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the functions that have a contract."""
        known = (one for one in CONTRACTS if hasattr(one.owner, one.name))
        found: list[Patch] = [(one.owner, one.name, functools.partial(self._called, one)) for one in known]
        return [*found, (nn.Module, "state_dict", self._takes)]

    def _takes(self, *_: Any, **kwargs: Any) -> Around:
        """Note the step at which a state was taken: its tensors are made then."""
        state = yield
        if kwargs.get("destination") is None and self.scene.switch.here():
            self.seen(self._note_state, state)

    def _note_state(self, state: Any) -> None:
        first = _first_of(state)
        if first is not None:
            self._states[:] = [*self._states[1 - _STATES :], (weakref.ref(first), self.scene.step)]

    def _just_taken(self, state: Any) -> bool:
        """Return True unless a state was taken in an earlier step: what was written to it since is the program's."""
        first = _first_of(state)
        steps = [step for taken, step in self._states if first is not None and taken() is first]
        return not steps or steps[-1] >= self.scene.step

    def _called(self, contract: Contract, *args: Any, **kwargs: Any) -> Around:
        scene = self.scene
        read = scene.switch.here() if contract.always else scene.reading and scene.switch.in_full_step()
        if read and not torch.compiler.is_compiling():
            self._check(contract, args, kwargs)
        yield from ()  # nothing is done after the call

    @guarded
    def _check(self, contract: Contract, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = contract.function
        self._called_so_far.add(name)
        count = self._step[name] = self._step.get(name, 0) + 1
        if count > _CALLS:
            return
        breach = contract.broken(args, kwargs)
        state = kwargs.get("state_dict", args[1] if len(args) > 1 else None)
        if breach is not None and breach.rule == OWN and self._just_taken(state):
            breach = None
        if breach is None and not any(function == name for function, _, _ in self._found):
            return
        self._note(name, contract.link, [breach] if breach is not None else [], user_place(), "")

    def backward_begins(self, backward: Backward) -> None:
        """Check the operations of a loss's graph; those of one kind that feed one layer count as one call."""
        if backward.walk is None:
            return
        seen: dict[tuple[str, str], dict[str, Breach]] = {}
        for name, found in backward.walk.checked.items():
            function, check = nodes.CHECKS[name]
            for node, layer in found.items():
                rules = seen.setdefault((function, layer), {})
                if (breach := check(node)) is not None:
                    rules.setdefault(breach.rule, breach)
        for (function, layer), rules in seen.items():
            self._note(function, nodes.link(function), rules.values(), None, layer)

    def _note(self, function: str, link: str, breaches: Iterable[Breach], place: Place | None, layer: str) -> None:
        """Count one call, and what it breaks."""
        where = place if place is not None else layer
        for breach in breaches:
            key = (function, breach.rule, where)
            if key not in self._found and len(self._found) < _KEPT:
                step = self.scene.step
                self._found[key] = _Broken(function, breach.rule, breach.given, link, step, step, place, layer)
            if (one := self._found.get(key)) is not None:
                one.given, one.last = breach.given, self.scene.step
                one.broken += 1
                self._calls.setdefault((function, where), 0)
        if (function, where) in self._calls:
            self._calls[function, where] += 1

    def step_closes(self) -> None:
        """Log what was found, in a step that found something new and where the calls have doubled since."""
        self._step.clear()
        if self._found and (len(self._found), self._count()) >= self._due:
            self._log()

    def resumes(self) -> None:
        """Forget the calls of a step that was not read to its end."""
        self._step.clear()

    def summarise(self) -> None:
        """Log what was found, with all calls."""
        if self._found:
            self._log()

    def _count(self) -> int:
        return sum(self._calls.values())

    def _log(self) -> None:
        self._due = len(self._found), 2 * self._count()
        found = []
        for one in self._found.values():
            unless = self._unless.get(one.function)
            if unless and any(called.endswith(unless) for called in self._called_so_far):
                continue
            where = one.place if one.place is not None else one.layer
            place = list(one.place) if one.place is not None else None
            found.append({**asdict(one), "place": place, "calls": self._calls[one.function, where]})
        if found or self._told:
            self._told = True
            self.scene.log(FactKey.CONTRACTS, {"broken": found})


def _first_of(state: Any) -> Tensor | None:
    """Return the first tensor of a state; None if there is none."""
    if not is_a(state, dict):
        return None
    return next((value for value in dict.values(state) if is_a(value, Tensor)), None)


READER = FunctionContracts
