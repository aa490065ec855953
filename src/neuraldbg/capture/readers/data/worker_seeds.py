"""The test if a data loader's workers draw the same random numbers, by reading their bytecode.

A worker gets a copy of the dataset. torch seeds its own generator, numpy's and Python's differently in each worker; it
does not know of generators that the dataset holds itself, nor of seeds that ``worker_init_fn`` sets. An iterator of a
DataLoader goes in; the generator or seed that is the same in all workers comes out. Nothing is called.
"""

from __future__ import annotations

import dis
import random
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Subset

from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, attributes, bases, class_member, is_a, members, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEEDS = frozenset({
    "seed", "manual_seed", "default_rng", "set_seed", "seed_everything", "set_random_seed", "fix_seed", "seed_all",
})  # fmt: skip
"""Names of functions that seed."""
_OWN = frozenset({
    "initial_seed", "get_worker_info", "getpid", "urandom", "time", "time_ns", "uuid4", "SeedSequence", "get_rank",
})  # fmt: skip
"""Names of values that differ from worker to worker."""
_DRAWS = frozenset({
    "random", "rand", "randn", "randint", "normal", "uniform", "choice", "shuffle", "randperm", "sample", "integers",
    "standard_normal", "permutation", "bernoulli", "gauss", "rng",
})  # fmt: skip
_METHODS = ("__getitem__", "__iter__", "__getitems__", "__call__")
_PARTS = 32


def alike(iterator: Any) -> dict[str, Any] | None:
    """Return {"how": "init" | "copied", "name": function or attribute, "workers": int, "dataset": str}, None if there
    is no such seed.
    """
    workers = int(number(attribute(iterator, "_num_workers")) or 0)
    if workers < 2:
        return None
    dataset, init = attribute(iterator, "_dataset"), attribute(iterator, "_worker_init_fn")
    while is_a(dataset, Subset):
        dataset = attribute(dataset, "dataset")
    if dataset is None or (init is not None and not is_a(init, FunctionType)):
        return None
    found = {"workers": workers, "dataset": name_of(dataset)}
    parts = list(_parts(dataset))
    if init is not None and _constant_seed(init) and any(_names(_codes(part)) & _DRAWS for part in parts):
        return {"how": "init", "name": init.__name__, **found}
    spoken = _names([init.__code__]) if init is not None else frozenset()
    if "dataset" in spoken or "get_worker_info" in spoken:
        return None  # it handles the dataset of its worker
    for part in parts:
        for name in _generators(part):
            if name not in spoken and name in _names(_codes(part)) and not _renewed(part, name):
                return {"how": "copied", "name": name, **found}
    return None


def _parts(dataset: Any) -> Iterator[Any]:
    """Yield the dataset, and the transforms that it holds."""
    yield dataset
    for i, value in enumerate(list(attributes(dataset).values())):
        if i < _PARTS and callable(value) and attributes(value) and not is_a(value, (type, FunctionType)):
            yield value


def _constant_seed(init: FunctionType) -> bool:
    """Return True if a ``worker_init_fn`` seeds, and uses neither the number of its worker nor its seed."""
    names, code = _names([init.__code__]), init.__code__
    argument = code.co_varnames[0] if code.co_argcount else None
    looks = any(step.argval == argument for step in dis.get_instructions(code) if step.opname.startswith("LOAD_"))
    closes = bool(code.co_freevars) or any(is_a(const, CodeType) for const in code.co_consts)
    return argument is not None and bool(names & _SEEDS) and not names & _OWN and not looks and not closes


def _generators(part: Any) -> list[str]:
    """Return the attributes that are random number generators."""
    numpy = sys.modules.get("numpy.random")
    kinds = (torch.Generator, random.Random, *((numpy.Generator, numpy.RandomState) if numpy is not None else ()))
    return [name for name, value in list(attributes(part).items()) if is_a(value, kinds)]


def _codes(part: Any) -> list[CodeType]:
    """Return the code that makes samples, with the methods of its own that it calls."""
    methods = {name: class_member(type(part), name) for name in _METHODS}
    found = [method.__code__ for method in methods.values() if is_a(method, FunctionType)]
    for name in sorted(_names(found)):
        method = class_member(type(part), name)
        if is_a(method, FunctionType):
            found.append(method.__code__)
    return found


def _renewed(part: Any, name: str) -> bool:
    """Return True if any method but the constructor replaces the generator, or calls ``get_worker_info``."""
    methods = {n: m for kind in bases(type(part)) for n, m in members(kind).items() if is_a(m, FunctionType)}
    for called, method in methods.items():
        if called == "__init__":
            continue
        if "get_worker_info" in method.__code__.co_names:
            return True
        if any(s.opname == "STORE_ATTR" and s.argval == name for s in dis.get_instructions(method.__code__)):
            return True
    return False


def _names(codes: list[CodeType]) -> frozenset[str]:
    """Return the names of globals and attributes that code mentions, with those of the functions inside it."""
    found: set[str] = set()
    queue = list(codes)
    while queue:
        code = queue.pop()
        found.update(code.co_names)
        queue += [const for const in code.co_consts if is_a(const, CodeType)]
    return frozenset(found)
