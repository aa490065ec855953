"""The updates of parameters that are recorded by hand: the difference to their values in the step before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.toolbox.given_arrays import Given

PART = 4096
"""Elements of a parameter that are compared where there is no room to keep all of them."""


class ParameterUpdates:
    """Keeps the newest values of parameters, in ``budget`` bytes at most: beyond them a part of each."""

    def __init__(self, budget: int) -> None:
        self._budget, self._held = budget, 0
        self._known: dict[str, Given] = {}

    def update(self, name: str, found: Given) -> tuple[Given, Given] | None:
        """Return a parameter as it was when this was last called for it, and its change since then; both of a part of
        it where not all was kept. None at the first call, and if its shape is another.
        """
        before = self._known.pop(name, None)
        self._held -= before.values.nbytes if before is not None else 0
        fits = self._held + found.values.nbytes <= self._budget
        now = (found if fits else found.spaced(PART)).copied()
        self._known[name] = now
        self._held += now.values.nbytes
        if before is None or before.shape != now.shape or now.values.dtype.kind not in "fc":
            return None
        old, new = before, now
        if old.every != new.every:
            old, new = before.spaced(PART), now.spaced(PART)
        if old.every != new.every:
            return None
        with np.errstate(all="ignore"):
            return old, replace(new, values=new.values - old.values)
