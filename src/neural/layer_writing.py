"""The pieces that the writers of all backends share: a layer in use, the writers by type, the problems of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from neural.errors import Problem
from neural.layers import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neural.plan import LayerPlan, Plan, Shape

WRITTEN = tuple(family for family in FAMILIES if family not in ("unbuildable", "wrapping"))
"""Families that each backend has a file of writers for; layers that wrap others are written with the network."""


class NotWritten(ValueError):
    """Raised if a backend has no layer that does what the file says; the message ends the sentence "Conv2D ..."."""


class Tensor(Protocol):
    """A tensor of generated code."""

    @property
    def text(self) -> str:
        """The expression that gives it."""

    @property
    def shape(self) -> Shape:
        """Its shape as in the plan: without the batch, the channels last."""


T = TypeVar("T", bound=Tensor)


@dataclass(frozen=True)
class LayerUse(Generic[T]):
    """Hold one layer with the tensors that it reads."""

    layer: LayerPlan
    inputs: tuple[T, ...]

    @property
    def x(self) -> str:
        return self.inputs[0].text

    @property
    def values(self) -> Mapping[str, Any]:
        return self.layer.parameters

    @property
    def shape(self) -> Shape:
        """Return the shape of its first input."""
        return self.inputs[0].shape

    @property
    def channels(self) -> int:
        """Return the size of the last axis of its first input, which the check has found to be known."""
        return int(self.shape[-1] or 0)


@dataclass
class Writing:
    """Collect what the code of one file needs."""

    plan: Plan
    source_lines: Sequence[str] = ()
    problems: list[Problem] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)

    def problem(self, layer: LayerPlan, message: str) -> None:
        """Add a problem at a layer's place in the file."""
        line = layer.span.line
        text = self.source_lines[line - 1] if line <= len(self.source_lines) else ""
        self.problems.append(Problem(f"{layer.type} {message}", self.plan.file, layer.span, text))


def writers(package: str) -> dict[str, Any]:
    """Return the members of a package's families by the canonical names of their types."""
    return {member.type: member for family in WRITTEN for member in import_module(f"{package}.{family}").MEMBERS}


def readers_of(layers: Sequence[LayerPlan]) -> dict[str, list[int]]:
    """Return the places of the layers that read each output, by its name."""
    readers: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(place)
    return readers
