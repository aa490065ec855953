"""The variables and attributes of the program that hold tensors and containers, found from its running functions.

The frames of the training thread and the watched models enter; a ``Holding`` leaves, which says where each tensor and
each container is held. Variables, attributes of objects and items of containers are opened without running code of the
program, and only identities, sizes and names are kept.
"""

from __future__ import annotations

import itertools
import math
import sys
from argparse import Namespace
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from queue import Queue
from types import FrameType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.module_tree import children, own
from neuraldbg.capture.guest.own_hooks import LeftOut
from neuraldbg.capture.guest.program_objects import (
    attributes,
    bases,
    is_a,
    items,
    kind_name,
    members,
    module_of,
    name_of,
    package_of,
    sequence,
    slots,
)
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.guest.user_code import foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VISITS = 20_000
"""Objects that one search opens at most."""
_TAIL = 24
"""Newest items of a long container that are opened, and as many of its oldest."""
_FRAMES = 64
_DEPTH = 8
"""Attributes and items between a variable and what is opened."""
_PLAIN = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    ModuleType,
    torch.dtype,
    torch.device,
    np.generic,
)
_STD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "neuraldbg"}
"""Packages whose objects are not opened, but for modules of torch and containers."""
_NAMESPACES: tuple[Any, ...] = (SimpleNamespace, Namespace)
"""Classes of those packages that are nothing but attributes."""
_HOOKS = {
    "_forward_hooks": "register_forward_hook",
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
}
"""Hooks of a module, and the method that adds one."""
HOOK = "hook"
"""The type of an item that is a hook."""
_OWN = frozenset(vars(nn.Module())) | {"_flat_weights", "_flat_weight_refs"}
"""Attributes of every module of torch."""
_SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_INDEXED: tuple[Any, ...] = (list, tuple, deque)


@dataclass(frozen=True)
class Spot:
    """A place of the program that holds an object."""

    code: str
    """The object as the program could write it: ``model.cache``."""
    name: str
    """The last name in it: ``cache``."""
    attribute: bool
    """True if that is an attribute, False for a variable."""
    files: tuple[str, ...]
    """Source files in which it may be changed, the most likely first."""
    line: int = 0
    """First line of the function whose variable it is; 0 for a module's."""
    adds: str = ""
    """The method that adds to it, if there is only one: ``register_forward_hook``."""
    limited: bool = False
    """True if it drops old items by itself: a ``deque`` with a ``maxlen``."""


class Item(NamedTuple):
    """The newest items of a container, as numbers."""

    type: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    """Bytes of one item."""
    graph: bool


@dataclass
class Container:
    """A container of the program."""

    key: int
    """Its identity."""
    spot: Spot
    length: int
    item: Item | None
    """What its newest item holds; None if that is no data worth counting: a number, a string."""


class Kept(NamedTuple):
    """A tensor with its graph, and the place that holds it. Keep it no longer than a count takes."""

    tensor: Tensor
    spot: Spot
    inside: bool
    """True for an item of a container."""


class Single(NamedTuple):
    """A tensor without a graph or an array that a variable or an attribute holds by itself, as numbers."""

    spot: Spot
    item: Item


@dataclass
class Holding:
    """The objects that the program's variables hold at one moment."""

    containers: list[Container] = field(default_factory=list)
    graphs: list[Kept] = field(default_factory=list)
    """Tensors with graphs, those that variables and attributes hold first."""
    singles: list[Single] = field(default_factory=list)
    """Tensors without graphs and arrays outside of containers."""
    functions: frozenset[tuple[str, int]] = frozenset()
    """The functions of the program that are running: file and first line."""
    complete: bool = True
    """False if there were too many objects to open all."""


class _Next(NamedTuple):
    value: Any
    spot: Spot
    inside: bool
    depth: int


