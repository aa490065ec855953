"""The parameters of one optimizer on one device: weights, gradients and updates, each read in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.table import layout
from neuraldbg.capture.statistics.device.tensor_group import TensorGroup

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from neuraldbg.capture.statistics.device.table import DeviceTable
    from neuraldbg.capture.statistics.watched_parameter import Watched


class OnDevice:
    """Some parameters of one device, all ``placement.plain`` and with rows. ``caps``: elements to read of each weight.

    Triton reads gradients whole, so that no NaN is missed between blocks and the norm is exact; torch, which would make
    float64 copies of all of them, reads samples of ``most`` elements.
    """

    def __init__(self, members: list[Watched], caps: list[int], most: int, table: DeviceTable) -> None:
        self.members = members
        self.gradient_rows = _rows([w.grad for w in members])
        rows, updates = _rows([w.param for w in members]), _rows([w.update for w in members])
        tensors = self._tensors()
        self._device = tensors[0].device
        self._layouts = [layout(x) for x in tensors]
        self._table = table
        self.rows = rows
        self._weights = TensorGroup(table, tensors, rows, caps, updates)
        whole = 0 if table.kind == "triton" else most
        self._gradients = TensorGroup(table, tensors, self.gradient_rows, [whole] * len(members))

    def _tensors(self) -> list[Tensor]:
        return [w.ref for w in self.members]

    def holds(self) -> bool:
        """Return True if the parameters still have their layout and device."""
        return all(
            layout(w.ref) == was and w.ref.device == self._device and placement.plain(w.ref)
            for w, was in zip(self.members, self._layouts, strict=True)
        )

    def read_weights(self) -> None:
        """Read the weights, and keep their values for the update."""
        self._weights.observe(self._tensors())

    def read_gradients(self) -> list[Watched]:
        """Read the gradients. Return the parameters whose gradient cannot be read with the others: it is sparse,
        expanded, or on another device.
        """
        grads, odd = placement.gradients(self._tensors())
        for w, grad in zip(self.members, grads, strict=True):
            w.had_grad |= grad is not None
        self._gradients.observe(grads)
        return [self.members[place] for place in odd]

    def compare(self) -> None:
        """Read the changes made by the step."""
        self._weights.compare(self._tensors())

    def forget(self) -> None:
        """Drop the kept values: they do not belong to the next step."""
        self._weights.forget()


def by_device(members: list[Watched]) -> dict[torch.device, list[Watched]]:
    """Return parameters by the device that they are on."""
    found: dict[torch.device, list[Watched]] = {}
    for w in members:
        found.setdefault(w.ref.device, []).append(w)
    return found


def _rows(rows: list[int | None]) -> list[int]:
    return [row for row in rows if row is not None]
