"""The noise of a curve: a Curve enters, Stability leaves. Spikes are those that the detector ``loss_spike`` found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.robust_statistics import noise_of
from neuraldbg.nouns.training_dynamics import Stability

if TYPE_CHECKING:
    from neuraldbg.health.curve_readings import Curve

FEWEST = 5
"""Values from which on noise is told."""
ENOUGH = 30
"""Values from which on the noise of thirds is compared."""
NOISY, VERY_NOISY = 0.1, 0.5
"""Noise of a single value as a share of the level, from which a curve is noisy. Source: our own choice; the detector
``loss_plateau`` no longer trusts a level from a tenth on."""

SMALL = 0.05
"""Noise as a share of the range of the curve below which it is not very noisy. Source: our own choice."""


def stability_of(curve: Curve, spikes: tuple[int, ...] = ()) -> Stability:
    """Return noise and spikes. The noise is that of single steps where these were kept: a thinned value is a mean,
    whose noise is smaller by the root of its steps.
    """
    if len(curve) < FEWEST:
        return Stability("not enough data", 0.0, None, None, spikes)
    noise = _single(curve)
    size = curve.last if curve.positive else curve.highest - curve.lowest[0]
    relative = noise / size if size > 0 else 0.0 if noise == 0 else None
    word = "steady" if relative is not None and relative < NOISY else "noisy"
    # A loss that fell to nearly nothing has a large noise for its level, and a small one for what it covered.
    if relative is not None and relative >= VERY_NOISY and noise >= SMALL * (curve.highest - curve.lowest[0]):
        word = "very noisy"
    return Stability(word, noise, relative, _growth(curve), spikes)


def _single(curve: Curve) -> float:
    """Return the noise of single steps over the last half of the values; of thinned ones, if there are few others, that
    of a mean times the root of its steps.
    """
    late = slice(len(curve) // 2 if len(curve) >= 2 * FEWEST else 0, None)
    y, width = curve.y[late], curve.width[late]
    if (width == 1).sum() >= min(ENOUGH, len(y)):
        return noise_of(y[width == 1])
    return noise_of(y) * float(np.sqrt(np.median(width)))


def _growth(curve: Curve) -> float | None:
    """Return the noise of the last third over that of the third before it, each relative to its level. None with few
    values, with a curve that is not positive, or with thinned values.
    """
    third = len(curve) // 3
    if len(curve) < ENOUGH or not curve.positive or len(np.unique(curve.width[third:])) > 1:
        return None
    before, after = curve.y[-2 * third : -third], curve.y[-third:]
    levels = float(np.median(before)), float(np.median(after))
    noises = noise_of(before), noise_of(after)
    if min(levels) <= 0 or noises[0] <= 0:
        return None
    return (noises[1] / levels[1]) / (noises[0] / levels[0])
