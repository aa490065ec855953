"""Copies of the values of the newest tensors, for comparisons, within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.nouns.measures import size

if TYPE_CHECKING:
    from neuraldbg.toolbox.given_arrays import Given


class KeptValues:
    """The values of the newest tensors by id. One that is larger than half of the budget is kept as evenly spaced
    elements, so that two of them can be compared.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: OrderedDict[int, Given] = OrderedDict()
        self.bytes = 0
        """Bytes of all copies."""

    def add(self, number: int, tensor: Given) -> None:
        """Keep a copy of a tensor's values, and drop the oldest ones that no longer fit."""
        thin = tensor.spaced(max(self._budget // 2 // max(tensor.values.itemsize, 1), 1)).copied()
        self._kept[number] = thin
        self.bytes += thin.values.nbytes
        while self.bytes > self._budget and self._kept:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.values.nbytes

    def get(self, number: int) -> Given:
        """Return the values of a tensor. Raises ConfigError if they were dropped."""
        found = self._kept.get(number)
        if found is None:
            oldest = f"the oldest still kept is {next(iter(self._kept))}" if self._kept else "none is kept"
            raise ConfigError(
                f"the values of tensor {number} are gone: copies of {size(self._budget)} are kept for comparisons, the "
                f"newest ones; {oldest}. Compare earlier, or with a larger budget"
            )
        return found

    def __len__(self) -> int:
        return len(self._kept)
