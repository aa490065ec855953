"""The comparison of a language model's targets with its input tokens: offset between them, padding that counts.

Both are compared exactly, so the results are facts. Shapes: B sequences, T positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.readers.data.token_order import TokenOrder

if TYPE_CHECKING:
    import numpy.typing as npt

    Tokens = npt.NDArray[np.int64]

OFFSETS = (-2, -1, 0, 1, 2)
KINDS = 64
"""Kinds of tokens that are counted."""
SHORT = 4
"""Positions below which a row is no sequence."""


class TokenTargets:
    """The sums over the batches that were compared."""

    def __init__(self) -> None:
        self.batches = self.positions = self.rows = 0
        self._same = dict.fromkeys(OFFSETS, 0)
        self._of = dict.fromkeys(OFFSETS, 0)
        self.padded = self.counted = self.padded_rows = 0
        self._pads: dict[int, int] = {}
        self.mask: dict[str, float] = {}
        self.unlabelled = 0
        """Rows in which no label counts."""
        self.order = TokenOrder()
        self._inside = self._lost = 0
        """Positions inside the sentences (``_inside``), and those whose label is ignored between labels that count
        (``_lost``)."""
        self._lost_tokens: set[int] = set()

    def add(
        self, x: Tokens, y: Tokens, ignore: int, weightless: list[int], mask: npt.NDArray[np.float64] | None = None
    ) -> None:
        """Compare a batch: input tokens (B, T), targets (B, U) with U of T - 2 to T, a mask over them or None."""
        self.batches += 1
        self.rows += len(x)
        # Padding would match at every offset.
        counts = (y != ignore) & ~np.isin(y, weightless)
        width = y.shape[1]
        padded = _pads(x, y)
        for offset in OFFSETS:
            first, last = max(0, -offset), min(width, x.shape[1] - offset)
            here = (counts & ~padded)[:, first:last]
            self._of[offset] += int(here.sum())
            self._same[offset] += int((x[:, first + offset : last + offset] == y[:, first:last])[here].sum())
        self.positions += int(y.size)
        # A position counts if neither ignore_index nor the mask excludes it.
        seen = counts if mask is None else counts & (mask != 0)
        self.counted += int(seen.sum())
        self.unlabelled += int((~seen.any(1)).sum())
        self.order.add(x, y, seen & ~padded)
        if ignore >= 0 and width == x.shape[1]:  # a negative id is a marker; another may be a class
            self._see_lost(x, y == ignore)
        self.padded += int((padded & seen).sum())
        self.padded_rows += int((padded & seen).any(1).sum())
        for token, times in zip(*np.unique(y[padded & seen], return_counts=True), strict=True):
            self._pads[int(token)] = self._pads.get(int(token), 0) + int(times)
        if mask is not None and padded.any() and (~padded).any():
            self.mask = {"padding": float(mask[padded].mean()), "rest": float(mask[~padded & counts].mean())}

    def _see_lost(self, x: Tokens, ignored: npt.NDArray[np.bool_]) -> None:
        """Count ignored labels between labels that count: padding and prompts are at the ends of rows."""
        ends = np.where(x[:, -1] == np.bincount(np.maximum(x[:, -1], 0)).argmax(), _run(x), 0)
        inside = np.arange(x.shape[1])[None] < (x.shape[1] - ends)[:, None]
        counts = ~ignored
        between = np.logical_or.accumulate(counts, 1) & np.logical_or.accumulate(counts[:, ::-1], 1)[:, ::-1]
        lost = ignored & inside & between
        self._inside += int(inside.sum())
        self._lost += int(lost.sum())
        if len(self._lost_tokens) < KINDS:
            self._lost_tokens.update(np.unique(x[lost])[:KINDS].tolist())

    def fact(self) -> dict[str, Any]:
        """Return the shares."""
        found: dict[str, Any] = {
            "batches": self.batches, "positions": self.positions,
            "match": {str(k): self._same[k] / self._of[k] for k in OFFSETS if self._of[k]},
            "compared": self._of[0], "padded": self.padded / max(1, self.counted),
            "padded_rows": self.padded_rows / max(1, self.rows),
        }  # fmt: skip
        found["unlabelled_rows"] = self.unlabelled / max(1, self.rows)
        if self._inside:
            found["lost"] = self._lost / self._inside
            found["lost_kinds"] = len(self._lost_tokens)
        order = self.order.fact()
        if order is not None:
            found["order"] = order
        if self._pads:
            found["pad"] = max(self._pads, key=lambda token: self._pads[token])
        if self.mask:
            found["mask"] = self.mask
        return found


def _pads(x: Tokens, y: Tokens) -> npt.NDArray[np.bool_]:
    """Return the mask of padding in targets (B, U): runs of one token at an end of the rows of both."""
    for flip in (False, True):
        a, b = (x[:, ::-1], y[:, ::-1]) if flip else (x, y)
        runs, ends = _run(a), _run(b)
        many = (runs >= 2) & (ends >= 2) & (runs - ends <= 2)  # a label equal to the padding's may precede it
        if not many.any():
            continue
        tokens, other = a[many, -1], b[many, -1]
        # The same token in all of them, runs of different lengths, and rarely anywhere else: padding, and no content.
        varied = len(np.unique(runs)) > 2 and (tokens == tokens[0]).all() and (other == other[0]).all()
        if not varied or many.mean() < 0.5:
            continue
        length = np.where(many, np.minimum(runs, ends), 0)
        place = np.arange(b.shape[1])[None] >= (b.shape[1] - length)[:, None]
        # An input token that occurs nowhere else is padding, even if the target's is a label elsewhere too.
        inside = np.arange(a.shape[1])[None] < (a.shape[1] - np.where(a[:, -1] == tokens[0], runs, 0))[:, None]
        alone = ((a == tokens[0]) & inside).sum() <= 0.01 * place.sum()
        if not alone and ((b == other[0]) & ~place).sum() > 0.2 * place.sum():
            continue
        return np.asarray(place[:, ::-1] if flip else place)
    return np.zeros(y.shape, bool)


def _run(x: Tokens) -> npt.NDArray[np.int64]:
    """Return the number of equal tokens at the end of each row."""
    same = x[:, ::-1] == x[:, -1:]
    return np.asarray(np.cumprod(same, axis=1).sum(1))
