"""Runs of equal batches: they show a loader whose workers all do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import dataloader

from neuraldbg.capture.guest.live_objects import living

if TYPE_CHECKING:
    from torch import Tensor

_RUN = 16
"""Largest number of equal passes in a row that indicates workers: a longer run repeats the batch on purpose."""


class Pass(NamedTuple):
    """The values kept of one pass until it is processed."""

    step: int
    size: int
    evaluating: bool
    burst: int
    fresh: bool
    """True if the tensor is another object than that of the pass before."""
    source: int
    """Identity of the dataset that a DataLoader took the batch from, 0 if there was none."""
    rows: Tensor


class Runs:
    """Equal training passes in a row, and the loader with workers behind them."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.length = 0
        self.first = -1
        self.lengths: dict[int, int] = {}
        self.began = -1
        self.passes = 0
        self.reused = 0
        """Passes that were given the same tensor object as the pass before: a batch reused on purpose."""
        self.workers: dict[str, Any] | None = None
        self._whole = True
        """True if the beginning of the current run was seen."""

    def cut(self) -> None:
        """Handle a gap: neither the run before it nor the one after it is known from end to end."""
        self.last, self.length, self._whole = None, 0, False

    def add(self, whole: int, one: Pass) -> None:
        """Record a pass by the hash of its batch."""
        self.passes += 1
        if whole == self.last:
            self.length += 1
            self.reused += not one.fresh
            if self.began < 0:
                self.began = one.step
            return
        if self.last is not None and self._whole:
            self.lengths[min(self.length, _RUN + 1)] = self.lengths.get(min(self.length, _RUN + 1), 0) + 1
            if self.length > 1 and self.workers is None and sum(self.lengths.values()) >= 3:
                self.workers = _workers()
        self._whole = self._whole or self.last is not None
        self.last, self.length = whole, 1

    def fact(self) -> dict[str, Any]:
        """Return the lengths of runs, and the facts about the workers."""
        return {
            "lengths": {str(length): count for length, count in sorted(self.lengths.items())},
            "first": self.began,
            "reused": self.reused,
            "workers": self.workers,
        }


def _workers() -> dict[str, Any] | None:
    """Return a description of the running loader with workers, None if there is none or several."""
    kind = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)  # nothing public tells
    found = living(kind) if kind is not None else ()
    if len(found) != 1:
        return None
    one = found[0]
    return {
        "workers": int(one._num_workers),  # noqa: SLF001 (nothing public tells)
        "iterable": type(one._dataset).__name__ if one._dataset_kind == 1 else "",  # noqa: SLF001
        "dataset": type(one._dataset).__name__,  # noqa: SLF001
    }
