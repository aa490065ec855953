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
    apart: bool = False
    """True if samples of a large tensor are of other elements in the two runs: compiled graphs sample tensors along
    their axes; elsewhere samples are blocks."""

    @property
    def group(self) -> tuple[str, str]:
        """Key of the sites whose differences are relative to one size: the parameters of a layer, or one site."""
        own = self.one.kind in ("param", "param_grad", "update")
        return (self.one.kind, self.one.module if own else f"{self.one.module}\0{self.one.call}\0{self.one.name}")

    @property
    def source(self) -> tuple[str, str, int, str]:
        """Key of the site in the first run."""
        return (self.one.kind, self.one.module, self.one.call, self.one.name)

    @property
    def belongs(self) -> tuple[str, str, int, str] | None:
        """Key of the site whose gradient or update this is: a weight or an output. None if it is of its own."""
        kind = {"param_grad": "param", "update": "param", "output_grad": "activation"}.get(self.one.kind)
        return None if kind is None else (kind, self.one.module, self.one.call, self.one.name)


def pair_sites(
    layouts: tuple[Layout, Layout], layers: Mapping[str, str], *, loss_alike: bool = True
) -> tuple[list[SitePair], tuple[int, int]]:
    """Pair sites by kind, matched layer, call and name. Also return the number of sites that only one run has.

    Operations have no names but numbers: they are paired where both runs have the same ones, and those of the loss only
    if it is made of the same operations, ``loss_alike``. The third division of one loss has nothing to do with the
    third of another.
    """
    operations = [_operations(layout) for layout in layouts]
    eager = [_eager(layout) for layout in layouts]
    known: dict[tuple[str, str, int, str], int] = {}
    for row, site in enumerate(layouts[1].sites):
        known.setdefault((site.kind, site.module, site.call, site.name), row)
    found: dict[tuple[str, str, int, str], SitePair] = {}
    for row, site in enumerate(layouts[0].sites):
        module = layers.get(site.module, site.module if site.module not in layouts[0].by_path else None)
        if module is None:
            continue
        if site.kind == "op" and (
            operations[0].get(site.module) != operations[1].get(module) or not (loss_alike or site.module)
        ):
            continue
        key = (site.kind, module, site.call, site.name)
        twin = known.get(key)
        if twin is not None and key not in found:
            place = position(site.kind, layouts[0].depth.get(site.module, LAST), site.call)
            other = layouts[1].sites[twin]
            apart = site.kind in ("activation", "output_grad") and (_output(site) in eager[0]) != (
                _output(other) in eager[1]
            )
            found[key] = SitePair(site, other, (row, twin), place, apart)
    pairs = sorted(found.values(), key=lambda pair: (pair.key, pair.group))
    return pairs, (len(layouts[0].sites) - len(pairs), len(layouts[1].sites) - len(pairs))


def _output(site: Site) -> tuple[str, int, str]:
    return (site.module, site.call, site.name)


def _eager(layout: Layout) -> set[tuple[str, int, str]]:
    """Return the outputs that were read outside of compiled graphs, in which no dtype is noted. The gradient of an
    output is read where the output is; its own dtype is missing in older files that were written before it was read.
    """
    return {_output(site) for site in layout.sites if site.kind == "activation" and site.dtype}


def _operations(layout: Layout) -> dict[str, set[tuple[int, str]]]:
    """Return the operations of each layer, and those of the loss under ""."""
    found: dict[str, set[tuple[int, str]]] = {}
    for site in layout.sites:
        if site.kind == "op":
            found.setdefault(site.module, set()).add((site.call, site.name))
    return found


def position(kind: str, depth: int, call: int = 0) -> Key:
    """Return the position in a step at which a site of this kind is computed."""
    phase = _PHASE.get(kind, LOSS)
    place = -depth if phase in (BACKWARD, GRADIENT) else depth
    return (phase, place, int(kind in ("activation", "loss")), -call if phase == BACKWARD else call)
