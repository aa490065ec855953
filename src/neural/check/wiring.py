"""The outputs that layers refer to, and the operands that a merging layer names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neural.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neural.check.expansion import Use
    from neural.check.findings import Findings
    from neural.layers.parameter import Given
    from neural.plan import Shape


@dataclass(frozen=True)
class Wire:
    """Hold the output of a layer, or an input."""

    name: str
    """The name of the layer or input, "" for the input of a block."""
    shape: Shape | None
    """None if a problem hides it."""


ELEMENTWISE = ("Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract")


def elementwise(name: str) -> bool:
    """Return True if a layer merges whole inputs, so that it needs two."""
    return name in ELEMENTWISE


def operands(use: Use, names: Mapping[str, Wire], findings: Findings) -> tuple[tuple[Wire, ...], tuple[Given, ...]]:
    """Return the outputs that a merging layer names, such as `Add("left", "right")`, and its other arguments."""
    if not use.type.merges:
        return (), use.given
    wires: list[Wire] = []
    others = []
    # Strings without a name are operands; all else is a parameter.
    for argument in use.given:
        words = argument.value if isinstance(argument.value, tuple) else (argument.value,)
        if argument.name is not None or not words or not all(isinstance(word, str) for word in words):
            others.append(argument)
            continue
        for word in words:
            if word in names:
                wires.append(names[word])
                continue
            known = ", ".join(list(names)[-8:])
            findings.problem(
                f"no layer, branch or input before this is called {word!r}",
                argument.place,
                expected=f"one of {known}" if known else 'a layer with name="..." before it',
                suggestion=nearest(word, names),
                trail=use.trail,
            )
            wires.append(Wire("", None))
    if len(wires) == 1 and elementwise(use.type.name):
        findings.problem(f"{use.type.name} names one operand", use.span, expected="two names", trail=use.trail)
    return tuple(wires), tuple(others)
