"""The level that a falling curve reaches if nothing changes: a Curve enters, an interval or the reason for none leaves.

Two forms are fitted to the medians of blocks: ``c + A exp(-t / tau)`` and the power law ``c + A (t + t0)^-alpha``,
which loss curves follow (Hestness et al. 2017, arXiv:1712.00409; Kaplan et al. 2020, arXiv:2001.08361). The shape is
searched on a grid, the rest is least squares (variable projection, Golub and Pereyra 1973). A form counts only if what
it leaves over has no order, and if the form fitted to the first 70% of the values predicts the others. The interval is
over all shapes that the values allow (profile likelihood, Bates and Watts 1988, section 6.1) and over both forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.nouns.training_dynamics import FALLING, FEW_DATA, LEVELLED, ExpectedEnd

if TYPE_CHECKING:
    from collections.abc import Callable

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
BEND = 0.02
"""Share of the fall that the prediction of a mean may be off because the curve bends."""
WIDEST = 1.5
"""Width of the interval, in levels at the end of a positive curve, beyond which it tells nothing. Source: our own
choice."""
T95 = 2.0
"""Quantile of Student's distribution for an interval of 95% with twenty to sixty values."""
CORRELATED = 2.5
"""Lag-one correlation of what is left over, in units of 1 / sqrt(n), from which the form does not fit."""


class Points(NamedTuple):
    """The values that a form is fitted to."""

    at: Floats
    """Steps, shape (n,)."""
    y: Floats
    """Values, shape (n,)."""
    weight: Floats
    """Inverse variances of the values, up to a factor, shape (n,)."""

    def part(self, first: int, end: int | None = None) -> Points:
        """Return the points from one index to another."""
        return Points(*(one[first:end] for one in self))

    def mean(self, values: Floats) -> Any:
        """Return the weighted mean over the points, of values of shape (..., n)."""
        return (values * self.weight).sum(axis=-1) / self.weight.sum()


class Form(NamedTuple):
    """A form of curves, with a grid of its shapes."""

    name: str
    shape: Callable[[Floats, Floats], Floats]
    """The part that falls: shapes (K, D) and times (n,) enter, values (K, n) leave. Times count from the first value,
    in units of the stretch."""
    grid: tuple[Floats, ...]
    """Values of each parameter of the shape, ascending; the first grid is refined around what fits."""


FORMS = (
    Form("exponential", lambda shape, t: np.exp(-t * np.exp(shape[:, :1])), (np.linspace(-1.1, 3.7, 40),)),
    Form(
        "power law",
        lambda shape, t: (1 + t * np.exp(shape[:, 1:])) ** -shape[:, :1],
        (np.linspace(0.05, 3.0, 16), np.linspace(0.0, 7.0, 10)),
    ),
)
"""Shapes: the logarithm of the stretch over the time constant; the power and the logarithm of the stretch over t0."""
ZOOMS = 5
"""Refinements of a grid around the shapes that the values allow, at most."""
FINE = 6
"""Steps of a refined grid along a parameter within what is allowed, from which on it is fine enough."""


@dataclass(frozen=True)
class Fit:
    """All shapes of one form, fitted to the same values."""

    form: Form
    rest: Floats
    """Values minus the best shape, each times the root of its weight, shape (n,)."""
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
        window = curve.window(begin, blocks=BLOCKS, growing=True)
        if len(window.at) < FEWEST:
            break
        # The median of a few values has nearly the noise of their mean; that of many has 1.57 times its variance.
        weights = np.where(window.sizes > 2, window.sizes / 1.57, window.sizes)
        points = Points(window.at, window.level, weights / weights.mean())
        fits = [fit for fit in _fits(points, target) if _good(fit) and _predicts(fit.form, points)]
        if fits:
            best = min(fits, key=lambda fit: float(fit.rest @ fit.rest))
            low, high = min(fit.low for fit in fits), max(fit.high for fit in fits)
            if curve.positive:
                low = max(low, 0.0)
            # An interval that is wider than the level itself tells nothing of where a positive curve goes.
            if high - low > best.fall or (curve.positive and high - low > WIDEST * curve.last):
                reason = "forms that fit equally well go far apart beyond the last step"
                continue
            return ExpectedEnd(round(target), max(best.value, low), low, high, best.form.name, window.first), ""
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


