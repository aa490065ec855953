"""The DATASET_WRITES fact: arrays of datasets that were written to between two passes."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class WrittenArray:
    """An array or tensor that a dataset holds, from samples of its numbers at the beginning of each pass."""

    dataset: str
    """Class of the dataset."""
    name: str
    """Attribute that holds it."""
    passes: Count
    """Passes that began with the same array."""
    changed: Count
    """Those at which its numbers differed from those of the pass before."""
    item: tuple[Count, ...] = ()
    """Shape of one item."""
    first: int = -1
    """Optimizer step of the first of these passes."""
    share: float = 0.0
    """Share of its numbers that differed at the last of them."""
    likeness: float = 0.0
    """Smallest correlation of the numbers that differed with what they were before."""
    means: tuple[float, ...] = ()
    """Mean at the first pass and at the newest ones."""
    stds: tuple[float, ...] = ()
    """Standard deviation at the first pass and at the newest ones."""


@frozen
class DatasetWritesFact(Known):
    """The arrays that were written to so far."""

    KEY: ClassVar = "dataset_writes"

    arrays: tuple[WrittenArray, ...] = ()
    """At most eight."""
