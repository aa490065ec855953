"""The contracts of loading: a state has the model's names and is a copy, a sampler has a weight for each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, WeightedRandomSampler

from neuraldbg.capture.contracts.contract import Breach, Contract
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import buffers, named_parameters
from neuraldbg.capture.guest.program_objects import attribute, attributes, is_a, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OWN = "own_weights"
"""The rule for a state that is no copy; it is broken where training went on since the state was taken."""
LEAST = 4
"""Weights of a model, and names of a state, from which on it says something that few of them fit."""
LITTLE = 0.1
"""Share of a state's names that fit, below which it was another model's, or named otherwise: who loads a few weights on
purpose gives a state of few names, which fit."""


def _loads(given: Mapping[str, Any]) -> Breach | None:
    """With ``strict=False`` names that fit nothing are left out, and nothing is said. A state is no copy: its tensors
    are the weights themselves, and change with them.
    """
    model, state = given.get("self"), given.get("state_dict")
    if not is_a(model, nn.Module) or not is_a(state, dict):
        return None
    if _is_own(model, state):
        return Breach(OWN, "a state that holds the model's own weights, and no copy of them")
    if given.get("strict", True):
        return None
    own = {name for name, _ in named_parameters(model, duplicates=True)}
    known = [name for name, value in dict.items(state) if type(name) is str and is_a(value, Tensor)]
    if len(own) < LEAST or not known:
        return None
    fits = sum(name in own for name in known)
    if fits >= LITTLE * len(known) or len(known) < LEAST:
        return None
    held = f"{fits or 'none'} of the {len(own)} weights of the model"
    return Breach("nothing_loaded", f"a state with {held}{_prefix(own, known)}")


def _is_own(model: nn.Module, state: dict[str, Any]) -> bool:
    """Return True if all weights of a state lie in the memory of those of the model that have their names."""
    named = dict(named_parameters(model))
    if not named or not all(dict.__contains__(state, name) for name in named):
        return False
    own = {
        x.data_ptr() for each in (*named.values(), *buffers(model)) if (x := tensor_memory.readable(each)) is not None
    }
    for name, value in dict.items(state):
        given = tensor_memory.readable(value)
        if given is None or (name in named and not given.numel()) or given.data_ptr() not in own:
            return False
    return True


def _prefix(own: set[str], known: list[str]) -> str:
    """Return the words for names that would fit with another beginning; "" if they would not."""
    for name in known[:LEAST]:
        for mine in own:
            for long, short, said in ((name, mine, "too much"), (mine, name, "too little")):
                if long.endswith(f".{short}"):
                    return f": its names have {long[: -len(short)]!r} {said} in front"
    return ""


def _weights(given: Mapping[str, Any]) -> Breach | None:
    """There is a weight for each sample of the dataset: with fewer, as one for each class, only the first samples are
    ever drawn.
    """
    loader = given.get("self")
    sampler, dataset = attribute(loader, "sampler"), attribute(loader, "dataset")
    weights = attribute(sampler, "weights") if is_a(sampler, WeightedRandomSampler) else None
    given_of, sizes, samples = (
        tensor_memory.readable(weights),
        set(_lengths(dataset)),
        attribute(sampler, "num_samples"),
    )
    if given_of is None or not sizes or type(samples) is not int:
        return None
    count = given_of.numel()
    if count in sizes or count >= max(sizes) or samples < 2 * count:
        return None
    return Breach("weights_of_classes", f"{count} weights for {samples} samples of a pass")


def _lengths(dataset: Any) -> Iterator[int]:
    """Yield the lengths of the tensors, arrays and lists that a dataset holds."""
    for value in list(attributes(dataset).values()):
        for part in [value, *(sequence(value) if is_a(value, tuple) else ())]:
            if (held := tensor_memory.readable(part)) is not None and held.dim():
                yield len(held)
            elif type(part) is list or (type(part) is np.ndarray and part.ndim):
                yield len(part)


CONTRACTS: tuple[Contract, ...] = (
    Contract(
        "torch.utils.data.WeightedRandomSampler",
        DataLoader,
        "__iter__",
        ("self",),
        _weights,
        page="data.html",
        always=True,
    ),
    Contract(
        "torch.nn.Module.load_state_dict",
        nn.Module,
        "load_state_dict",
        ("self", "state_dict", "strict"),
        _loads,
        page="generated/torch.nn.Module.html",
        always=True,
    ),
)
