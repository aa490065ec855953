"""A group of tensors of one device that is read at every step, by a plan that is made once and updated as they change.

With Triton a reading is one launch per dtype; without it torch reads one tensor after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.table import Kept, capturing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from neuraldbg.capture.statistics.device.launch import Batch
    from neuraldbg.capture.statistics.device.table import DeviceTable


class Many:
    """A group of tensors, all ``placement.plain``, and their rows in the table of their device.

    ``like`` are tensors with the dtype and size of those to read. ``caps`` is the largest number of elements to read of
    each (0 reads all). ``updates`` are the rows for the changes made by a step, None if these are not read.
    """

    def __init__(
        self,
        table: DeviceTable,
        like: Sequence[Tensor],
        rows: Sequence[int],
        caps: Sequence[int],
        updates: Sequence[int] | None = None,
    ) -> None:
        self._table, self._rows, self._caps, self._updates = table, list(rows), list(caps), updates
        self._forms = [(x.dtype, x.numel()) for x in like]
        self._batch: Batch | None = None
        self._kept: Kept | None = None

    def observe(self, tensors: Sequence[Tensor | None], moved: int = 0) -> None:
        """Set the rows; None is skipped. Keep the values that were read if there are ``updates``. A second reading in
        one step replaces the first. The blocks of a sampled tensor advance with ``moved``.
        """
        keep = self._updates is not None
        if self._table.kind == "torch" or capturing(self._table.device):
            tensors = [x.detach() if x is not None else None for x in tensors]
            samples = self._table.set_each(tensors, self._rows, self._caps, keep=keep)
            self._kept = Kept(tensors, self._caps, self._updates, samples) if self._updates is not None else None
            return
        from neuraldbg.capture.statistics.device import triton_kernels  # noqa: PLC0415 (imports Triton)

        batch = self._planned(tensors)
        batch.launch(tensors, triton_kernels.KEEP if keep else triton_kernels.OBSERVE, self._table.turn, moved)
        self._kept = Kept(tensors, self._caps, self._updates, batch) if self._updates is not None else None

    def compare(self, tensors: Sequence[Tensor | None]) -> None:
        """Set the rows ``updates`` to the statistics of the tensors minus their kept values."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._table.difference_many(
                [x.detach() if x is not None and placement.plain(x) else None for x in tensors], kept
            )

    def forget(self) -> None:
        """Drop the kept values: they do not belong to the next step."""
        self._kept = None

    def _planned(self, tensors: Sequence[Tensor | None]) -> Batch:
        """Return the plan for the tensors; make a new one where a size or dtype has changed. All are dense and read in
        memory order, so nothing else matters.
        """
        forms = [was if x is None else (x.dtype, x.numel()) for x, was in zip(tensors, self._forms, strict=True)]
        if self._batch is None or forms != self._forms:
            self._forms = forms
            self._batch = self._made()
        return self._batch

    def _made(self) -> Batch:
        from neuraldbg.capture.statistics.device.launch import Batch, Member  # noqa: PLC0415 (imports Triton)

        updates = self._updates if self._updates is not None else self._rows
        members = [
            Member(dtype, numel, cap, row, update)
            for (dtype, numel), cap, row, update in zip(self._forms, self._caps, self._rows, updates, strict=True)
        ]
        return Batch(self._table.table, members, keep=self._updates is not None)
