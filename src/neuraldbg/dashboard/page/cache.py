"""A bounded cache of computed values: views and figures."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Value = TypeVar("Value")


class Newest(Generic[Value]):
    """A thread-safe cache of at most ``most`` values, which drops the least recently used one first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, calling ``make`` if it is missing: outside of the lock, so at worst twice."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = make()
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._kept)