class Search:
    """One search. It keeps no object of the program beyond ``run``."""

    def __init__(self) -> None:
        self.found = Holding()
        self._seen: set[int] = set()
        self._waiting: deque[_Next] = deque()
        self._files: tuple[str, ...] = ()

    def run(self, frame: FrameType | None, models: Iterable[nn.Module]) -> Holding:
        """Search breadth first: the shortest way to an object names it."""
        frames = list(itertools.islice(_own_frames(frame), _FRAMES))
        self._files = tuple(dict.fromkeys(one.f_code.co_filename for one in frames))
        self.found.functions = frozenset((one.f_code.co_filename, one.f_code.co_firstlineno) for one in frames)
        for one in frames:
            self._variables(one)
        for model in models:
            self._put(model, self._spot(name_of(model), name_of(model)), inside=False, depth=0)
        visits = 0
        while self._waiting:
            visits += 1
            if visits > _VISITS:
                self.found.complete = False
                self._waiting.clear()
                break
            self._open(self._waiting.popleft())
        self._seen.clear()
        self.found.graphs.sort(key=lambda kept: kept.inside)
        return self.found

    def _variables(self, frame: FrameType) -> None:
        code, whole = frame.f_code, frame.f_code.co_name == "<module>"
        here = code.co_filename, *(file for file in self._files if file != code.co_filename)
        if not whole:
            for name, value in variables_of(frame):
                spot = Spot(name, name, False, here, code.co_firstlineno)
                self._put(value, spot, inside=False, depth=0)
        for name, value in list(frame.f_globals.items()):
            if not name.startswith("__"):
                self._put(value, Spot(name, name, False, here), inside=False, depth=0)

    def _spot(self, code: str, name: str, kind: type | None = None) -> Spot:
        file = getattr(sys.modules.get(module_of(kind)), "__file__", None) if kind is not None else None
        first = (file,) if type(file) is str and not foreign(file) else ()
        return Spot(code, name, True, (*first, *(one for one in self._files if one not in first)))

    def _put(self, value: Any, spot: Spot, *, inside: bool, depth: int) -> None:
        if depth <= _DEPTH and not is_a(value, _PLAIN):
            self._waiting.append(_Next(value, spot, inside, depth))

    def _open(self, at: _Next) -> None:
        value, spot = at.value, at.spot
        if is_a(value, Tensor):
            self._tensor(value, at)
            return
        if is_a(value, np.ndarray) and not at.inside:
            self.found.singles.append(Single(spot, _of_array(value)))
        if id(value) in self._seen or is_a(value, (Optimizer, np.ndarray, LeftOut)):
            return
        self._seen.add(id(value))
        if is_a(value, dict) or is_a(value, _SEQUENCES):
            self._container(value, at)
        elif is_a(value, nn.Module):
            self._module(value, at)
        elif is_a(value, FunctionType):
            self._function(value, at)
        elif is_a(value, MethodType):
            self._put(value.__self__, spot, inside=at.inside, depth=at.depth + 1)
        elif is_a(value, type):
            if package_of(value) not in _STD:
                self._attributes(dict(members(value)), kind_name(value), value, at.depth)
        elif is_a(value, Queue):
            # Its own deque or heap: the program adds to it by put, and takes from it by get.
            held = attributes(value)
            most = held.get("maxsize")
            limited = spot.limited or (type(most) is int and most > 0)
            self._put(held.get("queue"), replace(spot, limited=limited), inside=at.inside, depth=at.depth)
        elif is_a(value, _NAMESPACES) or package_of(type(value)) not in _STD:
            self._attributes(attributes(value), spot.code, type(value), at.depth)
            self._attributes(slots(value), spot.code, type(value), at.depth)
            self._put(type(value), spot, inside=False, depth=at.depth + 1)

    def _tensor(self, x: Tensor, at: _Next) -> None:
        if id(x) in self._seen or not tensor_memory.present(x):
            return
        if node_of(x) is not None:
            self._seen.add(id(x))
            self.found.graphs.append(Kept(x, at.spot, at.inside))
        elif not at.inside:
            size = math.prod(x.shape) * x.dtype.itemsize  # its own: a window may be a view of a large storage
            self.found.singles.append(Single(at.spot, _of_tensor(x)._replace(bytes=size)))

    def _function(self, function: FunctionType, at: _Next) -> None:
        if foreign(function.__code__.co_filename):
            return
        files = (function.__code__.co_filename, *self._files)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._put(held, Spot(name, name, False, files), inside=False, depth=at.depth + 1)
        for name, held in attributes(function).items():
            self._put(held, self._spot(f"{function.__name__}.{name}", name), inside=False, depth=at.depth + 1)

    def _attributes(self, held: dict[str, Any], code: str, kind: type, depth: int) -> None:
        for name, value in list(held.items()):
            if not name.startswith("__"):
                self._put(value, self._spot(f"{code}.{name}", name, kind), inside=False, depth=depth + 1)

    def _module(self, module: nn.Module, at: _Next) -> None:
        held = own(module)
        for name, method in _HOOKS.items():
            hooks = held.get(name)
            if is_a(hooks, (dict, OrderedDict)):
                theirs = sum(not is_a(hook, LeftOut) for _, hook in list(items(hooks)))
                spot = replace(self._spot(f"{at.spot.code}.{name}", name, type(module)), adds=method)
                item = Item(HOOK, (), "", 0, False)
                self.found.containers.append(Container(id(hooks), spot, theirs, item))
        mine = {name: value for name, value in list(held.items()) if name not in _OWN}
        self._attributes(mine, at.spot.code, type(module), at.depth)
        for name, child in children(module):
            part = f"[{name}]" if name.isdigit() else f".{name}"
            self._put(child, self._spot(at.spot.code + part, name, type(module)), inside=at.inside, depth=at.depth + 1)
        if package_of(type(module)) not in _STD:
            for base in bases(type(module)):
                if package_of(base) not in _STD:
                    self._put(base, at.spot, inside=False, depth=at.depth + 1)

    def _container(self, value: Any, at: _Next) -> None:
        pairs = _ends(value)
        spot = at.spot
        if is_a(value, deque) and deque.maxlen.__get__(value) is not None:
            spot = replace(spot, limited=True)
        length = next(int(base.__len__(value)) for base in (dict, *_SEQUENCES) if is_a(value, base))
        newest = _item(pairs[-1][1]) if pairs else None
        if not is_a(value, (tuple, frozenset)):
            self.found.containers.append(Container(id(value), spot, length, newest))
        fields = attributes(value)
        for key, item in pairs:
            code = f"{spot.code}[{key!r}]" if type(key) is str else f"{spot.code}[...]"
            self._put(item, replace(spot, code=code), inside=True, depth=at.depth + 1)
        if fields and package_of(type(value)) not in _STD:
            self._attributes(fields, spot.code, type(value), at.depth)


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if not foreign(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _ends(value: Any) -> list[tuple[Any, Any]]:
    """Return the oldest and the newest items of a container, with their keys in a dictionary, None elsewhere."""
    if is_a(value, dict):
        if dict.__len__(value) <= 2 * _TAIL:
            return list(dict.items(value))
        newest = list(itertools.islice(reversed(dict.items(value)), _TAIL))
        return [*itertools.islice(dict.items(value), _TAIL), *reversed(newest)]
    for base in _INDEXED:
        if is_a(value, base):
            count = base.__len__(value)
            places = range(count) if count <= 2 * _TAIL else (*range(_TAIL), *range(count - _TAIL, count))
            found: list[tuple[Any, Any]] = []
            for place in places:
                try:
                    found.append((None, base.__getitem__(value, place)))
                except IndexError:  # another thread took items meanwhile, as from a queue
                    break
            return found
    return [(None, item) for item in itertools.islice(sequence(value), 2 * _TAIL)]


def _item(value: Any, depth: int = 0) -> Item | None:
    """Return what an item of a container holds; None for numbers, text and whatever cannot be opened."""
    if is_a(value, Tensor):
        return _of_tensor(value) if tensor_memory.present(value) else None
    if is_a(value, np.ndarray):
        return _of_array(value)
    if is_a(value, Optimizer):
        return Item(name_of(value), (), "", 0, False)
    if depth > 2 or is_a(value, _PLAIN):
        return None
    if is_a(value, (dict, *_SEQUENCES)):
        inner = [item for _, held in _ends(value) if (item := _item(held, depth + 1)) is not None]
    elif package_of(type(value)) not in _STD or is_a(value, nn.Module):
        module = is_a(value, nn.Module)
        held = dict(children(value)) | own(value)["_parameters"] if module else attributes(value)
        every = [*held.values(), *slots(value).values()]
        inner = [item for one in every if (item := _item(one, depth + 1)) is not None]
    else:
        return None
    if not inner:
        return None
    largest = max(inner, key=lambda item: item.bytes)
    return largest._replace(bytes=sum(item.bytes for item in inner), graph=any(item.graph for item in inner))


def _of_array(value: Any) -> Item:
    told = np.ndarray.shape.__get__(value), np.ndarray.dtype.__get__(value)
    return Item("ndarray", tuple(told[0]), str(told[1]), int(np.ndarray.nbytes.__get__(value)), False)


def _of_tensor(x: Tensor) -> Item:
    graph = node_of(x) is not None
    kind = "Parameter" if is_a(x, nn.Parameter) else "Tensor with its graph" if graph else "Tensor"
    return Item(kind, tuple(x.shape), str(x.dtype).removeprefix("torch."), x.untyped_storage().nbytes(), graph)
