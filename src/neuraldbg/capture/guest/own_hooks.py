"""Hooks of ours on modules of the program, absent from all that it saves or copies: module, store and hook in, handle
out.

Pickles and copies of a module contain its dictionaries of hooks. While a hook of ours is in one, ``copyreg`` has a
function for ``OrderedDict`` that leaves it out; ``pickle``, ``copy`` and ``torch.save`` consult ``copyreg`` first. The
ids of hooks are in pickles, too: our hooks have ids of their own, so the program's are as without us.
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
"""The least id of a hook of ours."""
_numbers = itertools.count(_OURS)
_ordered: Callable[[Any], Any] = OrderedDict.__reduce__


class LeftOut:
    """The base of our hooks on modules: a copy or a pickle of one does nothing, and needs none of our code, so that
    models stay copyable and loadable.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # A callable of the standard library that accepts anything.
        return (getattr, (contextlib.nullcontext(), "__exit__"))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__


class OwnHook:
    """A handle of one hook of ours in a module's dictionary of hooks."""

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
        """Remove the hook, until ``put`` is called again."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)
        _SET.discard(self)


class _Set:
    """The hooks that are set in this process; while there is one, copies and pickles leave our hooks out."""

    def __init__(self) -> None:
        self._held: weakref.WeakSet[OwnHook] = weakref.WeakSet()
        self._before: Callable[[Any], Any] | None = None

    def add(self, hook: OwnHook) -> None:
        there = copyreg.dispatch_table.get(OrderedDict)
        if there != self.reduced:  # a hook may have died without being removed
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
        """Return the result of ``OrderedDict.__reduce__`` without our hooks."""
        value = (self._before or _ordered)(held)
        if not any(type(key) is int and key >= _OURS for key in held):
            return value
        return (*value[:4], iter([(k, v) for k, v in value[4] if not (type(k) is int and k >= _OURS)]), *value[5:])


_SET = _Set()


@contextlib.contextmanager
def numbers_apart() -> Iterator[None]:
    """Give hooks that are registered in this context ids of our own range."""
    first = next(_numbers)
    theirs, RemovableHandle.next_id = RemovableHandle.next_id, first
    try:
        yield
    finally:
        taken, RemovableHandle.next_id = RemovableHandle.next_id - first, theirs
        for _ in range(taken - 1):  # two hooks with one number in one dictionary would replace each other
            next(_numbers)
