"""The values of a finished step that are still on devices: rows, units and single numbers, in one copy per device.

Tensors in; numbers in their places out when the copies have arrived, usually while the next step runs. Nothing waits,
except where a caller needs the numbers now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from neuraldbg.capture.statistics.device.async_copy import Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from neuraldbg.capture.statistics.raw_rows import Raw


class Awaited(NamedTuple):
    """Tensors whose values a step needs, and the function that stores them."""

    tensors: tuple[Tensor, ...]
    land: Callable[[list[Any], Raw | None], dict[str, float]]
    """Stores the values, given as arrays, in the step's rows (None for a light step) and returns scalars."""


class Late:
    """The pending values of one step. The tensors are copied at construction, and may change afterwards."""

    def __init__(self, awaited: Sequence[Awaited]) -> None:
        by_device: dict[torch.device, list[tuple[int, int, Tensor]]] = {}
        for i, each in enumerate(awaited):
            for j, x in enumerate(each.tensors):
                by_device.setdefault(x.device, []).append((i, j, x))
        self._lands = [(each.land, len(each.tensors)) for each in awaited]
        self._sent = [([(i, j) for i, j, _ in parts], Sent([x for _, _, x in parts])) for parts in by_device.values()]
        self._found: dict[str, float] | None = None

    def ready(self) -> bool:
        """Return True if all copies have arrived."""
        return self._found is not None or all(sent.arrived() for _, sent in self._sent)

    def land(self, taken: Raw | None) -> dict[str, float]:
        """Store all values in the order in which they were awaited, and return the scalars; wait for copies that have
        not arrived. A second call returns the same scalars.
        """
        if self._found is None:
            values: list[list[Any]] = [[None] * count for _, count in self._lands]
            for places, sent in self._sent:
                for (i, j), value in zip(places, sent.read(), strict=True):
                    values[i][j] = value
            found: dict[str, float] = {}
            for (land, _), given in zip(self._lands, values, strict=True):
                found.update(land(given, taken))
            self._found, self._lands, self._sent = found, [], []
        return self._found


def sent(awaited: Sequence[Awaited]) -> Late | None:
    """Start the copies of the awaited tensors. Return None if there are none, or while a CUDA graph is captured: its
    hooks run once, and there are no values to read yet.
    """
    if not awaited or any(_capturing(x) for each in awaited for x in each.tensors[:1]):
        return None
    return Late(awaited)


def _capturing(x: Tensor) -> bool:
    return x.is_cuda and torch.cuda.is_current_stream_capturing()
