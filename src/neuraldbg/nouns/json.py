"""The conversion of our values to strict JSON: a NaN is the string "NaN", an infinity "Infinity" or "-Infinity"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import numpy as np

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def jsonable(value: Any) -> Json:
    """Convert dataclasses, mappings, sequences, numpy scalars and arrays to strict JSON values; others by ``str``."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, np.ndarray):
        return [jsonable(item) for item in value.tolist()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return [jsonable(item) for item in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return str(value)
