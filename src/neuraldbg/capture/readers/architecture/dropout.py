"""The reader of dropout masks in the graph of the loss, whoever made them; zeros and scale give the probability.

Dropout multiplies by a mask of zeros and one other value, 1 / (1 - p). No other mask has a share of zeros that fits the
other value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.operation import observable, sample
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.moments import Backward

_SAMPLE = 1024
_FEWEST = 64
"""Values of a mask that are needed to estimate its share of zeros."""
_ERRORS = 5.0
"""Standard errors by which the share of zeros may differ from p."""
_PLACES = 64


class Dropouts(Reader):
    """Reads masks while the graph of the loss is whole."""

    sampled = frozenset({"backward_begins"})

    def backward_begins(self, backward: Backward) -> None:
        """Read every multiplication that the walk collected."""
        if backward.walk is None or not backward.accumulates:
            return
        places: dict[tuple[str, float], dict[str, Any]] = {}
        with torch.no_grad():
            for name, before, node in backward.walk.noted:
                if len(places) == _PLACES:
                    break
                p = _probability(name, node)
                if p is not None:
                    places.setdefault((before, p), {"before": before, "p": p})
        if places:
            self.scene.log(FactKey.DROPOUT, {"places": list(places.values())})


def _probability(name: str, node: Any) -> float | None:
    if name == "nativedropout":
        p = getattr(node, "_saved_p", None)
        return round(float(p), 4) if p is not None else None
    mask = saved(node, "other") if name == "mul" else None
    if mask is None or mask.requires_grad or not observable(mask) or mask.numel() < _FEWEST:
        return None
    if mask.numel() == mask.shape[0]:  # one value per sample: stochastic depth
        return None
    values = sample(mask.detach(), _SAMPLE).float()
    top, low = (float(v) for v in (values.max(), values.min()))
    if low != 0.0 or not top > 1.0:
        return None
    zeros = float((values == 0).float().mean())
    if float((values == top).float().mean()) + zeros < 1.0:
        return None
    p = 1 - 1 / top
    error = (p * (1 - p) / values.numel()) ** 0.5
    return round(p, 4) if abs(zeros - p) < _ERRORS * error + 1e-3 else None


READER = Dropouts
