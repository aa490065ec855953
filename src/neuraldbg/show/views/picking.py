"""The choice of layers if there are more than fit: the guilty, those with events, those that vary most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.show.forms import Bools, Floats


def touched(diagnosis: Diagnosis) -> set[str]:
    """Return the layers that an event names."""
    found = {event.layer for event in diagnosis.events if event.layer}
    return found.union(*(event.details.get("affected", ()) for event in diagnosis.events))


def pick(
    layers: Sequence[str], first: Collection[str], values: Floats, nonfinite: Bools, most: int
) -> tuple[list[int], str]:
    """Return the positions of at most ``most`` layers in their order, and a sentence if some were left out.

    ``values`` and ``nonfinite`` have the shape (layers, C). Kept are the layers named ``first``, then those with values
    that are not finite, then those with the largest value against their own median, so that no spike gets lost.
    """
    if len(layers) <= most:
        return list(range(len(layers))), ""
    sizes = np.abs(values)
    seen = np.isfinite(sizes)
    largest = np.where(seen, sizes, 0).max(axis=1, initial=0)
    usual = medians(sizes, seen)
    stands_out = np.divide(largest, usual, out=np.zeros(len(layers)), where=usual > 0)
    order = [i for i, layer in enumerate(layers) if layer in first]
    order += np.flatnonzero(nonfinite.any(axis=1)).tolist()
    spikes = np.argsort(-stands_out, kind="stable").tolist()
    # Layers at equal distances show the trend over depth.
    order += [*spikes[: most // 4], *np.linspace(0, len(layers) - 1, most // 2).astype(int).tolist(), *spikes]
    kept = sorted(list(dict.fromkeys(order))[:most])
    return (
        kept,
        f"{len(kept)} of {len(layers):,} layers are shown: those with events or spikes, and a sample over the depth",
    )


def medians(values: Floats, seen: Bools) -> Floats:
    """Return the median of the seen values of each row, 0 if there are none; all at once, since single medians are
    slow.
    """
    ordered = np.sort(np.where(seen, values, np.inf), axis=1)
    count, every = seen.sum(axis=1), np.arange(len(values))
    if not values.shape[1]:
        return np.zeros(len(values))
    middle = (ordered[every, np.maximum(count - 1, 0) // 2] + ordered[every, count // 2]) / 2
    return np.where(count > 0, middle, 0.0)
