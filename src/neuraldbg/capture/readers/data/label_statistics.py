"""The statistics of one loss's targets over the run: small arrays of each batch in, counts and series out.

Arrays are collected and processed 64 at a time, so that a step pays for a copy and not for the arithmetic.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

Seen = tuple[int, "Ints", "Ints", "Ints"]
"""(step, number of predictions per class, of correct ones, of labels) of one reading."""
CHUNK = 64
"""Batches that are processed together."""
MANY_CLASSES = 1024
"""Classes up to which the labels of single batches are counted; beyond, only those of the run."""
_SERIES = 512
_PREDICTIONS = 64
_LISTED = 64
_SWITCHES = 64
_KINDS = 64
"""Distinct values of real-valued targets that are counted."""


def entropy(counts: npt.NDArray[Any]) -> Floats:
    """Return the entropy in nats of counts along the last axis; 0 for no counts."""
    total = counts.sum(-1, keepdims=True)
    share = counts / np.maximum(total, 1)
    found: Floats = -(share * np.log(np.where(share > 0, share, 1.0))).sum(-1)
    return found


def period(prints: list[int]) -> int:
    """Return the number of batches after which the same ones come again in the same order; 0 if they never do."""
    n = len(prints)
    for candidate in (i for i in range(1, n // 2 + 1) if prints[i] == prints[0]):
        same = sum(a == b for a, b in zip(prints, prints[candidate:], strict=False))
        if same >= 0.95 * (n - candidate):
            return candidate
    return 0


class _Course(ABC):
    """The targets of one loss, collected batch by batch and processed many at a time."""

    def __init__(self) -> None:
        self.batches = 0
        self.prints: list[int] = []
        self._whole = True
        """True while every batch was seen: order and period need neighbours."""
        self._waiting: list[tuple[int, npt.NDArray[Any]]] = []
        self._seen: deque[Seen] = deque(maxlen=_PREDICTIONS)

    def cut(self) -> None:
        """Handle a gap: the known order stays as it is."""
        if self._whole:
            self.settle()
            self._whole = False

    def add(self, step: int, values: npt.NDArray[Any]) -> None:
        """Collect the targets of a batch, or a sample of them."""
        self._waiting.append((step, values))
        if len(self._waiting) >= CHUNK:
            self.settle()

    @abstractmethod
    def settle(self) -> None:
        """Process the collected targets."""


class Classes(_Course):
    """The statistics of the class ids of one loss."""

    def __init__(self, classes: int, ignore: int) -> None:
        super().__init__()
        self.classes, self.ignore = classes, ignore
        self.counts: Ints = np.zeros(max(classes, 1), np.int64)
        self.ignored = self.empty = 0
        self.first_empty: int | None = None
        self.inside = 0.0
        """Sum of the entropies inside the batches, in nats."""
        self.major: list[tuple[int, int]] = []
        """(step, most frequent class) of each batch."""

    @np.errstate(all="ignore")
    def settle(self) -> None:
        """Process the collected targets."""
        waiting, self._waiting = self._waiting, []
        rows: list[Ints] = []
        for step, labels in waiting:
            counts = self._counts(labels)
            kept = int(counts.sum())
            self.ignored += labels.size - kept
            self.batches += 1
            if not kept:
                self.empty += 1
                self.first_empty = step if self.first_empty is None else self.first_empty
                continue
            self.counts += counts
            if self.classes <= MANY_CLASSES:
                rows.append(counts)
                if self._whole and len(self.major) < _SERIES:
                    self.major.append((step, int(counts.argmax())))
                    self.prints.append(hash(labels.tobytes()))
        if rows:
            self.inside += float(entropy(np.stack(rows)).sum())

    def _counts(self, labels: npt.NDArray[Any]) -> Ints:
        """Return the counts of the classes in a batch, without those that the loss ignores."""
        try:
            counts = np.bincount(labels, minlength=self.classes)
        except ValueError as error:  # a negative id: the usual ignore_index is one
            let_pass(error)
            counts = np.bincount(labels[labels >= 0], minlength=self.classes)
        counts = counts[: self.classes]
        if 0 <= self.ignore < self.classes:
            counts[self.ignore] = 0
        return counts

    @np.errstate(all="ignore")
    def predicted(self, step: int, guesses: npt.NDArray[Any], labels: npt.NDArray[Any]) -> None:
        """Count the predictions of the network, and the correct ones."""
        if self.classes > MANY_CLASSES:
            return
        kept = (labels != self.ignore) & (labels >= 0) & (labels < self.classes) & (guesses < self.classes)
        guesses, labels = guesses[kept], labels[kept]
        self._seen.append(
            (
                step,
                np.bincount(guesses, minlength=self.classes),
                np.bincount(labels[guesses == labels], minlength=self.classes),
                np.bincount(labels, minlength=self.classes),
            )
        )

    def fact(self) -> dict[str, Any]:
        """Return the statistics so far."""
        self.settle()
        samples = int(self.counts.sum())
        order = [int(i) for i in np.argsort(-self.counts, kind="stable")[:_LISTED] if self.counts[i]]
        found: dict[str, Any] = {
            "classes": self.classes, "batches": self.batches, "samples": samples,
            "distinct": int((self.counts > 0).sum()),
            "histogram": {str(i): int(self.counts[i]) for i in order}, "ignore": self.ignore,
            "ignored": self.ignored / max(1, self.ignored + samples), "empty": self.empty,
            "first_empty": self.first_empty, "entropy": float(entropy(self.counts)),
        }  # fmt: skip
        if self.major:
            found["batch_entropy"] = self.inside / max(1, self.batches - self.empty)
            found |= self._order()
        if self._seen:
            found["predicted"] = later(self._seen)
        return found

    def _order(self) -> dict[str, Any]:
        major = np.array([m for _, m in self.major])
        changed = np.flatnonzero(np.diff(major)) + 1
        shares = np.bincount(major) / len(major)
        return {
            "same_next": 1 - len(changed) / max(1, len(major) - 1),
            "same_by_chance": float((shares**2).sum()),
            "switches": [self.major[i][0] for i in changed[:_SWITCHES]],
            "period": period(self.prints),
        }


def later(seen: deque[Seen]) -> dict[str, Any]:
    """Return the sums over the later half of the readings of predictions."""
    late = list(seen)[len(seen) // 2 :]
    said, right, labels = (sum(arrays) for arrays in list(zip(*late, strict=True))[1:])
    rows = {
        str(i): [int(labels[i]), int(said[i]), int(right[i])]
        for i in np.argsort(-labels, kind="stable")[:_LISTED]
        if labels[i] or said[i]
    }
    return {"from": late[0][0], "readings": len(late), "classes": rows}


class Numbers(_Course):
    """The statistics of the real-valued targets of one loss."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0
        self.low, self.high = math.inf, -math.inf
        self.total = self.squares = self.spread = 0.0
        self.outside = self.negative = 0
        self.integral = True
        self.values: dict[float, int] | None = {}
        self.means: list[tuple[int, float]] = []

    @np.errstate(all="ignore")
    def settle(self) -> None:
        """Process the collected targets."""
        waiting, self._waiting = self._waiting, []
        for step, given in waiting:
            # Moments are over the finite targets, in float64.
            values = given.astype(np.float64)
            values = values[np.isfinite(values)]
            if not values.size:
                continue
            self.batches += 1
            self.samples += values.size
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
            self.total += float(values.sum())
            self.squares += float((values**2).sum())
            self.spread += float(values.std())
            self.outside += int(((values < 0) | (values > 1)).sum())
            self.negative += int((values < 0).sum())
            self.integral = self.integral and bool((values == np.round(values)).all())
            # Distinct values are counted until there are too many to be classes.
            if self.values is not None:
                kinds, counts = np.unique(values, return_counts=True)
                for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
                    self.values[kind] = self.values.get(kind, 0) + count
                if len(self.values) > _KINDS:
                    self.values = None
            # Order and period need batches in a row.
            if self._whole and len(self.means) < _SERIES:
                self.means.append((step, float(values.mean())))
                self.prints.append(hash(values.tobytes()))

    @np.errstate(all="ignore")
    def predicted(self, step: int, guesses: npt.NDArray[Any], labels: npt.NDArray[Any]) -> None:
        """Count the predictions of the network for a binary loss, and the correct ones."""
        sure = (labels == 0) | (labels == 1)
        guesses, labels = guesses[sure].astype(np.int64), labels[sure].astype(np.int64)
        right = np.bincount(labels[guesses == labels], minlength=2)
        self._seen.append((step, np.bincount(guesses, minlength=2), right, np.bincount(labels, minlength=2)))

    def fact(self) -> dict[str, Any]:
        """Return the statistics so far."""
        self.settle()
        found: dict[str, Any] = {"batches": self.batches, "samples": self.samples}
        if not self.samples:
            return found
        mean = self.total / self.samples
        std = math.sqrt(max(0.0, self.squares / self.samples - mean * mean))
        found |= {
            "min": self.low, "max": self.high, "mean": mean, "std": std, "batch_std": self.spread / self.batches,
            "outside_unit": self.outside / self.samples, "negative": self.negative / self.samples,
            "integral": self.integral, "period": period(self.prints),
        }  # fmt: skip
        if self.values is not None:
            found["values"] = {f"{k:g}": v for k, v in sorted(self.values.items())}
        means = np.array([m for _, m in self.means])
        if len(means) > 2:
            found["means_std"] = float(means.std())
            away = means - means.mean()
            found["means_correlation"] = float((away[1:] * away[:-1]).sum() / max(1e-30, (away**2).sum()))
        if self._seen:
            found["predicted"] = later(self._seen)
        return found
