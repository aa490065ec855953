"""Fingerprints of samples, kept in a set of constant size from which shares can still be told.

A row of at most 64 evenly spaced values goes in; a 64-bit number comes out that is the same for the same values, in
whatever batch they come. ``Sketch`` keeps the numbers below a threshold that falls as it fills (a bottom-k sketch:
Broder 1997, On the resemblance and containment of documents), so that two sketches can be compared fairly however many
samples went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    Hashes = npt.NDArray[np.uint64]
    Floats = npt.NDArray[np.float32]

WIDTH = 64
"""Values of a sample that are looked at."""
ROWS = 64
"""Samples of a pass that are looked at."""
KEPT = 4096
"""Hashes in a sketch."""
_IDS = 1_000_000
_CHANCES = 2
"""Equal samples from which a share can be told."""
_REPLACED = 0.5
_FULL = np.uint64(2**64 - 1)
_MIX = np.asarray([(0x9E3779B97F4A7C15 * (2 * i + 1)) % 2**64 for i in range(WIDTH)], dtype=np.uint64)


def excerpt(x: Tensor, turn: int = 0) -> Tensor:
    """Return a small copy of a batch, shape (at most ROWS, at most WIDTH): the same values of a sample in any batch.

    Of a large batch other rows are taken at each ``turn``, so that none is always left out.
    """
    x = x.detach()
    n = x.shape[0]
    if n > ROWS:
        stride = -(-n // ROWS)
        x = x[turn % stride :: stride]
    if x.dim() == 1:
        return x[:, None].clone()
    flat = x.reshape(x.shape[0], -1) if x.dim() > 2 else x
    width = flat.shape[1]
    if width > WIDTH:
        flat = flat[:, width % WIDTH // 2 :: width // WIDTH][:, :WIDTH]
    return flat.clone()


def hashes(rows: Floats) -> Hashes:
    """Return a number for each row, shape (N,): equal rows have equal numbers."""
    exact = np.ascontiguousarray(rows, dtype=np.float32) + np.float32(0)  # -0 is 0
    bits = exact.view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits + np.uint64(1)) * _MIX[: bits.shape[1]]
        mixed ^= mixed >> np.uint64(29)
        total = mixed.sum(axis=1, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        total ^= total >> np.uint64(32)
        spread: Hashes = total * np.uint64(0x94D049BB133111EB)
    return spread


def padded(ids: Tensor) -> Tensor | None:
    """Return which positions of a batch of ids, shape (N, T), are padding: runs of one and the same id at the ends of
    rows, of different lengths; None where the rows do not end so.
    """
    if ids.dim() != 2 or ids.shape[0] < 4 or ids.shape[1] < 4 or ids.numel() > _IDS:
        return None
    last = ids[:, -1].mode().values
    run = (ids == last).flip(1).long().cumprod(1).flip(1).bool()
    lengths = run.sum(1)
    ending = int((lengths > 1).sum())
    inside = bool(((ids == last) & ~run).any())  # padding stands at ends only; a frequent word stands everywhere
    if inside or 4 * ending < ids.shape[0] or len(lengths.unique()) < 3:
        return None
    return run


class Sketch:
    """The hashes below a threshold, among all that were put in."""

    def __init__(self) -> None:
        self.limit = _FULL
        self.seen: set[int] = set()

    def add(self, found: Hashes) -> int:
        """Put hashes in; returns how many of those below the threshold were there already."""
        low = found[found <= self.limit].tolist()
        known = sum(1 for each in low if each in self.seen)
        self.seen.update(low)
        while len(self.seen) > KEPT:
            self.limit = np.uint64(int(self.limit) // 2)
            self.seen = {each for each in self.seen if each <= self.limit}
        return known

    @property
    def size(self) -> float:
        """About how many different hashes went in."""
        return len(self.seen) * float(_FULL) / float(self.limit)

    def below(self, found: Hashes) -> Hashes:
        """Return those hashes that would be in it, had they been put in."""
        return found[found <= self.limit]

    def share(self, found: Hashes) -> tuple[int, int]:
        """Return how many of the hashes are in it, and how many could be."""
        low = self.below(found).tolist()
        return sum(1 for each in low if each in self.seen), len(low)


class Chance:
    """How often two different samples are equal by chance, told from the first passes, before any sample returns."""

    def __init__(self) -> None:
        self.whole = True
        """Whether all values are whole numbers: words, counts, codes."""
        self._open = True
        self._known = self._all = 0

    def add(self, rows: Floats, known: int, count: int) -> None:
        """Note a training pass: of ``count`` different samples so many had come before."""
        if not self._open:
            return
        self.whole = self.whole and bool((rows == np.rint(rows)).all())
        if 2 * known >= count:  # the next epoch has begun
            self._open = False
            return
        self._known += known
        self._all += count

    def close(self) -> None:
        """From now on not all passes are looked at."""
        self._open = False

    def share(self, size: float) -> float:
        """Return the share of samples that equal another one among ``size`` different ones, as far as it is known.

        Of S samples, S^2 / 2 pairs were compared. Samples that are drawn with replacement return by that: then the
        share comes out near 1, and says nothing. Numbers that are not whole are not equal by chance.
        """
        if not self.whole or self._known < _CHANCES:
            return 0.0
        known = self._known + 2.0 * self._known**0.5  # few were counted: what they may stand for at most
        share = 2.0 * known * size / self._all**2
        return share if share < _REPLACED else 0.0