def _fits(points: Points, target: float) -> list[Fit]:
    return [fit for form in FORMS if (fit := _fit(form, points, target)) is not None]


def _fit(form: Form, points: Points, target: float) -> Fit | None:
    """Fit a form, and refine its grid until it is fine within what the values allow. None if no shape falls clearly."""
    first = points.at[0]
    span = float(points.at[-1] - first)
    t, ahead = (points.at - first) / span, np.array([(target - first) / span])
    grid = form.grid
    fit: Fit | None = None
    for _ in range(ZOOMS):
        shapes = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, len(grid))
        solved = _solved(form.shape(shapes, t), form.shape(shapes, ahead)[:, 0], points)
        if solved is None:
            return None
        if solved.fall**2 < (CLEAR / 2) ** 2 * float(solved.rest @ solved.rest) / len(points.y):
            return None  # there is no clear fall, and a finer grid finds none
        fit = Fit(form, solved.rest, solved.fall, solved.value, solved.low, solved.high)
        inside = shapes[solved.allowed]
        steps = [float(values[1] - values[0]) for values in grid]
        ends = [(values.min() - step, values.max() + step) for values, step in zip(inside.T, steps, strict=True)]
        if all(high - low >= (FINE + 1) * step for (low, high), step in zip(ends, steps, strict=True)):
            break
        # The next grid covers what is allowed, and a step more on each side, within the first grid.
        grid = tuple(
            np.linspace(max(low, whole[0]), min(high, whole[-1]), len(whole))
            for (low, high), whole in zip(ends, form.grid, strict=True)
        )
    return fit


class Solved(NamedTuple):
    """The least squares of all shapes of a grid."""

    allowed: npt.NDArray[np.bool_]
    rest: Floats
    fall: float
    value: float
    low: float
    high: float


def _solved(inside: Floats, beyond: Floats, points: Points) -> Solved | None:
    """Fit c and A for each row of ``inside``, shape (K, n); ``beyond`` has their values at the predicted step, shape
    (K,). None if no row falls.
    """
    n, root = len(points.y), np.sqrt(points.weight)
    middle, level = points.mean(inside), float(points.mean(points.y))
    part, away = (inside - middle[:, None]) * root, (points.y - level) * root
    square = (part**2).sum(axis=1)
    usable = square > 1e-20 * n
    size = np.where(usable, part @ away / np.where(usable, square, 1.0), 0.0)
    rss = ((away - size[:, None] * part) ** 2).sum(axis=1)
    rss[~usable | (size <= 0)] = np.inf
    best = int(rss.argmin())
    if not np.isfinite(rss[best]):
        return None
    ahead = beyond - middle
    value = level + size * ahead
    variance = rss[best] / max(n - 3, 1)
    allowed = rss <= rss[best] + T95**2 * variance
    error = T95 * np.sqrt(variance * (1 / float(points.weight.sum()) + ahead[allowed] ** 2 / square[allowed]))
    rest = away - size[best] * part[best]
    fall = float(size[best] * (inside[best, 0] - inside[best, -1]))
    low, high = float((value[allowed] - error).min()), float((value[allowed] + error).max())
    return Solved(allowed, rest, fall, float(value[best]), low, high)


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


def _predicts(form: Form, points: Points) -> bool:
    """Return True if the form, fitted to the first values, predicts the mean of the others."""
    kept = int((1 - HELD_OUT) * points.at.size)
    held = points.part(kept)
    fit = _fit(form, points.part(0, kept), float(held.mean(held.at)))
    if fit is None:
        return False
    # The curve bends within the stretch: the mean of its values is above its value in the middle.
    error = T95 * fit.sigma / math.sqrt(float(held.weight.sum())) + BEND * fit.fall
    return bool(fit.low - error <= held.mean(held.y) <= fit.high + error)
