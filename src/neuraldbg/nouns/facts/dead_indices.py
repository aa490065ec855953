"""The DEAD_INDICES fact: which units of each layer are dead, by their indices."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class DeadLayer:
    """The dead units of one output of a layer."""

    layer: str
    """The path of the layer."""
    units: Count
    """The number of its units: channels of a convolution, features of others."""
    dead: Count
    """The number of dead units."""
    call: Count = 0
    """The call of the layer within a forward pass, from 0."""
    name: str = ""
    """The name of the part of a nested output; empty for a plain one."""
    ranges: tuple[tuple[Count, Count], ...] = ()
    """First and last index of stretches of dead units, ascending; the first of them if there are many."""


@frozen
class DeadIndicesFact(Known):
    """The dead units of all layers that have any, as of the newest reading of each."""

    KEY: ClassVar = "dead_indices"

    layers: tuple[DeadLayer, ...] = ()
    """Layers in the order in which they were first read; of very many, those with the largest share of dead units."""
    left_out: Count = 0
    """Layers with dead units that are not in ``layers``."""
