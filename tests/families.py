"""Tests of which each tells little beside the others of its family: `make test` runs some, `make long` the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def some(members: Iterable[Any], every: int) -> list[Any]:
    """Return the parameters of a family, all but the first and each ``every``-th after it marked `long`."""
    made = []
    for at, one in enumerate(members):
        known = isinstance(one, type(pytest.param()))
        values = one.values if known else one if isinstance(one, tuple) else (one,)
        marks = [*(one.marks if known else ()), *([pytest.mark.long] if at % every else [])]
        made.append(pytest.param(*values, marks=marks, id=one.id if known else None))
    return made
