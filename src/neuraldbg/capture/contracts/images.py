"""The contracts of functions that look values up in images: grids of coordinates, changes of size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.contracts.contract import Breach, Contract, F
from neuraldbg.capture.contracts.numbers import distinct, sample, span, words

if TYPE_CHECKING:
    from collections.abc import Mapping

_NN = torch._C._nn  # noqa: SLF001 (the public functions look their built-in part up here)
OUTSIDE = 0.5
"""Share of coordinates outside of the image from which on they are in other units: a transformation moves a border
out."""
HALF = 0.05
"""Largest distance from 0 and from 1 of coordinates that go from 0 to 1."""
PLACES, PIXELS = 8, 64
"""Coordinates, and pixels, from which on their values say something."""
CLASSES = 256
"""Ids of classes in a map, at most."""


def _grid(given: Mapping[str, Any]) -> Breach | None:
    """Coordinates go from -1 to 1 over the image."""
    held, found = sample(given.get("grid")), span(given.get("grid"))
    if held is None or found is None or len(held) < PLACES:
        return None
    outside = float((held.abs() > 1).float().mean())
    if outside > OUTSIDE:
        return Breach("grid_units", f"coordinates from {found[0]:.3g} to {found[1]:.3g}, {outside:.0%} of them outside")
    if abs(found[0]) < HALF and abs(found[1] - 1) < HALF and found[0] >= 0:
        return Breach("grid_from_nought", f"coordinates from {found[0]:.2g} to {found[1]:.2g}")
    return None


def _scaled(given: Mapping[str, Any]) -> Breach | None:
    """Values between neighbours mean something: ids of classes have none."""
    held = sample(given.get("input"))
    if held is None or len(held) < PIXELS or not held.is_floating_point():
        return None
    values = distinct(given.get("input"))
    whole = bool((held == held.round()).all()) and float(held.min()) >= 0 and float(held.max()) < CLASSES
    # A mask of 0 and 1 may be meant to have soft borders.
    return Breach("ids_between", words(values)) if whole and values is not None and len(values) > 2 else None


CONTRACTS: tuple[Contract, ...] = (
    Contract(F + "grid_sample", torch, "grid_sampler", ("input", "grid"), _grid),
    *(
        Contract(F + "interpolate", _NN, name, ("input",), _scaled)
        for name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d")
    ),
)
