"""The test if input tokens predict the labels of their own positions, or of the mirrored ones: arrays in, scores out.

A table of the most frequent label of each token, made on one half of the rows, predicts the other half. Shapes: B
sequences, T positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

LABELS = 64
"""Distinct labels beyond which a table of so few positions is no evidence."""
TOKENS = 4096
BATCHES = 8
"""Batches that are kept."""
ENOUGH = 500
"""Labels that must be predicted."""
_ELEMENTS = 65_536


class TokenOrder:
    """Keeps a few batches of tokens and labels."""

    def __init__(self) -> None:
        self._kept: list[tuple[Ints, Ints, Flags]] = []
        self._found: tuple[int, dict[str, Any] | None] = (0, None)

    def add(self, x: Ints, y: Ints, counts: Flags) -> None:
        """Keep tokens (B, T), labels (B, T) and the mask of those that count."""
        if len(self._kept) < BATCHES and x.shape == y.shape and x.size <= _ELEMENTS:
            self._kept.append((x.copy(), y.copy(), counts.copy()))

    def fact(self) -> dict[str, Any] | None:
        """Return the share of labels predicted correctly as given, as mirrored, and by the most frequent label."""
        if self._found[0] != len(self._kept):  # takes some milliseconds, and is needed at each reading
            self._found = (len(self._kept), self._scored())
        return self._found[1]

    def _scored(self) -> dict[str, Any] | None:
        table: list[tuple[Ints, Ints]] = []
        test: list[tuple[Ints, Ints, Ints]] = []
        mirrored: list[tuple[Ints, Ints]] = []
        row = copies = 0
        # Every other row makes the tables, the rest is predicted.
        for x, y, counts in self._kept:
            for tokens, labels, flags in zip(x, y, counts, strict=True):
                here = np.flatnonzero(flags)
                if len(here) < 2 or here[-1] - here[0] != len(here) - 1:
                    continue  # only labels in one piece have a mirrored order
                a, b, row = tokens[here], labels[here], row + 1
                copies += int((a == b[::-1]).sum())
                if row % 2:
                    table.append((a, b))
                    mirrored.append((a, b[::-1]))
                else:
                    test.append((a, b, b[::-1]))
        if not table or not test:
            return None
        # Too few or too many labels give no score.
        tokens, labels, reverse = (np.concatenate([part[i] for part in test]) for i in range(3))
        known = np.concatenate([labels, *(b for _, b in table)])
        highest = max(int(tokens.max()), *(int(a.max()) for a, _ in table))
        if len(labels) < ENOUGH or not 0 <= known.min() <= known.max() < LABELS or not highest < TOKENS:
            return None
        if min(int(tokens.min()), *(int(a.min()) for a, _ in table)) < 0:
            return None
        classes = int(known.max()) + 1
        return {
            "guessed": len(labels),
            "given": _right(table, tokens, labels, highest + 1, classes),
            "mirrored": _right(mirrored, tokens, reverse, highest + 1, classes),
            "base": float(np.bincount(labels).max() / len(labels)),
            "copies": copies / max(1, 2 * len(labels)),
        }


def _right(table: list[tuple[Ints, Ints]], tokens: Ints, labels: Ints, vocabulary: int, classes: int) -> float:
    counts = np.zeros((vocabulary, classes), np.int64)
    for a, b in table:
        np.add.at(counts, (a, b), 1)
    seen = counts.sum(1) > 0
    guess = np.where(seen, counts.argmax(1), int(counts.sum(0).argmax()))
    return float((guess[tokens] == labels).mean())
