"""Hooks of ours on modules of the program, which are in nothing that it saves or copies: a module, the name of a
dictionary of hooks and a hook in, a handle out.

Pickles and copies of a module hold its dictionaries of hooks. While a hook of ours is in one, ``copyreg`` has a
function for ``OrderedDict`` that leaves it out; ``pickle``, ``copy`` and ``torch.save`` ask there first. The numbers by
which torch tells hooks apart are in pickles, too: ours have numbers of their own, and the program's are as without us.
"""

from __future__ import annotations

import contextlib
import copyreg
import itertools
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = 1 << 48
"""The least number of a hook of ours."""
_numbers = itertools.count(_OURS)
_ordered: Callable[[Any], Any] = OrderedDict.__reduce__


class OwnHook:
    """One hook in a dictionary of hooks of a module."""

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self.id = next(_numbers)
        self._hooks, self._hook = weakref.ref(hooks), hook
        self.put()

    def put(self) -> None:
        """Set the hook, behind those that are there."""
        hooks = self._hooks()
        if hooks is not None:
            hooks[self.id] = self._hook
            _SET.add(self)

    def remove(self) -> None:
        """Take it off, until it is put again."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)
        _SET.discard(self)


class _Set:
    """The hooks that are set in this process: while there is one, copies and pickles leave them out."""

    def __init__(self) -> None:
        self._held: weakref.WeakSet[OwnHook] = weakref.WeakSet()
        self._before: Callable[[Any], Any] | None = None

    def add(self, hook: OwnHook) -> None:
        there = copyreg.dispatch_table.get(OrderedDict)
        if there != self.reduced:  # a hook may have died without being taken off
            self._before = there
            copyreg.dispatch_table[OrderedDict] = self.reduced
        self._held.add(hook)

    def discard(self, hook: OwnHook) -> None:
        self._held.discard(hook)
        if self._held or copyreg.dispatch_table.get(OrderedDict) != self.reduced:
            return
        if self._before is None:
            del copyreg.dispatch_table[OrderedDict]
        else:
            copyreg.dispatch_table[OrderedDict] = self._before

    def reduced(self, held: Any) -> Any:
        """Return what ``OrderedDict.__reduce__`` returns, less our hooks."""
        value = (self._before or _ordered)(held)
        if not any(type(key) is int and key >= _OURS for key in held):
            return value
        return (*value[:4], iter([(k, v) for k, v in value[4] if not (type(k) is int and k >= _OURS)]), *value[5:])


_SET = _Set()


@contextlib.contextmanager
def numbers_apart() -> Iterator[None]:
    """Have torch give hooks that are registered meanwhile numbers of ours."""
    theirs, RemovableHandle.next_id = RemovableHandle.next_id, next(_numbers)
    try:
        yield
    finally:
        RemovableHandle.next_id = theirs
