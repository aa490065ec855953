"""Hashes of samples, kept in a set of constant size from which shares can still be estimated.

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
"""Values of a sample that are hashed."""
ROWS = 64
"""Samples of a forward pass that are hashed."""
KEPT = 4096
"""Hashes that a sketch keeps at most."""
_IDS = 1_000_000
_CHANCES = 2
"""Equal samples that are needed to estimate a share."""
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
    """Return a hash for each row, shape (N,): equal rows have equal hashes."""
    exact = np.ascontiguousarray(rows, dtype=np.float32) + np.float32(0)  # + 0 makes -0 equal 0
    bits = exact.view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits + np.uint64(1)) * _MIX[: bits.shape[1]]
        mixed ^= mixed >> np.uint64(29)
        total = mixed.sum(axis=1, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        total ^= total >> np.uint64(32)
        spread: Hashes = total * np.uint64(0x94D049BB133111EB)
    return spread


def padded(ids: Tensor) -> Tensor | None:
    """Return the mask of padding in a batch of ids, shape (N, T): runs of one and the same id at the ends of rows, of
    different lengths. None if the rows do not end so.
    """
    if ids.dim() != 2 or ids.shape[0] < 4 or ids.shape[1] < 4 or ids.numel() > _IDS:
        return None
    last = ids[:, -1].mode().values
    run = (ids == last).flip(1).long().cumprod(1).flip(1).bool()
    lengths = run.sum(1)
    ending = int((lengths > 1).sum())
    inside = bool(((ids == last) & ~run).any())  # padding is at ends only; a frequent word is everywhere
    if inside or 4 * ending < ids.shape[0] or len(lengths.unique()) < 3:
        return None
    return run


class Sketch:
    """The hashes below a threshold, among all that were added."""

    def __init__(self) -> None:
        self.limit = _FULL
        self.seen: set[int] = set()

    def add(self, found: Hashes) -> int:
        """Add hashes; return the number of those below the threshold that were there already."""
        low = found[found <= self.limit].tolist()
        known = sum(1 for each in low if each in self.seen)
        self.seen.update(low)
        while len(self.seen) > KEPT:
            self.limit = np.uint64(int(self.limit) // 2)
            self.seen = {each for each in self.seen if each <= self.limit}
        return known

    @property
    def size(self) -> float:
        """Estimated number of different hashes that were added."""
        return len(self.seen) * float(_FULL) / float(self.limit)

    def below(self, found: Hashes) -> Hashes:
        """Return the hashes that are below the threshold."""
        return found[found <= self.limit]

    def share(self, found: Hashes) -> tuple[int, int]:
        """Return (hashes that are in the sketch, hashes that are below its threshold)."""
        low = self.below(found).tolist()
        return sum(1 for each in low if each in self.seen), len(low)


class Chance:
    """Estimates the share of different samples that are equal by chance, from the passes of the first epoch."""

    def __init__(self) -> None:
        self.whole = True
        """True as long as all values are whole numbers: words, counts, codes."""
        self._open = True
        self._known = self._all = 0

    def add(self, rows: Floats, known: int, count: int) -> None:
        """Count a training pass: ``known`` of ``count`` different samples were seen before."""
        if not self._open:
            return
        self.whole = self.whole and bool((rows == np.rint(rows)).all())
        if 2 * known >= count:  # the next epoch has begun
            self._open = False
            return
        self._known += known
        self._all += count

    def close(self) -> None:
        """Stop counting: from now on not all passes are hashed."""
        self._open = False

    def share(self, size: float) -> float:
        """Return the share of samples that equal another one among ``size`` different ones, 0 if it is not known.

        Of S samples, S^2 / 2 pairs were compared. Samples drawn with replacement come back because of that: the share
        is then near 1, and means nothing. Numbers that are not whole are not equal by chance.
        """
        if not self.whole or self._known < _CHANCES:
            return 0.0
        known = self._known + 2.0 * self._known**0.5  # upper bound of a small count: two standard deviations
        share = 2.0 * known * size / self._all**2
        return share if share < _REPLACED else 0.0
