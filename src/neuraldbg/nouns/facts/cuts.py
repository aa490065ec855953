"""The CUTS fact: called layers that the loss's graph never reaches."""

from typing import ClassVar, Literal

from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class GraphCut:
    """A cut of the graph between two layers that are called one after the other."""

    after: str
    """The path of the last layer before the cut, which gets no gradient."""
    before: str
    """The path of the first layer behind the cut, which gets gradients."""
    how: Literal["shared", "shape", "next"]
    """The evidence that the two belong together: "shared" if the input of the one is the output of the other, "shape"
    if it has its shape, "next" if the one is merely called after the other."""
    place: SourceLine | None
    """The line that calls the layer behind the cut, or its model if the cut is before that; None if it is not known."""
    end: SourceLine | None = None
    """The line that ends the graph, of a ``detach()``, ``.data``, ``.item()`` or ``no_grad``; None if it is not
    certain, or was not searched for yet."""


@frozen
class CutsFact(Known):
    """The layers of one model that a training pass calls and the loss's graph never reaches."""

    KEY: ClassVar = "cuts"

    model: str
    """The model's name."""
    cut: GraphCut | None
    """The cut between two layers with the strongest evidence; None if none was found."""
    no_grad: dict[str, SourceLine | None]
    """The layers without a gradient that are called with gradients off inside a pass that has them on, by path, each
    with the line that switches gradients off, or calls it; None if neither is known."""
    unreached: tuple[str, ...]
    """The paths of layers that an optimizer holds and that got no gradient so far."""
    reached: tuple[str, ...] = ()
    """The paths of layers that got a gradient."""
    lost: tuple[str, ...] = ()
    """The paths of layers that an optimizer holds, and that got gradients before, but none in the step of the fact."""
