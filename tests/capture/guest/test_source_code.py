"""The functions whose code a comparison shows: those that run, their callers, and those that they name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset, Subset

from neuraldbg.capture.guest.source_code import step_code

if TYPE_CHECKING:
    from neuraldbg.capture.guest.user_code import Place


def dropped(optimizer: object, epoch: int) -> None:
    if epoch == 10:
        optimizer.lr /= 10  # type: ignore[attr-defined]


def unfrozen(epoch: int) -> bool:
    return epoch > 4


HOOKS = {"late": unfrozen}


def inner(seen: set[object], hook: object = None) -> dict[str, list[Place]]:
    del hook
    return step_code(seen)


def outer(seen: set[object], hook: object = None) -> dict[str, list[Place]]:
    dropped(None, 0)
    return inner(seen, hook)


def test_functions_of_the_callers_and_those_given_later_are_read():
    seen: set[object] = set()
    first = outer(seen)
    assert "    if epoch == 10:" in [place.code for place in first["code above dropped"]]
    assert next(iter(first)) == "code of inner"  # the innermost comes first
    assert {"code above outer", "code above test_functions_of_the_callers_and_those_given_later_are_read"} <= set(first)
    later = outer(seen, HOOKS["late"])
    assert [place.code.strip() for place in later["code above unfrozen"]][1:] == ["return epoch > 4"]
    assert not outer(seen, HOOKS["late"])


class Scaled:
    def __call__(self, x: float) -> float:
        return turned(x) / 255


def turned(x: float) -> float:
    return -x


class Samples(Dataset[float]):
    touched = 0

    def __init__(self) -> None:
        self.transform, self.rows = Scaled(), list(range(9))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> float:
        type(self).touched += 1
        return self.transform(self.rows[index]) * 3

    @property
    def costly(self) -> object:
        raise AssertionError


def joined(batch: list[float]) -> torch.Tensor:
    return torch.tensor(batch) + 0.5


class Trainer:
    def __init__(self) -> None:
        self.loader = DataLoader(Subset(Samples(), range(8)), batch_size=4, collate_fn=joined)

    def fit(self) -> dict[str, list[Place]]:
        for _ in self.loader:
            return step_code(set())
        return {}


def test_what_makes_the_samples_of_a_loader_is_read_and_not_run():
    loader = DataLoader(Samples(), batch_size=3)
    touched = Samples.touched
    here = step_code(set())
    assert Samples.touched == touched
    assert len(loader) == 3
    assert "return self.transform(self.rows[index]) * 3" in lines_of(here, "Samples.__getitem__")
    found = Trainer().fit()  # the loader is an attribute, the dataset within a Subset
    assert "return self.transform(self.rows[index]) * 3" in lines_of(found, "Samples.__getitem__")
    assert "return turned(x) / 255" in lines_of(found, "Scaled.__call__")
    assert "return -x" in lines_of(found, "turned")
    assert "return torch.tensor(batch) + 0.5" in lines_of(found, "joined")


def lines_of(found: dict[str, list[Place]], name: str) -> list[str]:
    name = name if sys.version_info >= (3, 11) else name.rpartition(".")[2]
    return [place.code.strip() for kind, places in found.items() if kind.endswith(f" {name}") for place in places]
