"""The pairs of sites of two runs, in the order in which a training step produces them.

Two layouts and their matched layers enter. The first difference in that order is nearest to the cause: the inputs;
then, layer by layer along the data flow, the weights at the beginning of the step (they are read before the optimizer
changes them) and the layer's output; the loss; the gradients at the outputs, backwards; those of the parameters; and
the updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Layout, Site

Key = tuple[int, int, int, int]
"""Position in a step: phase, depth of the layer, order within the layer, call."""
INPUT, FORWARD, LOSS, BACKWARD, GRADIENT, UPDATE = range(6)
_PHASE = {
    "input": INPUT,
    "param": FORWARD,
    "activation": FORWARD,
    "op": LOSS,
    "loss": LOSS,
    "output_grad": BACKWARD,
    "param_grad": GRADIENT,
    "update": UPDATE,
}
LAST = 2**31
"""Depth after all layers."""


@dataclass(frozen=True)
class SitePair:
    """One site of a layer, as both runs have it."""

    one: Site
    other: Site
    rows: tuple[int, int]
    """Row of the site in each run's table."""
    key: Key

    @property
    def apart(self) -> bool:
        """Return True if samples of a large tensor are of other elements in the two runs: compiled graphs, whose sites
        have no dtype, sample tensors along their axes; elsewhere samples are blocks.
        """
        return self.one.kind in ("activation", "output_grad") and (self.one.dtype == "") != (self.other.dtype == "")

    @property
    def group(self) -> tuple[str, str]:
        """Key of the sites whose differences are relative to one size: the parameters of a layer, or one site."""
        own = self.one.kind in ("param", "param_grad", "update")
        return (self.one.kind, self.one.module if own else f"{self.one.module}\0{self.one.call}\0{self.one.name}")


def pair_sites(layouts: tuple[Layout, Layout], layers: Mapping[str, str]) -> tuple[list[SitePair], tuple[int, int]]:
    """Pair sites by kind, matched layer, call and name. Also return the number of sites that only one run has."""
    known: dict[tuple[str, str, int, str], int] = {}
    for row, site in enumerate(layouts[1].sites):
        known.setdefault((site.kind, site.module, site.call, site.name), row)
    found: dict[tuple[str, str, int, str], SitePair] = {}
    for row, site in enumerate(layouts[0].sites):
        module = layers.get(site.module, site.module if site.module not in layouts[0].by_path else None)
        if module is None:
            continue
        key = (site.kind, module, site.call, site.name)
        twin = known.get(key)
        if twin is not None and key not in found:
            place = position(site.kind, layouts[0].depth.get(site.module, LAST), site.call)
            found[key] = SitePair(site, layouts[1].sites[twin], (row, twin), place)
    pairs = sorted(found.values(), key=lambda pair: (pair.key, pair.group))
    return pairs, (len(layouts[0].sites) - len(pairs), len(layouts[1].sites) - len(pairs))


def position(kind: str, depth: int, call: int = 0) -> Key:
    """Return the position in a step at which a site of this kind is computed."""
    phase = _PHASE.get(kind, LOSS)
    place = -depth if phase in (BACKWARD, GRADIENT) else depth
    return (phase, place, int(kind in ("activation", "loss")), -call if phase == BACKWARD else call)
