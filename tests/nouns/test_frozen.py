"""Frozen classes without generated code behave as dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from neuraldbg.nouns.fact import IDENTITY, FactKey
from neuraldbg.nouns.facts import MEMBERS, type_of
from neuraldbg.nouns.facts.known import layout
from neuraldbg.nouns.frozen import frozen


@frozen
class Point:
    x: int
    names: dict[str, int] = dataclasses.field(default_factory=dict)
    y: float = 2.0


@frozen
class Named(Point):
    name: str = ""


@frozen(kw_only=False)
class Noted:
    x: int
    note: str = dataclasses.field(default="", compare=False, repr=False)


@frozen(kw_only=False)
class Placed:
    x: int
    y: float = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usual:
    x: int
    y: float = 2.0


def test_it_is_a_dataclass():
    one = Named(x=1, name="a")
    assert repr(one) == "Named(x=1, names={}, y=2.0, name='a')"
    assert [field.name for field in dataclasses.fields(one)] == ["x", "names", "y", "name"]
    assert dataclasses.asdict(one) == {"x": 1, "names": {}, "y": 2.0, "name": "a"}
    assert dataclasses.replace(one, x=3) == Named(x=3, name="a") != one
    assert one != Point(x=1)
    assert Point(x=1).names is not Point(x=1).names
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_it_is_hashed_by_its_values():
    names = frozenset({"a"})
    assert hash(Point(x=1, names=names)) == hash(Point(x=1, names=names)) != hash(Point(x=2, names=names))


@pytest.mark.parametrize("values", [{}, {"y": 1.0}, {"x": 1, "z": 2}])
def test_wrong_fields_are_the_same_error_as_of_a_dataclass(values):
    for cls in (Point, Usual):
        with pytest.raises(TypeError):
            cls(**values)


def test_fields_can_be_given_by_position_if_the_class_says_so():
    assert Placed(1, 3.0) == Placed(1, y=3.0) == Placed(x=1, y=3.0) != Placed(1)
    for wrong in (lambda: Placed(1, 2.0, 3), lambda: Placed(1, x=1), lambda: Point(1)):
        with pytest.raises(TypeError):
            wrong()


def test_nothing_can_be_set_or_deleted():
    one = Point(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x
    assert one.x == 1


def test_every_kind_of_fact_has_its_class_and_its_identity_is_among_its_fields():
    assert {key.value for key in FactKey} == set(MEMBERS) >= set(IDENTITY)
    for key in MEMBERS:
        cls = type_of(key)
        assert cls is not None
        assert key == cls.KEY
        assert set(IDENTITY.get(key, ())) <= {field.name for field in layout(cls)}, key
    assert type_of("of a later version") is None


def test_fields_that_are_no_part_of_it_are_neither_compared_nor_shown():
    one, other = Noted(1, note="a"), Noted(1, note="b")
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "Noted(x=1)"
