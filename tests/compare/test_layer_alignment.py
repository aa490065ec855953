"""Which layer of the one run is which of the other: renamed, moved, inserted, removed, or another model altogether."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.compare.paired_trainings import Net, Plan, changed, named, sequence, train
from torch import nn

from neuraldbg.compare import compare
from neuraldbg.compare.layers import match


@pytest.fixture(scope="module")
def base():
    return train(Plan())


@pytest.fixture(scope="module")
def numbered():
    return train(Plan(make=sequence))


def pairs(found):
    return {pair.one: pair.other for pair in found.paired if pair.how == "structure"}


class Renamed(nn.Module):
    """Net with other names, one of them a level deeper, made in the same order from the same random numbers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.dropout = nn.Dropout(0.0)
        self.middle = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.middle(self.dropout(self.stem(x)))))


def test_renamed_layers_with_the_same_weights_are_identical_and_told(base):
    found = compare(base, changed(make=Renamed))
    assert found.verdict == "identical"
    assert pairs(found) == {"fc1": "stem.0", "act": "stem.1", "drop": "dropout", "fc2": "middle"}
    assert found.only == ((), ())
    assert found.compared.sites == len(base.layout.sites)
    back = compare(changed(make=Renamed), base)
    assert pairs(back) == {other: one for one, other in pairs(found).items()}
    assert back.verdict == "identical"


def test_names_in_place_of_numbers(numbered):
    found = compare(numbered, changed(make=lambda: named("a", "b", "c", "d", "e")))
    assert pairs(found) == dict(zip("01234", "abcde", strict=True))
    assert found.verdict == "identical"


@pytest.mark.parametrize("at", [0, 1, 2, 4, 5])
def test_an_inserted_layer_that_changes_nothing(numbered, at):
    """The numbers behind it shift by one, and no layer is taken for its neighbour."""
    found = compare(numbered, changed(make=lambda: sequence((at, nn.Identity()))))
    assert found.only == ((), (str(at),))
    assert pairs(found) == {str(n): str(n + 1) for n in range(at, 5)}
    assert found.verdict == "identical"


def test_two_layers_inserted_so_that_numbers_of_one_type_meet(numbered):
    """There is a Tanh at number 1 and at number 5 that was not there: the ReLU behind it moved by three."""

    def make():
        torch.manual_seed(0)
        plain = sequence()
        return nn.Sequential(plain[0], nn.Identity(), nn.Dropout(0.0), *plain[1:3], nn.Tanh(), *plain[3:])

    found = compare(numbered, changed(make=make))
    assert pairs(found) == {"1": "3", "2": "4", "3": "6", "4": "7"}
    assert found.only == ((), ("1", "2", "5"))


def test_an_inserted_layer_that_changes_the_computation_is_the_place_of_the_divergence(numbered):
    found = compare(numbered, changed(make=lambda: sequence((2, nn.LayerNorm(16, elementwise_affine=False)))))
    assert found.only == ((), ("2",))
    assert (found.first.step, found.first.kind) == (0, "activation")
    assert (found.first.layer, found.first.other_layer) == ("2", "3")  # the first behind it
    assert "LayerNorm" in str([s.other for s in found.settings if s.name == "layer"])


def test_a_removed_layer(numbered):
    def make():
        torch.manual_seed(0)
        layers = list(sequence())
        return nn.Sequential(*layers[:3], layers[4])

    found = compare(numbered, changed(make=make))
    assert found.only == (("3",), ())
    assert pairs(found) == {"4": "3"}


def test_a_wider_layer_keeps_its_place(base):
    class Wide(Net):
        def __init__(self):
            super().__init__()
            self.fc2, self.head = nn.Linear(16, 32), nn.Linear(32, 3)

    found = compare(base, changed(make=Wide))
    assert found.only == ((), ())
    assert pairs(found) == {}
    told = {(s.layer, s.name): (s.one, s.other) for s in found.settings if s.layer}
    assert told == {("fc2", "layer out_features"): (16, 32), ("head", "layer in_features"): (16, 32)}
    assert (found.first.layer, found.first.stat) == ("fc2", "total")


def test_what_cannot_be_told_apart_is_listed_and_not_guessed():
    """Of two equal layers that became one there are two ways to pair it."""

    class Pair(nn.Module):
        def __init__(self, *names):
            super().__init__()
            self.names = names
            for name in names:
                self.add_module(name, nn.Linear(8, 8))
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            for name in self.names:
                x = getattr(self, name)(x)
            return self.head(x)

    found = compare(changed(make=lambda: Pair("one", "two")), changed(make=lambda: Pair("single")))
    assert pairs(found) == {}
    assert found.only == (("one", "two"), ("single",))


def test_a_block_that_was_moved_into_another_module(base):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = Net()

        def forward(self, x):
            return self.backbone(x)

    found = compare(base, changed(make=Outer))
    assert pairs(found) == {name: f"backbone.{name}" for name in ("fc1", "act", "drop", "fc2", "head")}
    assert found.verdict == "identical"


def test_one_more_block_of_the_same_kind_keeps_the_names_of_the_others():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x):
            return x + self.fc(self.norm(x))

    def tower(n):
        def make():
            torch.manual_seed(0)
            return nn.Sequential(*[Block() for _ in range(n)])

        return changed(make=make)

    found = compare(tower(3), tower(4))
    assert pairs(found) == {}
    assert found.only == ((), ("3.norm", "3.fc"))


def test_different_models_are_called_so(base):
    def make():
        return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 3))

    found = compare(base, changed(make=make))
    assert found.summary.startswith("The models are different: 0 of 5 and 4 layers match.")
    assert found.compared.sites == 1  # the input
    assert found.first.kind == "loss"
    assert "no output of a layer was read in both" in found.first.reading


def test_the_order_of_the_pairs_is_that_of_the_layouts(base):
    """Every layer is matched with itself, whatever order the table of layers has."""
    turned = replace(base, layout=replace(base.layout, layers=base.layout.layers[::-1]))
    assert match(base, turned).pairs == {layer.path: layer.path for layer in base.layout.layers}
