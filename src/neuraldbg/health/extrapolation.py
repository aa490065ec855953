"""The level that a falling curve reaches if nothing changes: a Curve enters, an interval or the reason for none leaves.

Two forms are fitted to the medians of blocks: ``c + A exp(-t / tau)`` and the power law ``c + A (t + t0)^-alpha``,
which loss curves follow (Hestness et al. 2017, arXiv:1712.00409; Kaplan et al. 2020, arXiv:2001.08361). The shape is searched
on a grid, the rest is least squares (variable projection, Golub and Pereyra 1973). A form counts only if what it leaves
over has no order, and if the form fitted to the first 70% of the values predicts the others. The interval is over all
shapes that the values allow (profile likelihood, Bates and Watts 1988, section 6.1) and over both forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.nouns.training_dynamics import FALLING, FEW_DATA, LEVELLED, ExpectedEnd

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.health.curve_readings import Curve
    from neuraldbg.nouns.training_dynamics import Plateau

    Floats = npt.NDArray[np.float64]

BLOCKS = 60
"""Blocks that a form is fitted to."""
FEWEST = 20
"""Fewest values that a form with three parameters is fitted to."""
BEGINNINGS = (0.0, 0.1, 0.25, 0.5)
"""Shares of the run after which a fit may begin: the first steps, with their warm-up, follow no form."""
EXACT = 2e-3
"""What a fit leaves over, as a share of the fall in its stretch, below which its order does not matter."""
CLEAR = 5.0
"""Fall of the form over its stretch, in standard deviations of what it leaves over."""
HELD_OUT = 0.3
"""Share of the values at the end that are predicted from those before."""
T95 = 2.0
"""Quantile of Student's distribution for an interval of 95% with twenty to sixty values."""
CORRELATED = 2.5
"""Lag-one correlation of what is left over, in units of 1 / sqrt(n), from which the form does not fit."""


class Shape(NamedTuple):
    """Basis functions of one form: rows of values of the part that falls, one a shape."""

    name: str
    inside: Floats
    """Values at the fitted steps, shape (K, n)."""
    beyond: Floats
    """Values at the step that is predicted, shape (K, 1)."""


@dataclass(frozen=True)
class Fit:
    """All shapes of one form, fitted to the same values."""

    name: str
    best: int
    """Index of the best shape."""
    rest: Floats
    """What the best shape leaves over, shape (n,)."""
    fall: float
    """Fall of the best shape over the fitted values."""
    value: float
    """Prediction of the best shape."""
    low: float
    high: float
    """Interval of the prediction over all shapes that the values allow."""

    @property
    def sigma(self) -> float:
        """Standard deviation of what is left over, with three parameters taken off."""
        return math.sqrt(float(self.rest @ self.rest) / max(len(self.rest) - 3, 1))


def expected_end(curve: Curve, state: str, plateau: Plateau | None) -> tuple[ExpectedEnd | None, str]:
    """Return the expected level after as many steps again, or None and the reason why it cannot be told.

    A plateau over at least half of the steps, which fits no form, keeps its level within the interval of its slope.
    """
    if state not in (FALLING, LEVELLED):
        return None, f"the curve is {state}" if state != FEW_DATA else "too few values"
    if len(curve) < FEWEST:
        return None, f"{len(curve)} values, and a form needs {FEWEST}"
    target = float(curve.at[-1] + curve.span)
    reason = ""
    for begin in BEGINNINGS:
        window = curve.window(begin, blocks=BLOCKS)
        if len(window.at) < FEWEST:
            break
        fits = [fit for fit in _fits(window.at, window.level, target) if _good(fit)]
        fits = [fit for fit in fits if _predicts(fit.name, window.at, window.level)]
        if fits:
            best = min(fits, key=lambda fit: float(fit.rest @ fit.rest))
            low, high = min(fit.low for fit in fits), max(fit.high for fit in fits)
            if high - low > best.fall:
                reason = "forms that fit equally well go far apart beyond the last step"
                continue
            return ExpectedEnd(round(target), best.value, low, high, best.name, window.first), ""
        reason = "neither an exponential nor a power law fits"
    if plateau is not None and (level := _kept(curve, plateau, target)) is not None:
        return level, ""
    return None, reason or "too few values"


