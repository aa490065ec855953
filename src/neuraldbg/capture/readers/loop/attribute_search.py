"""The search for tensors that no watched module has registered: in lists, dictionaries and plain objects of modules.

Watched modules and tensors enter; ``Held`` leaves for those that were found in the modules' attributes. No property and
no method of the program runs.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.capture.guest.module_tree import named_parameters, own
from neuraldbg.capture.guest.program_objects import attributes, is_a, items, label, package_of, sequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_DEPTH = 4
"""Depth of nested containers that are opened."""
_ITEMS = 512
"""Items of one container that are examined."""
_LOOKS = 20_000
"""Items that are examined in all."""
_HOPS = 8
"""Operations between a tensor that is held and the leaf that it was made from."""
_KINDS: tuple[tuple[type, str], ...] = ((dict, "dict"), (list, "list"), (tuple, "tuple"), (set, "set"))
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, torch.dtype, torch.device, Optimizer)
_OWN = frozenset({"_parameters", "_buffers", "_modules", "_flat_weights"})
"""Attributes where modules of torch store registered tensors; the last is of recurrent ones."""


@dataclass(frozen=True)
class Held:
    """The place where the search has found a tensor."""

    name: str
    """Name as the program would write it: ``Net.layers[2].weight``."""
    owner: str
    """That name without the parameter's: ``Net.layers[2]``."""
    layer: str
    """Layer of the tensor as a path: ``layers[2]``."""
    attribute: str
    """The holder's attribute: ``layers``."""
    how: str
    """Kind of container: ``list``, ``dict``, ``tuple``, ``set``, ``object``, ``tensor`` (the module itself holds it) or
    ``result``."""
    holder: str
    """Path of the watched module that holds it, empty for the root."""
    lone: bool
    """True if the module it belongs to is the only one in its container."""


class Search:
    """One search for tensors, by identity, through the attributes of modules."""

    def __init__(self, wanted: Iterable[int], registered: set[int]) -> None:
        self.wanted = set(wanted)
        self.registered = registered
        """Watched modules, by identity."""
        self.found: dict[int, Held] = {}
        self._seen: set[int] = set()
        self._looks = 0
        self._spoken = self._path = self._attribute = ""

    def through(self, modules: Mapping[str, nn.Module], names: Mapping[int, str]) -> dict[int, Held]:
        """Return the tensors found in the attributes of modules (path -> module). ``names``: those of roots, by id."""
        for path, module in modules.items():
            root = names.get(id(module), "")
            self._spoken, self._path = root or path, path if path != root else ""
            for key, value in list(own(module).items()):
                if key.startswith("__") or key in _OWN or (key.startswith("_") and key.endswith("_hooks")):
                    continue
                self._attribute = key
                self._look(value, key, "", path, 0, lone=False)
                if self.wanted <= self.found.keys() or self._looks > _LOOKS:
                    return self.found
        return self.found

    def _look(self, value: Any, name: str, how: str, holder: str, depth: int, *, lone: bool) -> None:
        self._looks += 1
        if is_a(value, _PLAIN) or self._looks > _LOOKS:
            return
        if is_a(value, Tensor):
            self._tensor(value, name, how or "tensor", holder)
        elif id(value) in self._seen or depth == _DEPTH:
            return
        elif is_a(value, nn.Module):
            self._seen.add(id(value))
            if id(value) not in self.registered or how:
                self._module(value, name, how or "object", holder, lone=lone)
        else:
            self._seen.add(id(value))
            kind = next((word for base, word in _KINDS if issubclass(type(value), base)), "object")
            items = list(_items(value, name, kind))
            # A module alone in a list is a common way to hide it from its holder on purpose.
            single = len(items) == 1
            for inner, item in items:
                self._look(item, inner, how or kind, holder, depth + 1, lone=single)

    def _module(self, module: nn.Module, name: str, how: str, holder: str, *, lone: bool) -> None:
        for path, parameter in named_parameters(module):
            if id(parameter) in self.wanted and id(parameter) not in self.found:
                layer = ".".join([name, *path.split(".")[:-1]])
                self._put(id(parameter), f"{name}.{path}", layer, how, holder, lone=lone)

    def _tensor(self, tensor: Tensor, name: str, how: str, holder: str) -> None:
        if id(tensor) in self.wanted:
            self._put(id(tensor), name, name, how, holder)
        elif tensor.grad_fn is not None and how == "tensor":
            for leaf in _leaves_of(tensor):
                if leaf in self.wanted:
                    self._put(leaf, name, name, "result", holder)

    def _put(self, key: int, name: str, layer: str, how: str, holder: str, *, lone: bool = False) -> None:
        path = f"{self._path}.{layer}" if self._path else layer
        said = (f"{self._spoken}.{name}", f"{self._spoken}.{layer}")
        self.found.setdefault(key, Held(*said, path, self._attribute, how, holder, lone))


def _items(value: Any, name: str, kind: str) -> Iterator[tuple[str, Any]]:
    if kind == "dict":
        for key, item in list(itertools.islice(items(value), _ITEMS)):
            yield f"{name}[{label(key)!r}]" if is_a(key, str) else f"{name}[{label(key)}]", item
    elif kind == "object":
        if _of_library(type(value)):  # a trainer holds the whole program
            return
        for key, item in list(attributes(value).items())[:_ITEMS]:
            yield f"{name}.{key}", item
    else:
        for place, item in enumerate(itertools.islice(sequence(value), _ITEMS)):
            yield f"{name}[{place}]", item


def _of_library(cls: type) -> bool:
    package = package_of(cls)
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in ("torch", "builtins", "numpy", "neuraldbg") or "site-packages" in file


def _leaves_of(tensor: Tensor) -> Iterator[int]:
    """Yield the identities of the leaves a few operations behind a tensor: ``nn.Parameter(...) * 0.01`` is no leaf."""
    nodes: list[Any] = [tensor.grad_fn]
    for _ in range(_HOPS):
        node = nodes.pop() if nodes else None
        if node is None:
            return
        leaf = getattr(node, "variable", None)
        if is_a(leaf, Tensor):
            yield id(leaf)
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
