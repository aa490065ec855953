"""A curve of values over steps as SVG, for the HTML of a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np

CURVE = 300
"""Points of a curve at most; of more values, the smallest and the largest of each stretch are drawn."""
WIDE, TALL = 480, 90
"""Width and height of a curve in pixels."""


def curve_svg(steps: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> str:
    """Draw the finite values as SVG; the line has a gap at others. Both arrays have the shape (T,)."""
    finite = np.isfinite(values)
    if not finite.any():
        return ""
    low, high = float(values[finite].min()), float(values[finite].max())
    log = low > 0 and high / low > 100
    scaled = np.log10(np.where(finite, values, 1.0)) if log else np.where(finite, values, 0.0)
    least, most = scaled[finite].min(), scaled[finite].max()
    y = TALL - 5 - (scaled - least) / ((most - least) or 1.0) * (TALL - 10)
    x = 5 + (steps - steps[0]) / ((steps[-1] - steps[0]) or 1.0) * (WIDE - 10)
    lines = []
    for part in np.split(np.arange(len(values)), np.flatnonzero(np.diff(finite)) + 1):
        if finite[part[0]]:
            kept = _extremes(part, y)
            lines.append("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x[kept], y[kept], strict=True)))
    scale = "a logarithmic scale" if log else "a linear scale"
    curve = f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"/>'
    size = f'width="{WIDE}" height="{TALL}" viewBox="0 0 {WIDE} {TALL}" style="max-width:100%"'
    return f'<svg {size} role="img"><title>the values over steps, on {scale}</title>{curve}</svg>'


def _extremes(part: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Reduce the indices in ``part``, if there are many, to the smallest and largest value of each stretch."""
    if len(part) <= CURVE:
        return part
    stretches = np.array_split(part, CURVE // 2)
    return np.unique([stretch[pick(y[stretch])] for stretch in stretches for pick in (np.argmin, np.argmax)])
