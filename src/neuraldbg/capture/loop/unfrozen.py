"""The parameters that were frozen and are trained again, as in fine-tuning by stages: read with the PARAMS fact.

An optimizer that held them before they were frozen may be gone, or rest for good: only one that stepped since holds
them. A gradient that was left from before is no gradient of now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.parameters.parameters import Params


class Unfrozen:
    """Follows ``requires_grad`` of all watched parameters."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._trainable = -1
        """Number of trainable parameters when facts were read last."""
        self.resting: dict[int, dict[int, int]] = {}
        """{identity of each parameter that was seen frozen: {number of an optimizer: its steps by then}}."""
        self._left: dict[int, tuple[int, int] | None] = {}
        """State of the gradient that each of them had then, None if it had none."""

    def changed(self) -> bool:
        """Return True if more or fewer parameters require a gradient than when facts were read last."""
        return self._trainable not in (-1, self._count())

    def _count(self) -> int:
        return sum(w.ref.requires_grad for w in self._params.by_id.values())

    def read(self, streams: Iterable[Stream]) -> None:
        """Note which parameters are frozen now, and the gradients that they have from before."""
        self._trainable = self._count()
        steps = {stream.index: stream.steps for stream in streams}
        alive = self._params.by_id
        self.resting = {key: then for key, then in self.resting.items() if key in alive}
        self._left = {key: left for key, left in self._left.items() if key in alive}
        for key, w in alive.items():
            if not w.ref.requires_grad:
                self.resting[key], self._left[key] = steps, _state(w.ref.grad)

    def names(self) -> set[str]:
        """Return the names of the parameters that were seen frozen."""
        return {w.name for key, w in self._params.by_id.items() if key in self.resting}

    def stale(self) -> set[int]:
        """Return the identities of the parameters that got no gradient since they were seen frozen."""
        alive = self._params.by_id
        now = {key: _state(alive[key].ref.grad) for key in self._left if key in alive}
        return {key for key, state in now.items() if state in (None, self._left[key])}


def _state(gradient: Tensor | None) -> tuple[int, int] | None:
    """Return identity and version of a gradient: both are the same until it is written to."""
    return None if gradient is None else (id(gradient), gradient._version)  # noqa: SLF001
