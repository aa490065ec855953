"""The memory of the tensors that were handed over: bytes by name and layer, and objects that were never let go.

An object is followed by a weak reference, which does not keep it alive. Memory that several objects share, as views do,
is not followed: a view that is gone says nothing about its base.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from neuraldbg.nouns.measures import size
from neuraldbg.toolbox.value_table import counted, html_table, text_table

LEAK = 5
"""Different objects of one name, all alive, from which on they count as never let go. Own: a few are kept by any
program, as the last and the best; a list that grows passes this soon."""
_SHOWN = 12
"""Names in a table."""


@dataclass(frozen=True)
class NamedMemory:
    """The tensors of one name and layer."""

    name: str
    """Name of the tensors."""
    layer: str | None
    """Their layer, None if none was given."""
    bytes: int
    """Bytes of the last one."""
    count: int
    """Number of times that one was inspected."""
    objects: int | None
    """Number of different objects that are followed, the newest ones if there are too many; None if none can be."""
    alive: int
    """Number of followed objects that are alive."""
    alive_bytes: int
    """Their bytes together."""
    first_step: int
    """Step of the first one."""
    last_step: int
    """Step of the last one."""

    @property
    def leaks(self) -> bool:
        """True if many different objects were inspected, in several steps, and every one of them is still alive."""
        return self.objects is not None and self.alive == self.objects >= LEAK and self.last_step > self.first_step

    def __str__(self) -> str:
        where = f" of layer {self.layer}" if self.layer else ""
        times = "once" if self.count == 1 else f"{self.count:,} times"
        each = f"{self.name}{where}: {size(self.bytes)}, inspected {times}"
        if self.leaks:
            steps = f"from step {self.first_step:,} to {self.last_step:,}"
            return f"{each}; all {self.alive:,} objects {steps} are still alive, {size(self.alive_bytes)}: never let go"
        return each if self.objects is None else f"{each}; {self.alive:,} of {self.objects:,} objects alive"


@dataclass(frozen=True, repr=False)
class TensorMemory:
    """The memory of all tensors that were inspected, the largest names first.

    >>> memory = TensorMemory((NamedMemory("h", None, 8, 1, None, 0, 0, 0, 0),), {"": 8}, 8, {"list": 1})
    >>> memory
    <TensorMemory: 8 B in 1 name, 0 never let go>
    """

    names: tuple[NamedMemory, ...] = ()
    """Memory by name and layer."""
    layers: dict[str, int] = field(default_factory=dict)
    """Bytes by layer: those of the last tensor of each name."""
    bytes: int = 0
    """Bytes of the last tensor of each name together."""
    unfollowed: dict[str, int] = field(default_factory=dict)
    """Number of objects by type that cannot be followed, as Python has no weak references to them: lists, numbers."""
    dropped: int = 0
    """Number of names that were dropped because there were too many; the oldest go first."""

    @property
    def leaks(self) -> tuple[NamedMemory, ...]:
        """The names whose objects are all still alive."""
        return tuple(one for one in self.names if one.leaks)

    def __repr__(self) -> str:
        names = counted(len(self.names), "name")
        return f"<TensorMemory: {size(self.bytes)} in {names}, {len(self.leaks):,} never let go>"

    def lines(self) -> list[tuple[str, str]]:
        """Return name and value of each line of the table, as text.

        >>> memory.lines()[-1]
        ('not followed', '1 of type list')
        """
        found = [("all", f"{size(self.bytes)} in {counted(len(self.names), 'name')}")]
        found += [("", str(one)) for one in self.names[:_SHOWN]]
        found += [("", f"{counted(len(self.names) - _SHOWN, 'more name')}")] * (len(self.names) > _SHOWN)
        found += [("not followed", f"{n:,} of type {kind}") for kind, n in self.unfollowed.items()]
        found += [("dropped", counted(self.dropped, "name"))] * (self.dropped > 0)
        return found

    def __str__(self) -> str:
        """Return a small table: the whole, then a line for each name."""
        return text_table(self.lines())

    def _repr_html_(self) -> str:
        """Render the table as HTML for a notebook."""
        return html_table(self.lines())


@dataclass
class _Account:
    """The tensors of one name, as they come."""

    first_step: int
    last_step: int = 0
    bytes: int = 0
    count: int = 0
    objects: int = 0
    alive: OrderedDict[int, tuple[weakref.ref[Any], int]] = field(default_factory=OrderedDict)
    """Followed objects by identity, with their bytes; those that are gone are removed when they are counted."""


class MemoryLog:
    """Follows objects by name, at most ``limit`` of them at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._accounts: OrderedDict[tuple[str, str | None], _Account] = OrderedDict()
        self._followed = 0
        self._unfollowed: dict[str, int] = {}
        self._dropped = 0

    def add(self, value: Any, key: tuple[str, str | None], step: int, held: int) -> weakref.ref[Any] | None:
        """Follow an object of ``held`` bytes under its name and layer. Return a weak reference, None if it has none."""
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(step)
            if len(self._accounts) > self._limit:
                _, gone = self._accounts.popitem(last=False)
                self._followed -= len(gone.alive)
                self._dropped += 1
        self._accounts.move_to_end(key)
        account.last_step, account.bytes = step, held
        account.count += 1
        try:
            ref = weakref.ref(value)
        except TypeError:
            kind = type(value).__name__
            self._unfollowed[kind] = self._unfollowed.get(kind, 0) + 1
            return None
        known = account.alive.get(id(value))
        if known is not None and known[0]() is value:  # the same object again: a weight that is updated in place
            account.alive[id(value)] = (known[0], held)
            return known[0]
        self._followed += known is None
        account.objects += 1
        account.alive[id(value)] = (ref, held)
        if self._followed > 2 * self._limit:
            self._trim()
        return ref

    def _trim(self) -> None:
        """Forget objects that are gone, then the oldest of the names that have most."""
        for account in self._accounts.values():
            self._sweep(account)
        while self._followed > self._limit:
            largest = max(self._accounts.values(), key=lambda one: len(one.alive))
            for _ in range((len(largest.alive) + 1) // 2):
                largest.alive.popitem(last=False)
                largest.objects -= 1  # it is followed no longer: neither alive nor gone
                self._followed -= 1

    def _sweep(self, account: _Account) -> None:
        for key in [key for key, (ref, _) in account.alive.items() if ref() is None]:
            del account.alive[key]
            self._followed -= 1

    def memory(self) -> TensorMemory:
        """Return the memory of all names, the largest first."""
        found: list[NamedMemory] = []
        layers: dict[str, int] = {}
        for (name, layer), account in self._accounts.items():
            self._sweep(account)
            held = sum(bytes_ for _, bytes_ in account.alive.values())
            found.append(
                NamedMemory(
                    name=name,
                    layer=layer,
                    bytes=account.bytes,
                    count=account.count,
                    objects=account.objects or None,
                    alive=len(account.alive),
                    alive_bytes=held,
                    first_step=account.first_step,
                    last_step=account.last_step,
                )
            )
            place = layer if layer is not None else ""
            layers[place] = layers.get(place, 0) + account.bytes
        found.sort(key=lambda one: (-max(one.bytes, one.alive_bytes), one.name))
        ordered = dict(sorted(layers.items(), key=lambda one: -one[1]))
        total = sum(one.bytes for one in found)
        return TensorMemory(tuple(found), ordered, total, dict(self._unfollowed), self._dropped)
