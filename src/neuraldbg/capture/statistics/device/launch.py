"""Many tensors read by one launch: descriptions kept on the device, addresses sent again only when they change.

Rows, sizes and caps in; launches of ``triton_kernels.many`` out. Copies to the device go through pinned memory that
torch's allocator keeps for as long as the copy may take, so nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from neuraldbg.capture.statistics.device import block_layout, triton_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor


class Member(NamedTuple):
    """The description of one tensor, as far as it stays the same from step to step."""

    dtype: torch.dtype
    numel: int
    cap: int
    row: int
    update: int
    """The row for the change made by a step; the same as ``row`` where no values are kept."""


class _DtypePlan:
    """The members of one dtype, which one launch reads together."""

    def __init__(self, table: Tensor, dtype: torch.dtype, members: Sequence[Member], *, keep: bool) -> None:
        self._table, self._dtype = table, dtype
        plans: list[tuple[int, ...]] = []
        work: list[npt.NDArray[np.int32]] = []
        kept = 0
        for number, member in enumerate(members):
            places = block_layout.blocks(member.numel, member.cap)
            plans.append(triton_kernels.plan_row(member.numel, places, (member.row, member.update), kept))
            firsts = np.array(triton_kernels.spans(places), np.int32)
            work.append(np.stack([np.full_like(firsts, number), firsts], axis=1))
            kept += places.total * block_layout.LANES
        device = table.device
        self._plans = sent(torch.tensor(plans, dtype=torch.int64, device="cpu"), device)
        self._work = sent(torch.from_numpy(np.concatenate(work)), device)
        self._addresses = torch.zeros(len(members), dtype=torch.int64, device=device)
        self._known: list[int] = [0] * len(members)
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        self._kept = torch.empty(kept if keep else 0, dtype=wide, device=device)

    def point(self, addresses: list[int]) -> None:
        """Send the addresses of the tensors to the device if they have changed."""
        if addresses != self._known:
            self._addresses.copy_(
                pinned(torch.tensor(addresses, dtype=torch.int64, device="cpu"), self._table.device), non_blocking=True
            )
            self._known = addresses

    def launch(self, mode: int, moved: int) -> None:
        triton_kernels.many(self._table, self._addresses, self._plans, self._work, self._kept, self._dtype, mode, moved)

    def clear(self, mode: int) -> None:
        triton_kernels.clear(self._table, self._addresses, self._plans, mode)


class LaunchPlan:
    """The plan by which Triton reads the tensors of a group: one launch per dtype."""

    def __init__(self, table: Tensor, members: Sequence[Member], *, keep: bool) -> None:
        by_dtype: dict[torch.dtype, list[int]] = {}
        for place, member in enumerate(members):
            by_dtype.setdefault(member.dtype, []).append(place)
        self._groups = [
            (places, _DtypePlan(table, dtype, [members[place] for place in places], keep=keep))
            for dtype, places in by_dtype.items()
        ]
        self._read_in = dict.fromkeys((triton_kernels.OBSERVE, triton_kernels.KEEP, triton_kernels.SUBTRACT), -1)

    def launch(self, tensors: Sequence[Tensor | None], mode: int, turn: int, moved: int = 0) -> None:
        """Read the tensors, one launch per dtype; a second reading in one turn replaces the first. Of a sampled tensor,
        read the blocks that are ``moved`` blocks further on.
        """
        again, self._read_in[mode] = self._read_in[mode] == turn, turn
        for places, group in self._groups:
            group.point([x.data_ptr() if x is not None else 0 for x in (tensors[p] for p in places)])
            if again:
                group.clear(mode)
            group.launch(mode, moved)


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a CPU tensor in pinned memory if the device is CUDA, else ``x`` itself."""
    return x.pin_memory() if device.type == "cuda" else x


def sent(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting."""
    return pinned(x, device).to(device, non_blocking=True)
