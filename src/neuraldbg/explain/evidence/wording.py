"""The wording of numbers and names in evidence, the same for every cause."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.nouns.layout import NUMBERED, called

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized


def number(value: float) -> str:
    """Write a measured number as a person would: ``0.00123``, ``2.3``, ``12,300``, ``4.1e7``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value)) if abs(value) < 1e4 else f"{int(value):,}"
    if 1e3 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    if 1e-4 <= abs(value) < 1e3:
        return f"{value:.3g}"
    return powered(value)


def setting_value(value: float) -> str:
    """Write the value of a setting; one just below 1, as a momentum, with the digits that tell it from 1."""
    return f"{value:.6g}" if 0.99 < value < 1 else number(value)


def moved(ratio: float) -> str:
    """Write the scalar ``update_ratio`` with its meaning: ``0.034 of the weights (median over weight matrices)``. Views
    show each layer, and some layers have a larger ratio.
    """
    return f"{number(ratio)} {'times' if ratio >= 1 else 'of'} the weights (median over weight matrices)"


def literal(value: float) -> str:
    """Write a number for code: three significant digits, no separators."""
    return f"{value:.3g}"


def powered(value: float) -> str:
    """Write a very large or very small number with two digits and a power of ten: ``2.9e7``, ``3e-8``."""
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def percent(share: float) -> str:
    """Write a share between 0 and 1 as a percentage: ``97%``; never a false ``100%`` or ``0%``."""
    if 0.99 < share < 1:
        return ">99%"
    if 0 < share < 0.01:
        return "<1%"
    return f"{share:.0%}"


def listing(names: Iterable[str], limit: int = 3) -> str:
    """Write names for a sentence: ``fc1.weight, fc1.bias and 4 more``; ``layers 0, 2 and 4`` of numbers."""
    every = list(names)
    numbered = all(NUMBERED.fullmatch(name) for name in every)
    said = every if numbered else [called(name) for name in every]
    if len(said) <= limit + 1:
        text = " and ".join(filter(None, [", ".join(said[:-1]), said[-1] if said else ""]))
    else:
        text = f"{', '.join(said[:limit])} and {len(said) - limit} more"
    return f"layer{'s' if len(said) > 1 else ''} {text}" if numbered and said else text


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 step``, ``3 steps``, ``5,509 steps``."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def a_step(since: int | None, until: int) -> str:
    """Write the step of a change that came after ``since`` and by ``until``: ``step 810``, or ``a step between 512 and
    810``.
    """
    return f"step {until}" if since is None or until <= since + 1 else f"a step between {since} and {until}"


def verb(names: Sized, one: str, several: str) -> str:
    """Return the form of a verb that fits one name, or several: ``is``, ``are``."""
    return one if len(names) == 1 else several


def rounded(value: float) -> str:
    """Write a value to try, such as a learning rate, with one significant digit: ``0.03``, ``2e-05``."""
    return f"{value:.0e}" if value < 1e-3 else f"{float(f'{value:.0e}'):g}"
