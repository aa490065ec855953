"""Changes of weights that no step of their optimizer makes: a few elements of each are kept after a step, and compared
before the next.

All steps are watched in this way, light ones too; in these native code does both (``kernel/outside_changes.h``). A
program that writes to its weights, loads others or gives them new memory is seen at the step at which it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.native import CODES, native
from neuraldbg.capture.parameters.batched_reads import plain
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from neuraldbg.capture.parameters.batched_reads import Refs
    from neuraldbg.capture.statistics.watched_parameter import Watched

KEPT = 4
"""Elements of one weight, evenly spaced; the same as in ``kernel/outside_changes.h``."""
_HALF = 32
"""Weights to a number of bits; the same as there."""
TOLD = 0.1
"""Least change of a weight, relative to its size, that is told; the same as there. Averages, clipping and constraints
of weights stay below it."""
MOST, LEAST = 2 * _HALF, 4
"""Weights that are compared at most and at least, evenly spaced over those of the optimizer."""
UNTOLD = 512
"""Changes that wait at most to be taken."""
_READING_S = 1e-6
"""Seconds that keeping and comparing one weight take: half of it if its properties are in the cache, and three times as
much if nothing is."""
_SHARE = 1 / 3
"""Part of what the gradients of a light step may take that this may take beside it."""


class Changed(NamedTuple):
    """Weights that something else than a step of their optimizer has changed before a step."""

    step: int | None
    """Number of the step, None for the one that is under way."""
    change: float
    """The largest change, relative to the weight's size."""
    names: tuple[str, ...]


class KeptElements:
    """A few elements of some weights of one optimizer. ``seconds`` may be spent on them in each step."""

    def __init__(self, watched: list[Watched], seconds: float) -> None:
        most = max(LEAST, min(MOST, int(_SHARE * seconds / _READING_S)))
        readable = [w for w in watched if w.matrix and _readable(w)] or [w for w in watched if _readable(w)]
        if len(readable) > most:
            readable = [readable[i] for i in np.linspace(0, len(readable) - 1, most).round().astype(int)]
        self._watched, self.of, self.seconds = readable, watched, seconds
        self._refs = tuple(w.weak for w in readable)
        held = [x for w in readable if (x := tensor_memory.local(w.ref)) is not None]
        self._lent = any(map(tensor_memory.lent, held))
        self._kept = np.full((len(readable), KEPT), np.nan)
        self._plan = np.zeros((len(readable), 6), np.int64)
        if readable:
            self._plan[:, 1] = [CODES[x.dtype] for x in held]
            self._plan[:, 2] = [x.numel() for x in held]
            self._plan[:, 5] = int(self._kept.ctypes.data) + KEPT * 8 * np.arange(len(readable))

    @property
    def plan(self) -> tuple[int, Refs, bool]:
        """The address of the plan, valid while this object lives, the weights, and True if some lie in lent memory."""
        return int(self._plan.ctypes.data), self._refs, self._lent

    def holds(self, watched: list[Watched]) -> bool:
        """Return True if these are the parameters that the weights were chosen from."""
        return len(self.of) == len(watched) and all(a is b for a, b in zip(self.of, watched, strict=True))

    def keep(self) -> None:
        """Keep the weights as they are now, after a step."""
        if native is not None and self._refs and not operation.transforming():
            native.keep_weights(*self.plan)
        else:
            self.forget()

    def forget(self) -> None:
        """Keep nothing: what comes before the next step may be a step that was not seen."""
        self._kept.fill(np.nan)

    def changed(self) -> Changed | None:
        """Compare the weights with those after the last step. Return None if none has changed."""
        if native is None or not self._refs or operation.transforming():
            return None
        return self.told(None, *native.changed_weights(*self.plan))

    def told(self, step: int | None, change: float, first: float, second: float) -> Changed | None:
        """Return what native code says of a step: the largest change, and the bits of the changed weights."""
        if not change:
            return None
        bits = int(first) | int(second) << _HALF
        return Changed(step, change, tuple(w.name for i, w in enumerate(self._watched) if bits >> i & 1))


class OutsideChanges:
    """Compares the weights of one optimizer step by step, and holds what has changed until somebody takes it."""

    def __init__(self) -> None:
        self._untold: dict[int | None, Changed] = {}
        """Changes that nobody has taken, by the step before which they came; None for the one under way."""

    def before(self, kept: KeptElements | None, *, alone: bool) -> Changed | None:
        """Return what has changed since the last step. If an optimizer is not ``alone``, nothing is compared: another
        may have stepped its weights.
        """
        if kept is not None and not alone:
            kept.forget()
        self._untold.pop(None, None)
        found = kept.changed() if kept is not None else None
        self.note(found)
        return found

    @staticmethod
    def after(kept: KeptElements | None, held: list[Watched] | None, seconds: float) -> KeptElements | None:
        """Keep elements of the weights after a step, of others if ``held`` names other parameters than before, or more
        ``seconds`` may be spent on it.
        """
        if held is not None and (kept is None or seconds > 2 * kept.seconds or not kept.holds(held)):
            kept = KeptElements(held, seconds)
        if kept is not None:
            kept.keep()
        return kept

    def note(self, changed: Changed | None) -> None:
        """Hold a change, of a step that native code has taken or begun."""
        if changed is not None and len(self._untold) < UNTOLD:
            self._untold[changed.step] = changed

    def take(self, step: int) -> list[Changed]:
        """Return the changes that were not taken yet; ``step`` is the one whose optimizer has just stepped."""
        found, self._untold = self._untold, {}
        return [one if one.step is not None else one._replace(step=step) for one in found.values()]


def _readable(w: Watched) -> bool:
    return plain(w.ref) and w.ref.numel() > 0 and w.trainable
