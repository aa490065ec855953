"""The LOSS_BRANCHES fact: the gradients of two losses in the weights that both reach."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class LossBranchesFact(Known):
    """Two losses on shared weights, and how far their gradients agree."""

    KEY: ClassVar = "loss_branches"

    pair: str
    """``kind`` and both names in one text, by which versions of the fact belong together."""
    step: int
    """Optimizer step of the reading."""
    layer: str | None
    """Path of the layer whose output or parameters both losses reach, None for "backwards" or if none was found."""
    cosine: float
    """Cosine between the two gradients."""
    norms: tuple[float, float]
    """Norms of the two gradients."""
    names: tuple[str, str]
    """Names of the two losses, each as "operation of layer"."""
    kind: str = ""
    """Relation of the two losses: "terms" of one sum, or "backwards" for backward passes one after the other; empty if
    it is not known."""
