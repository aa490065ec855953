"""The HIDDEN fact: weights that no module has registered."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class HiddenWeight:
    """A weight in the graph of the loss that is in no optimizer and no parameter of its holder."""

    name: str
    """The weight as code: "Net.layers[2].weight"."""
    owner: str
    """The object that holds the weight, as code: "Net.layers[2]"; the same as ``name`` for a bare tensor."""
    attribute: str
    """The attribute of the module through which the weight is reached: "layers"."""
    how: str
    """The way in which the module holds it: in a "list", "dict", "tuple", "set" or "object", as a "tensor", or as a
    "result" if the module holds what was computed from it; "model" if it is a weight of a watched model without layers,
    such as a loss."""
    layer: str
    """The path of the owner: "layers[2]"."""
    shape: tuple[Count, ...]
    """The shape of the weight."""
    holder: str
    """The path of the module with the attribute, or the model's name for "model"; empty for the model itself."""
    parameter: bool
    """True if the weight is an ``nn.Parameter``."""
    lone: bool
    """True if the owner is the only module in its list."""
    feeds: tuple[str, ...]
    """The paths of the trained layers that the weight feeds, and "loss" for all else."""
    seen: Count
    """The number of readings in which the graph reached the weight."""
    moved: bool
    """True if its values have changed since it was first seen."""
    first: int = 0
    """The optimizer step in which it was first seen."""


@frozen
class HiddenFact(Known):
    """The weights that the graph of the loss reaches and that nothing trains or registers."""

    KEY: ClassVar = "hidden"

    weights: tuple[HiddenWeight, ...] = ()
    """The weights, in the order in which they were found."""
