"""Readers of the program's objects that run none of its code: no method, no property, no operator of its classes.

A class of the program may define anything: a dict whose ``items()`` draws random numbers changed a training when it was
read. So classes are tested by ``type``, never by ``isinstance`` (which falls back on a ``__class__`` property);
attributes are read from the instance's dictionary and its slots; a container is walked by the function of the built-in
class that it derives from; objects are keyed by identity. An object that none of these can open stays closed, and its
class is listed in the coverage report.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import weakref
from collections import UserDict, deque
from collections.abc import Mapping
from types import GeneratorType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

bases: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
"""Return the method resolution order of a class, itself first, bypassing its metaclass."""
members: Callable[[type], MappingProxyType[str, Any]] = type.__dict__["__dict__"].__get__
"""Return the members that a class itself defines, by name."""
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_ABSENT = object()
_CLOSED = 16
"""Largest number of closed classes that are remembered."""
_closed: dict[str, None] = {}
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


# -- classes ----------------------------------------------------------------------------------------------------


@overload
def is_a(value: object, kinds: type[T]) -> TypeGuard[T]: ...
@overload
def is_a(value: object, kinds: tuple[type, ...]) -> bool: ...
def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Return True if the class of a value is one of ``kinds`` or derives from one. ``kinds`` are classes of torch or of
    Python, but no abstract base class: those call code of the program's classes.
    """
    return issubclass(type(value), kinds)


def kind_name(kind: type) -> str:
    """Return the name of a class."""
    return _name(kind)


def name_of(value: object) -> str:
    """Return the name of a value's class."""
    return _name(type(value))


def module_of(kind: type) -> str:
    """Return the module in which a class says it was defined."""
    found = _module(kind)
    return found if type(found) is str else ""


def package_of(kind: type) -> str:
    """Return the first name of the module in which a class says it was defined."""
    return module_of(kind).split(".", maxsplit=1)[0]


def class_member(kind: type, name: str, default: Any = None) -> Any:
    """Return a member of a class or of the first of its bases that has it, unbound: a property as a property."""
    for base in bases(kind):
        found = members(base).get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return default


# -- attributes -------------------------------------------------------------------------------------------------


def attributes(value: object) -> dict[str, Any]:
    """Return the dictionary of an instance, empty if it has none. The dictionary is live: do not write to it, and copy
    its items before other code of the program can run.
    """
    for base in bases(type(value)):
        found: Any = members(base).get("__dict__")
        if type(found) in (GetSetDescriptorType, MemberDescriptorType):
            try:
                held = found.__get__(value)
            except (AttributeError, TypeError):
                return {}
            return _plain_dict(held) if is_a(held, dict) else {}
    return {}


def slots(value: object) -> dict[str, Any]:
    """Return the filled slots of an instance, by name: those that its classes declare as ``__slots__``."""
    found: dict[str, Any] = {}
    for base in bases(type(value)):
        own = members(base)
        for name, slot in own.items() if "__slots__" in own else ():
            if type(slot) is MemberDescriptorType:
                try:
                    found.setdefault(name, slot.__get__(value))
                except (AttributeError, TypeError):  # an empty slot
                    continue
    return found


def _plain_dict(held: Any) -> dict[str, Any]:
    return held if type(held) is dict else {key: item for key, item in dict.items(held) if type(key) is str}


def attribute(value: object, name: str, default: Any = None) -> Any:
    """Return a stored attribute: in the instance, in a slot, or plain data of its class. Return ``default`` for an
    attribute that would have to be computed.
    """
    found = attributes(value).get(name, _ABSENT)
    if found is not _ABSENT:
        return found
    found = class_member(type(value), name, _ABSENT)
    if found is _ABSENT:
        return default
    if type(found) is MemberDescriptorType:
        try:
            return found.__get__(value)
        except (AttributeError, TypeError):  # an empty slot, or a slot of another class
            return default
    return default if class_member(type(found), "__get__", _ABSENT) is not _ABSENT else found


def label(key: object) -> str:
    """Return the text of a container's key, formatted by the built-in class that the key derives from."""
    kind = type(key)
    if kind is str or kind is int:
        return str(key)
    if issubclass(kind, enum.Enum):
        return str(attributes(key).get("_name_", _name(kind)))
    for base, text in _TEXTS:
        if issubclass(kind, base):
            return str(text(key))
    return f"<{_name(kind)}>"


_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (str, str.__str__), (bool, bool.__repr__), (int, int.__repr__), (float, float.__repr__), (bytes, bytes.__repr__),
)  # fmt: skip


# -- containers -------------------------------------------------------------------------------------------------