def _kept(curve: Curve, plateau: Plateau, target: float) -> ExpectedEnd | None:
    """Return the level of a plateau with the interval of its slope; None if it is short, or the interval is as wide as
    the level itself.
    """
    inside = curve.at >= plateau.since
    if curve.at[-1] - plateau.since < 0.5 * curve.span or inside.sum() < FEWEST:
        return None
    window = curve.blocks(inside, 16)
    ahead = target - float(np.median(window.at))
    low, high = plateau.level + window.slope.low * ahead, plateau.level + window.slope.high * ahead
    if high - low > max(abs(plateau.level) if curve.positive else 0.0, 6 * curve.late_noise):
        return None
    return ExpectedEnd(round(target), plateau.level, low, high, "level", window.first)


def _shapes(at: Floats, target: float) -> tuple[Shape, Shape]:
    """Return the basis of both forms over a grid of their shapes."""
    t, ahead = at - at[0], np.array([target - at[0]])
    span = float(t[-1])
    taus = np.geomspace(span / 40, span * 3, 90)[:, None]
    exponential = Shape("exponential", np.exp(-t / taus), np.exp(-ahead / taus))
    alphas, offsets = np.meshgrid(np.linspace(0.05, 3.0, 60), span * np.array([0.003, 0.01, 0.03, 0.1, 0.3]))
    alpha, offset = alphas.reshape(-1, 1), offsets.reshape(-1, 1)
    power = Shape("power law", (1 + t / offset) ** -alpha, (1 + ahead / offset) ** -alpha)
    return exponential, power


def _fits(at: Floats, y: Floats, target: float) -> list[Fit]:
    return [fit for shape in _shapes(at, target) if (fit := _fit(shape, y)) is not None]


def _fit(shape: Shape, y: Floats) -> Fit | None:
    """Fit c and A for each shape; None if no shape falls."""
    n = len(y)
    middle = shape.inside.mean(axis=1, keepdims=True)
    part, away = shape.inside - middle, y - y.mean()
    square = (part**2).sum(axis=1)
    usable = square > 1e-12 * n
    size = np.where(usable, part @ away / np.where(usable, square, 1.0), 0.0)
    rss = ((away - size[:, None] * part) ** 2).sum(axis=1)
    rss[~usable | (size <= 0)] = np.inf
    best = int(rss.argmin())
    if not np.isfinite(rss[best]):
        return None
    ahead = shape.beyond[:, 0] - middle[:, 0]
    value = y.mean() + size * ahead
    variance = rss[best] / max(n - 3, 1)
    allowed = rss <= rss[best] + T95**2 * variance + 1e-18 * float(away @ away)
    error = T95 * np.sqrt(variance * (1 / n + ahead[allowed] ** 2 / square[allowed]))
    rest = away - size[best] * part[best]
    fall = float(size[best] * (shape.inside[best, 0] - shape.inside[best, -1]))
    low, high = (value[allowed] - error).min(), (value[allowed] + error).max()
    return Fit(shape.name, best, rest, fall, float(value[best]), float(low), float(high))


def _good(fit: Fit) -> bool:
    """Return True if the form explains the fall, and what it leaves over has no order."""
    n, sigma = len(fit.rest), fit.sigma
    if fit.fall < CLEAR * sigma or fit.fall <= 0:
        return False
    if sigma < EXACT * fit.fall:
        return True
    square = float(fit.rest @ fit.rest)
    correlation = float(fit.rest[1:] @ fit.rest[:-1]) / square
    end = fit.rest[-max(n // 5, 3) :]
    return bool(correlation < CORRELATED / math.sqrt(n) and abs(end.mean()) < 2.5 * sigma / math.sqrt(len(end)))


def _predicts(name: str, at: Floats, y: Floats) -> bool:
    """Return True if the form, fitted to the first values, predicts the mean of the others."""
    kept = len(at) - int(HELD_OUT * len(at))
    fits = {fit.name: fit for fit in _fits(at[:kept], y[:kept], float(at[kept:].mean()))}
    if name not in fits:
        return False
    fit, held = fits[name], y[kept:]
    # The curve bends within the stretch: the mean of its values is above its value in the middle.
    bend = 0.02 * fit.fall
    error = T95 * fit.sigma / math.sqrt(len(held)) + bend
    return bool(fit.low - error <= held.mean() <= fit.high + error)
