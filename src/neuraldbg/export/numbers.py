"""Numbers as text: the fewest digits that read back to the same number, fast for columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Words(NamedTuple):
    """The texts of a format for NaN, infinity and minus infinity."""

    nan: str
    inf: str
    minus_inf: str


PLAIN = Words("NaN", "inf", "-inf")
"""Texts that Python, numpy, pandas and R read."""
JSON = Words('"NaN"', '"Infinity"', '"-Infinity"')
"""Texts that ``nouns.jsonable`` writes."""
_EXACT = 2.0**53


def texts(values: npt.NDArray[np.floating], words: Words) -> list[str]:
    """Return each number of a column as text: the shortest that gives the same float32 or float64."""
    if not len(values):
        return []
    bits = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
    if (bits == bits[0]).all() and len(values) > 1:  # about half of all columns
        return texts(values[:1], words) * len(values)
    finite, negative_zero = np.isfinite(values), (values == 0) & np.signbit(values)
    with np.errstate(invalid="ignore"):
        whole = finite & (np.abs(values) < _EXACT) & (values == np.trunc(values)) & ~negative_zero
    integers = map(str, values[whole].astype(np.int64).tolist())
    if whole.all():
        return list(integers)
    found: list[str] = values.astype("U").tolist()
    for at, text in zip(np.flatnonzero(whole).tolist(), integers, strict=True):
        found[at] = text
    for at in np.flatnonzero(~finite).tolist():
        found[at] = words.nan if np.isnan(values[at]) else (words.inf if values[at] > 0 else words.minus_inf)
    return found