def sequence(value: Any) -> Iterable[Any]:
    """Return an iterable of the items of a list, a tuple, a set or a deque, or of a class derived from one; empty for
    any other value.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    for base in (tuple, list, set, frozenset, deque):
        if issubclass(kind, base):
            return base.__iter__(value)
    return ()


def uses_up(value: Any) -> bool:
    """Return True for a generator or another of Python's own iterators, which give their items once. No code of the
    program can tell when one was consumed, so a list may take its place; an iterator class of the program's own could
    tell.
    """
    kind = type(value)
    return any(kind is each for each in _ITERATORS)


def items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return an iterable of the items of a dict, or of a class derived from it; empty for any other value."""
    kind = type(value)
    if kind is dict or issubclass(kind, dict):
        return dict.items(value)
    if issubclass(kind, UserDict):  # transformers' BatchEncoding is a UserDict
        held = attributes(value).get("data")
        return dict.items(held) if is_a(held, dict) else ()
    return ()


def filled(value: Any) -> bool:
    """Return True for a non-empty container of Python's, or of a class derived from one."""
    for base in (dict, list, tuple, set, frozenset, deque):
        if issubclass(type(value), base):
            return base.__len__(value) > 0
    return False


def item(value: Any, key: str, default: Any = None) -> Any:
    """Return one item of a dict, or of a class derived from it."""
    return dict.get(value, key, default) if issubclass(type(value), dict) else default


def opened(value: Any, width: int) -> list[tuple[Any, Any]] | None:
    """Return the (key or index, value) pairs of a dict, a list, a tuple, a dataclass or a class derived from one; at
    most ``width`` of a sequence. None for a value that is no container, or cannot be opened, which is recorded.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return list(enumerate(value[:width]))
    if kind is dict or issubclass(kind, (dict, UserDict)):
        return list(items(value))
    if issubclass(kind, (tuple, list)):
        return list(enumerate(itertools.islice(sequence(value), width)))
    fields = class_member(kind, "__dataclass_fields__")
    if type(fields) is dict:
        names = [name for name, field in fields.items() if attribute(field, "_field_type") is _FIELD]
        return [(name, attribute(value, name)) for name in names]
    if any(base is Mapping for base in bases(kind)):
        note_closed(kind)
    return None


_ITERATORS: frozenset[type] = frozenset({
    GeneratorType, map, filter, zip, itertools.chain, itertools.islice, itertools.compress, itertools.filterfalse,
    itertools.takewhile, itertools.dropwhile, itertools.starmap, reversed, enumerate, *map(type, (
        iter([]), iter(()), iter(set()), iter({}), iter({}.values()), iter({}.items()), reversed([]),
    )),
})  # fmt: skip
_FIELD = dataclasses._FIELD  # type: ignore[attr-defined] # noqa: SLF001 (no public name tells a field from a class variable)


def note_closed(kind: type) -> None:
    """Record a class whose objects cannot be read without a call of its methods, for the coverage report."""
    if len(_closed) < _CLOSED:
        _closed.setdefault(_name(kind))


def closed() -> list[str]:
    """Return the names of the classes that could not be read since ``forget_closed``."""
    return list(_closed)


def forget_closed() -> None:
    """Forget the closed classes, at the start of a session."""
    _closed.clear()


# -- objects by identity ----------------------------------------------------------------------------------------


class Identities(Generic[K, V]):
    """A map from objects of the program to values, by identity. It keeps no object alive; a ``WeakKeyDictionary`` would
    hash and compare them by their own methods.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[K], V]] = {}
        self._room = 64

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._held) >= self._room:  # dead objects make room
            every = list(self._held.items())  # one call: another thread may add an entry meanwhile
            self._held = {at: pair for at, pair in every if pair[0]() is not None}
            self._room = max(64, 2 * len(self._held))
        self._held[id(key)] = (weakref.ref(key), value)

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of an object, ``default`` if it has none."""
        found = self._held.get(id(key))
        return found[1] if found is not None and found[0]() is key else default

    def __contains__(self, key: K) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def add(self: Identities[K, bool], key: K) -> None:
        """Add an object of which only the presence counts."""
        self[key] = True

    def pop(self, key: K, default: Any = None) -> Any:
        """Remove an object and return its value, ``default`` if it had none."""
        found = self.get(key, default)
        if key in self:
            del self._held[id(key)]
        return found

    def items(self) -> list[tuple[K, V]]:
        """Return the living objects, each with its value."""
        pairs = [(ref(), value) for ref, value in list(self._held.values())]
        return [(key, value) for key, value in pairs if key is not None]

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        return len(self.items())

    def clear(self) -> None:
        """Remove all objects."""
        self._held.clear()
