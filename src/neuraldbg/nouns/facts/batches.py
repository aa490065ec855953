"""The BATCHES fact: the inputs of a model over the run, from samples of its first one."""

from dataclasses import field
from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import ClassId, Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class Level:
    """The scale of the inputs in training or in evaluation passes."""

    mean: float
    """Median of the passes' means."""
    std: float
    """Median of the passes' standard deviations."""
    low: float
    """Smallest value of all passes."""
    high: float
    """Largest value of all passes."""
    passes: Count
    """Passes that were read."""
    wander: float
    """Median distance of the passes' means from their median."""
    column_offset: float | None = None
    """Mean over the columns of a table of their squared means, the median of the passes; None if it is no table."""
    column_variance: float | None = None
    """Mean over the columns of a table of their variances, the median of the passes; None if it is no table."""


@frozen
class AlikeWorkers:
    """Random numbers that all workers of a data loader draw alike."""

    how: str
    """Reason: "init" for a ``worker_init_fn`` with a constant seed, "copied" for a generator that the dataset holds."""
    name: str
    """Name of that function, or of the attribute with the generator."""
    workers: Count
    """Workers of the loader."""
    dataset: str
    """Class of the dataset."""


class Likeness(NamedTuple):
    """Correlations of the numbers of an image of shape (C, H, W), laid out in that order."""

    beside: float
    """Of numbers C - 1 or C + 1 apart, the larger one."""
    apart: float
    """Of numbers C apart."""


class OddBatch(NamedTuple):
    """A training pass whose batch has another size than usual."""

    step: int
    """Step of the first pass with a batch of this size."""
    size: Count
    """Samples in the batch."""


@frozen
class Columns:
    """The scale of the columns of a table, read in one training batch."""

    std_min: float
    """Smallest standard deviation of a column that is not constant."""
    std_max: float
    """Largest standard deviation of a column."""
    offset: float
    """Largest ratio of absolute mean to standard deviation over the columns that are not constant."""
    worst: int
    """Column with that ratio, counted from 0."""
    worst_mean: float
    """Mean of that column."""
    worst_std: float
    """Standard deviation of that column."""
    count: Count = 0
    """Columns."""
    constant: Count = 0
    """Columns that are constant or not finite."""


@frozen
class EvaluatedDataset:
    """A dataset from which loaders took evaluation batches."""

    trained: bool
    """True if loaders took training batches from it too."""
    shared: Count
    """Evaluated samples that were trained on, of those that could be compared."""
    samples: Count
    """Evaluated samples that could be compared."""
    bursts: Count
    """Bursts of evaluation in which it was used."""


@frozen
class Overlap:
    """The samples of evaluation passes, compared with those that were trained on."""

    passes: Count
    """Evaluation passes that could be compared."""
    mixed: Count
    """Passes of which a part was trained on."""
    pure: Count
    """Passes of which (nearly) all was trained on."""
    shared: Count
    """Evaluated samples that were trained on."""
    samples: Count
    """Evaluated samples that could be compared."""
    mixed_shared: Count
    """Samples of the mixed passes that were trained on."""
    mixed_samples: Count
    """Samples of the mixed passes."""
    again: Count
    """Evaluation passes repeated in a later burst."""
    seen_before: float
    """Share of the newest training samples that came before."""
    twice: float
    """Share of the training samples that stand twice in their batch."""
    datasets: tuple[EvaluatedDataset, ...]
    """Datasets that loaders evaluated, at most eight."""
    covered: float = 0.0
    """Share of the samples that were read, of those in the training passes that were sampled."""
    recall: float = 0.0
    """Share of the training data that one burst evaluates, about."""
    natural: float = 0.0
    """Share of the training samples, of whole numbers, that equal another one, at most; 0 if it is not known."""


@frozen
class LoaderWorkers:
    """The one data loader with workers that is at work."""

    workers: Count
    """Workers of the loader."""
    dataset: str
    """Class of the dataset."""
    iterable: str = ""
    """Class of the dataset if it is an ``IterableDataset``, else empty."""


@frozen
class EqualBatches:
    """Runs of equal training passes, one directly after the other."""

    lengths: dict[ClassId, Count] = field(default_factory=dict)
    """Number of runs of each length in passes; 17 stands for all longer than 16."""
    first: int = -1
    """Step of the first pass that equals the one before it, -1 if there is none."""
    reused: Count = 0
    """Passes that were given the very tensor of the pass before."""
    workers: LoaderWorkers | None = None
    """Loader behind the equal passes, None if there is none with workers or several."""


@frozen
class BatchesFact(Known):
    """The batches of a model, logged at the end: their sizes, scale, repetition and overlap.

    It is read from samples of the first input. Evaluation passes are those in eval mode without gradients; such passes
    between two optimizer steps make one burst.
    """

    KEY: ClassVar = "batches"

    grid: str
    """Grid on which pixel values lie in training: "bytes" (0..255), "unit" (k/255), "twice" (k/255/255), "shrunk"
    ((k/255 - 127.5)/127.5), "faint" ((k/255/255 - mean)/std), or empty."""
    train: Level | None
    """Scale of the inputs in training, None if they were not read."""
    skewed: float
    """Share of the evaluation passes whose mean or spread lies outside of those of all training passes."""
    alike: AlikeWorkers | None
    """Random numbers that all workers of the training loader draw alike, None if none are known."""
    model: str = ""
    """Name of the model."""
    first_eval: int = -1
    """Step of the first evaluation pass, -1 if there is none."""
    odd: tuple[OddBatch, ...] = ()
    """First passes of batches of other sizes than ``usual``."""
    floating: bool = False
    """True if the input holds floating-point numbers."""
    shape: tuple[Count, ...] = ()
    """Shape of the input in the newest training pass that was read."""
    grid_eval: str = ""
    """Grid on which pixel values lie in evaluation, as in ``grid``."""
    columns: Columns | None = None
    """Scale of the columns, None if the input is no table of floating-point numbers."""
    eval: Level | None = None
    """Scale of the inputs in evaluation, None if they were not read."""
    overlap: Overlap | None = None
    """Overlap of evaluation with training, None if nothing was compared."""
    likeness: Likeness | None = None
    """Likeness of the numbers of an image in the order of its shape, None if the inputs are no images of 3 or 4
    channels."""
    runs: EqualBatches = field(default_factory=EqualBatches)
    """Equal training passes in a row."""
    passes: Count = 0
    """Training passes."""
    steps: Count = 0
    """Steps with a training pass."""
    evals: Count = 0
    """Evaluation passes."""
    bursts: Count = 0
    """Bursts of evaluation."""
    usual: Count = 0
    """Most frequent batch size in training, 0 if it is not known."""
    sizes: Count = 0
    """Different batch sizes in training."""
