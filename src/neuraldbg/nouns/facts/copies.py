"""The COPIES fact: evaluated copies of a trained model."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class CopiesFact(Known):
    """A model that is evaluated and in no optimizer, beside the trained one of which it is a copy."""

    KEY: ClassVar = "copies"

    model: str
    """The name of the copy."""
    names: tuple[str, ...]
    """The names by which the program holds it."""
    of: str
    """The name of the trained model."""
    kind: str
    """The type of the copy: "AveragedModel" or "copy"."""
    averaged: int | None
    """The counter ``n_averaged``; None if it is no ``AveragedModel``."""
    stale_norms: tuple[str, ...]
    """The paths of batch-norm layers that never saw a batch, in evaluation mode."""
    lag: float | None
    """The distance of the copy from all multiples of the trained model's first weights, relative to the distance of the
    trained model; None if it was not computed."""
    began_equal: bool
    """True if its weights were those of the trained model at step 0 when first seen."""
    constant: bool
    """True if its weights were the same at every evaluation that was seen."""
    follows: bool
    """True if its weights were bitwise those of the trained model at every evaluation that was seen."""
    moved: bool
    """True if the weights of the trained model have moved."""
    swapped: bool
    """True if it is the trained model itself, given back its first weights for the evaluation."""
    evaluated: int
    """The number of steps before which it was evaluated."""
    first: int
    """The first of those steps."""
    last: int
    """The last of those steps."""
    written: int
    """The number of evaluations before which its weights had been written to."""
    refreshed: int
    """The number of evaluations before which its running statistics had changed, without a pass of its own in training
    mode."""
    unseen: bool = False
    """True if steps went by unseen, so that the fields speak only of the evaluations that were seen."""
    apart: bool = False
    """True if, after unseen steps, its weights are not those of the trained model at the end of the run."""
