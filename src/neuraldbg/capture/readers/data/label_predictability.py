"""The test if inputs predict targets: a few hundred samples of the first batches in, scores out; numpy only.

The model is kernel ridge regression (a linear and a radial kernel) whose leave-one-out predictions have a closed form
(residual_i = (A y)_i / A_ii with A = (K + lambda I)^-1, see Rasmussen and Williams 2006, section 5.3): one inverse
serves the given targets, permuted ones, and those of other alignments alike.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

SAMPLES = 512
"""Samples that are kept at most: the inverse of such a matrix takes some tens of milliseconds."""
ENOUGH = 128
"""Samples below which there is no score."""
FEATURES = 256
_PERMUTATIONS = 30
_RIDGES = (0.05, 0.5)
_CLASSES = 32
_ORDERED = 5
"""Distinct whole numbers from which their order can be compared with distances."""
_SHIFTS = (-2, -1, 1, 2)


class Reservoir:
    """Samples of inputs and targets in the order of their batches."""

    def __init__(self) -> None:
        self.x: list[Array] = []
        self.y: list[Array] = []
        self.count = 0
        self._found: tuple[int, dict[str, Any]] | None = None

    @property
    def full(self) -> bool:
        """True if no more samples are needed."""
        return self.count >= SAMPLES

    def add(self, x: Array, y: Array) -> None:
        """Keep a batch: features of shape (n, d), targets (n,) of class ids or (n, k) of numbers."""
        if self.x and (x.shape[1:] != self.x[0].shape[1:] or y.shape[1:] != self.y[0].shape[1:]):
            return
        self.x.append(x)
        self.y.append(y)
        self.count += len(x)

    def fact(self) -> dict[str, Any] | None:
        """Return the scores, None with too few samples."""
        if self._found is not None and self._found[0] == self.count:
            return self._found[1]
        found = scores(self.x, self.y)
        if found is not None:
            found |= repeated(self.x, self.y)
            self._found = (self.count, found)
        return found


def repeated(x: list[Array], y: list[Array]) -> dict[str, Any]:
    """Return the number of inputs that came again in a later batch with a class id, and of those with equal class."""
    if not y or y[0].ndim != 1:
        return {}
    first: dict[bytes, tuple[int, int]] = {}
    again = agree = 0
    for batch, (xs, ys) in enumerate(zip(x, y, strict=True)):
        for row, label in zip(xs, ys.tolist(), strict=True):
            known = first.setdefault(row.tobytes(), (batch, label))
            if known[0] != batch:
                again += 1
                agree += known[1] == label
    return {"again": again, "agree": agree}


def scores(xs: list[Array], ys: list[Array]) -> dict[str, Any] | None:
    """Return the score of the given alignment, of permutations and of other alignments inside a batch. None if there
    are too few samples, or the targets are constant.
    """
    x, y = np.concatenate(xs)[:SAMPLES] if xs else np.zeros((0, 1)), np.concatenate(ys)[:SAMPLES] if ys else np.zeros(0)
    # Equal inputs would be predicted by their copies.
    rows = np.unique(x, axis=0, return_index=True)[1] if len(x) else np.zeros(0, np.int64)
    rows.sort()
    if len(rows) < ENOUGH:
        return None
    table = _columns(y)
    if table is None:
        return None
    inverses = inverses_of(x[rows])
    if inverses is None:
        return None
    given = score_of(inverses, table[rows])
    # Permuted targets give the distribution of scores by chance.
    draws = np.random.default_rng(0)
    null = [score_of(inverses, table[rows][draws.permutation(len(rows))]) for _ in range(_PERMUTATIONS)]
    mean, sd = float(np.mean(null)), max(float(np.std(null)), 1e-4)
    # A better score of another alignment shows shuffled or shifted targets.
    others = {name: score_of(inverses, table[order][rows]) for name, order in _alignments(ys, len(y)).items()}
    best = max(others, key=lambda name: others[name], default="")
    found: dict[str, Any] = {
        "samples": len(rows), "features": int(x.shape[1]), "score": given, "null": mean, "null_sd": sd,
        "z": (given - mean) / sd, "spread": spread_of(x[rows]),
    }  # fmt: skip
    order = ordinal(x[rows], y[rows])
    if order is not None:
        found["ordinal"] = order
    if best:
        found |= {"best": best, "best_score": others[best], "best_z": (others[best] - mean) / sd}
    return found


def spread_of(x: Array) -> float:
    """Return the effective share of directions in which inputs vary: 1 for independent numbers, less with structure.

    It is the participation ratio (sum of the eigenvalues of their correlation)^2 / sum of squares, over the value that
    n samples of d independent numbers would give, d / (1 + d / n) (Marchenko and Pastur 1967: the eigenvalues' variance
    is d/n).
    """
    x = x.astype(np.float64)
    spread = x.std(0)
    x = (x - x.mean(0))[:, spread > 1e-9] / spread[spread > 1e-9]
    n, d = x.shape
    if d < 2:
        return 1.0
    products = (x @ x.T if d > n else x.T @ x) / n
    return float(np.trace(products) ** 2 / (products**2).sum() * (1 + d / n) / d)


def ordinal(x: Array, y: Array) -> float | None:
    """Return the correlation of |i - j| with the distance of the mean inputs of targets i and j, from -1 to 1.

    Near 1 for counts and ratings, near 0 for names of classes. None unless targets are some whole numbers without a
    gap.
    """
    if y.ndim != 2 or y.shape[1] != 1 or not np.isfinite(y).all() or (y != np.round(y)).any():
        return None
    kinds = np.unique(y)
    if not (_ORDERED <= len(kinds) <= _CLASSES) or kinds[-1] - kinds[0] != len(kinds) - 1:
        return None
    spread = x.std(0)
    x = (x[:, spread > 1e-9] - x[:, spread > 1e-9].mean(0)) / spread[spread > 1e-9]
    if not x.shape[1]:
        return None
    means = np.stack([x[y[:, 0] == kind].mean(0) for kind in kinds])
    i, j = np.triu_indices(len(kinds), 1)
    distance = np.sqrt(((means[i] - means[j]) ** 2).sum(1))
    return float(np.corrcoef(j - i, distance)[0, 1]) if distance.std() > 0 else None


def _columns(y: Array) -> Array | None:
    """Return targets as columns of numbers, each with some spread; None if there is none."""
    if y.ndim == 1:
        kinds, counts = np.unique(y, return_counts=True)
        if len(kinds) < 2:
            return None
        chosen = kinds[np.argsort(-counts)[:_CLASSES]]
        return np.asarray((y[:, None] == chosen[None]).astype(np.float64))
    y = y.astype(np.float64)
    spread = y.std(0)
    y = y[:, spread > 1e-12]
    return np.asarray((y - y.mean(0)) / y.std(0)) if y.shape[1] and np.isfinite(y).all() else None


def inverses_of(x: Array) -> list[Array] | None:
    """Return the inverse of the kernel of inputs with each ridge; None if they are constant or not finite."""
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        return None
    spread = x.std(0)
    x = (x - x.mean(0))[:, spread > 1e-9] / spread[spread > 1e-9]
    if not x.shape[1]:
        return None
    products = x @ x.T
    squares = np.diag(products)
    distance = np.maximum(squares[:, None] + squares[None] - 2 * products, 0)
    width = float(np.median(distance[~np.eye(len(x), dtype=bool)])) or 1.0
    kernel = products / max(float(squares.mean()), 1e-12) + np.exp(-distance / width)
    return [np.asarray(np.linalg.inv(kernel + ridge * len(x) ** 0.5 * np.eye(len(x)))) for ridge in _RIDGES]


def score_of(inverses: list[Array], y: Array) -> float:
    """Return the best leave-one-out R^2 over the ridges."""
    away = y - y.mean(0)
    total = float((away**2).sum())
    if total <= 0:
        return 0.0
    return max(1 - float((((a @ away) / np.diag(a)[:, None]) ** 2).sum()) / total for a in inverses)


def _alignments(ys: list[Array], count: int) -> dict[str, Array]:
    """Return other orders of the targets: reversed or shifted inside a batch, or those of the batch before or after."""
    bounds = np.cumsum([0, *(len(y) for y in ys)])
    blocks = [np.arange(a, b) for a, b in itertools.pairwise(bounds) if b <= count]
    if not blocks:
        return {}
    rest = np.arange(blocks[-1][-1] + 1, count)
    orders = {"reversed": [b[::-1] for b in blocks]}
    orders |= {f"shifted by {-s:+d}": [np.roll(b, s) for b in blocks] for s in _SHIFTS}
    if len(blocks) > 2 and len({len(b) for b in blocks}) == 1:
        orders["of the batch before"] = blocks[-1:] + blocks[:-1]
        orders["of the batch after"] = blocks[1:] + blocks[:1]
    return {name: np.concatenate([*order, rest]) for name, order in orders.items()}
