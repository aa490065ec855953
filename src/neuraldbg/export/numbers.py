"""Numbers as text: the fewest digits that read back to the same number, fast for columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Words(NamedTuple):
    """How a format writes what is not finite."""

    nan: str
    inf: str
    minus_inf: str


PLAIN = Words("NaN", "inf", "-inf")
"""As Python, numpy, pandas and R read them."""
JSON = Words('"NaN"', '"Infinity"', '"-Infinity"')
"""As ``nouns.jsonable`` writes them."""
_EXACT = 2.0**53


def texts(values: npt.NDArray[np.floating], words: Words) -> list[str]:
    """Return each number of a column as text: the shortest that gives the same float32 or float64."""
    if not len(values):
        return []
    bits = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
    if (bits == bits[0]).all():  # about half of all columns
        return [_text(values[0], words)] * len(values)
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        whole = (
            finite & (np.abs(values) < _EXACT) & (values == np.trunc(values)) & ~((values == 0) & np.signbit(values))
        )
    if whole.all():
        return list(map(str, values.astype(np.int64).tolist()))
    found: list[str] = values.astype("U").tolist()
    for at in np.flatnonzero(~finite).tolist():
        found[at] = _text(values[at], words)
    return found


def _text(value: np.floating, words: Words) -> str:
    if np.isnan(value):
        return words.nan
    if np.isinf(value):
        return words.inf if value > 0 else words.minus_inf
    return (
        str(int(value))
        if abs(value) < _EXACT and value == int(value) and (value or not np.signbit(value))
        else str(value)
    )
