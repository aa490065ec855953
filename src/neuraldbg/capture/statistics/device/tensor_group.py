"""A group of tensors of one device that is read at every step; a single tensor is a group of one.

With Triton a reading is one launch per dtype, by a plan (``launch.py``) that is made once and updated as the tensors
change; without it, and while a CUDA graph is captured, one tensor is read after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import block_layout, placement
from neuraldbg.capture.statistics.device.table import capturing, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from neuraldbg.capture.statistics.device.launch import LaunchPlan
    from neuraldbg.capture.statistics.device.table import DeviceTable


class TensorGroup:
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
        self._plan: LaunchPlan | None = None
        self._kept: LaunchPlan | list[Tensor | None] | None = None
        """The plan whose arena holds the values that were read, or the samples themselves; None if none are kept."""
        self._layouts: list[object] = []
        """The layouts of the tensors whose values are kept."""

    def observe(self, tensors: Sequence[Tensor | None], moved: int = 0) -> None:
        """Set the rows, into which nothing else may be read in this step; None is skipped. Keep the values that were
        read if there are ``updates``. A second reading in one step replaces the first. The blocks of a sampled tensor
        advance with ``moved``.
        """
        keeps = self._updates is not None
        kept: LaunchPlan | list[Tensor | None]
        if self._table.kind == "torch" or capturing(self._table.device):
            tensors = [x.detach() if x is not None else None for x in tensors]
            kept = self._set_each(tensors, self._rows, self._caps, keep=keeps)
        else:
            from neuraldbg.capture.statistics.device import triton_kernels  # noqa: PLC0415 (imports Triton)

            kept = self._planned(tensors)
            kept.launch(tensors, triton_kernels.KEEP if keeps else triton_kernels.OBSERVE, self._table.turn, moved)
        if keeps:
            self._kept, self._layouts = kept, [layout(x) for x in tensors]

    def compare(self, tensors: Sequence[Tensor | None]) -> None:
        """Set the rows ``updates`` to the statistics of the tensors minus their kept values.

        Narrow dtypes are subtracted in float32. None is skipped, and so is a tensor whose dtype, shape or strides have
        changed: other places would be read.
        """
        kept, self._kept = self._kept, None
        if kept is None or self._updates is None:
            return
        plain = [x.detach() if x is not None and placement.plain(x) else None for x in tensors]
        same = [x if layout(x) == was else None for x, was in zip(plain, self._layouts, strict=True)]
        if isinstance(kept, list):
            news = [
                None if x is None or old is None else block_layout.sample(x, cap).to(old.dtype).sub(old)
                for x, old, cap in zip(same, kept, self._caps, strict=True)
            ]
            self._set_each(news, self._updates, [0] * len(news), totals=[0 if x is None else x.numel() for x in same])
            return
        from neuraldbg.capture.statistics.device import triton_kernels  # noqa: PLC0415 (imports Triton)

        kept.launch(same, triton_kernels.SUBTRACT, self._table.turn)

    def forget(self) -> None:
        """Drop the kept values: they do not belong to the next step."""
        self._kept = None

    def _set_each(
        self,
        tensors: Sequence[Tensor | None],
        rows: Sequence[int],
        caps: Sequence[int],
        *,
        keep: bool = False,
        totals: Sequence[int] = (),
    ) -> list[Tensor | None]:
        """Set rows one by one. Return the samples that were read if ``keep``, else None for each."""
        kept: list[Tensor | None] = []
        for number, (x, row, cap) in enumerate(zip(tensors, rows, caps, strict=True)):
            if x is None or x.numel() == 0:
                kept.append(None)
                continue
            self._table.reset([row])
            self._table.observe(x, row, cap)
            if totals:
                self._table.table[row, operation.TOTAL] += totals[number] - x.numel()
            wide = torch.float64 if x.dtype is torch.float64 else torch.float32
            kept.append(block_layout.sample(x, cap).to(wide, copy=True) if keep else None)
        return kept

    def _planned(self, tensors: Sequence[Tensor | None]) -> LaunchPlan:
        """Return the plan for the tensors; make a new one where a size or dtype has changed. All are dense and read in
        memory order, so nothing else matters.
        """
        forms = [was if x is None else (x.dtype, x.numel()) for x, was in zip(tensors, self._forms, strict=True)]
        if self._plan is None or forms != self._forms:
            self._forms = forms
            self._plan = self._made()
        return self._plan

    def _made(self) -> LaunchPlan:
        from neuraldbg.capture.statistics.device.launch import LaunchPlan, Member  # noqa: PLC0415 (imports Triton)

        updates = self._updates if self._updates is not None else self._rows
        members = [
            Member(dtype, numel, cap, row, update)
            for (dtype, numel), cap, row, update in zip(self._forms, self._caps, self._rows, updates, strict=True)
        ]
        return LaunchPlan(self._table.table, members, keep=self._updates is not None)
