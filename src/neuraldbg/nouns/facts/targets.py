"""The TARGETS fact: the targets of one loss over the run so far, and their relation to the inputs."""

from dataclasses import field
from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import ClassId, Count, Numeral, Wide
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


class ClassScore(NamedTuple):
    """Counts of the labels and the predictions of one class."""

    labels: Count
    """Labels of the class."""
    said: Count
    """Predictions of the class."""
    right: Count
    """Predictions of the class that are right."""


@frozen
class Predictions:
    """The predictions of the network in the later half of the readings."""

    from_: int | None = None
    """Step of the first of these readings, None if it is not known."""
    readings: Count = 0
    """Number of these readings."""
    classes: dict[ClassId, ClassScore] = field(default_factory=dict)
    """Counts of each class, that with the most labels first; at most 64 classes."""


@frozen
class TokenMask:
    """Means of the mask that multiplies the elements of the loss."""

    padding: float
    """Mean of the mask over padding."""
    rest: float
    """Mean of the mask over all other targets."""


@frozen
class TokenOrder:
    """Shares of the labels that a table of the input tokens guesses, in the order given and in the reverse order."""

    guessed: Count = 0
    """Labels that were guessed."""
    given: float = 0.0
    """Share of the labels that tokens tell at their own positions."""
    mirrored: float = 0.0
    """Share of the labels that tokens tell at the mirrored positions of their rows."""
    base: float = 0.0
    """Share of the most frequent label."""
    copies: float = 1.0
    """Share of the labels that equal the token at the mirrored position."""


@frozen
class TokenTargets:
    """Targets of a sequence compared with its input tokens, position by position."""

    batches: Count = 0
    """Batches that were compared."""
    positions: Count = 0
    """Targets in these batches."""
    match: dict[ClassId, float] = field(default_factory=dict)
    """Share of the counted targets that equal the input token at an offset from their own position, by that offset."""
    compared: Count = 0
    """Counted targets that were compared at offset 0."""
    padded: float = 0.0
    """Share of the counted targets that are padding."""
    padded_rows: float = 0.0
    """Share of the rows in which padding counts."""
    pad: int | None = None
    """Token of the padding that counts, None if there is none."""
    mask: TokenMask | None = None
    """Means of the mask over padding and over the rest, None if there is no mask or no padding."""
    unlabelled_rows: float = 0.0
    """Share of the rows in which no target counts."""
    lost: float = 0.0
    """Share of the labels inside sentences that are ignored and stand between labels that count."""
    lost_kinds: Count = 0
    """Kinds of tokens at which such labels stand."""
    order: TokenOrder | None = None
    """Guesses of the labels from tokens, None if too few labels could be guessed."""


@frozen
class TargetFit:
    """The score of a kernel regression of the targets from the inputs, beside those of permuted targets."""

    JOINED: ClassVar = (("best", "best_score", "best_z"),)

    samples: Count
    """Samples that were used."""
    score: float
    """Leave-one-out R^2 in the given order."""
    null: float
    """Mean R^2 of permuted targets."""
    z: float
    """Standard deviations of permuted targets by which ``score`` exceeds ``null``."""
    spread: float
    """Spread of the inputs over directions: 1 for independent numbers, less where they have structure."""
    features: Count = 0
    """Numbers of each input."""
    null_sd: float | None = None
    """Standard deviation of the R^2 of permuted targets, None if it is not known."""
    best: str = ""
    """Other alignment of targets with inputs that fits best, empty if none was tried."""
    best_score: float = 0.0
    """Leave-one-out R^2 of that alignment."""
    best_z: float = 0.0
    """Standard deviations of permuted targets by which ``best_score`` exceeds ``null``."""
    again: Count = 0
    """Inputs that came again in a later batch."""
    agree: Count = 0
    """Those of them that kept their class id."""
    ordinal: float | None = None
    """Correlation, over pairs of whole numbers as targets, of their difference with the distance of their mean inputs:
    near 1 for amounts, near 0 for names. None if the targets are not whole numbers without a gap."""


@frozen
class TargetsFact(Known):
    """The targets of one loss over the run so far, logged in steps whose facts are read, and at the end."""

    KEY: ClassVar = "targets"
    JOINED: ClassVar = (
        ("classes", "distinct", "entropy"),
        ("distinct", "classes"),
        ("batch_entropy", "same_next", "same_by_chance", "period", "entropy", "distinct"),
        ("integral", "min", "max", "period"),
    )

    kind: str
    """Form of the loss, as in ``LossTerm.kind``; a cross entropy is ``nll``."""
    batches: Count
    """Batches that were read."""
    samples: Count
    """Targets that were read, without ignored ids and without numbers that are not finite."""
    slot: Count = 0
    """Number of the loss."""
    stream: Count | None = None
    """Number of the optimizer that steps on this loss, None if it is not known."""
    alone: bool = False
    """True if it is the only loss of its backward pass that saves targets."""
    single: bool = False
    """True if the run has backward passes of one kind only."""
    maximised: bool = False
    """True if the optimizer maximises."""
    classes: Count = 0
    """Classes of the loss, 0 if it compares numbers."""
    distinct: Count = 0
    """Classes that occurred."""
    histogram: dict[ClassId, Count] = field(default_factory=dict)
    """Number of labels of each class, of the 64 most frequent ones."""
    ignore: Wide | None = None
    """Class id that the loss ignores, None if it compares numbers."""
    empty: Count = 0
    """Batches with nothing but ignored ids."""
    first_empty: int | None = None
    """Step of the first such batch, None if there was none."""
    switches: tuple[int, ...] = ()
    """Steps at which the most frequent class of the batch changed, at most 64."""
    period: Count = 0
    """Batches after which the same batches come again in the same order, 0 if they never do."""
    integral: bool = False
    """True if all numbers are whole."""
    values: dict[Numeral, Count] = field(default_factory=dict)
    """Number of targets of each value, empty if there are more than 64 values."""
    predicted: Predictions | None = None
    """Predictions of the network, None if they were not read."""
    mask_zeros: float | None = None
    """Share of zeros in the mask that multiplies the elements of the loss, None if there is no mask."""
    tokens: TokenTargets | None = None
    """Comparison with the input tokens, None if the targets are no sequence."""
    fit: TargetFit | None = None
    """Regression of the targets from the inputs, None before the run is summed up or with too few samples."""
    ignored: float = 0.0
    """Share of the labels that are ignored."""
    entropy: float | None = None
    """Entropy of the labels of the run in nats, None if the loss compares numbers."""
    batch_entropy: float | None = None
    """Mean entropy of the labels of a batch in nats, None if labels of single batches were not counted."""
    same_next: float = 0.0
    """Share of the batches whose most frequent class is that of the batch before."""
    same_by_chance: float = 1.0
    """Expectation of ``same_next`` for batches in a random order."""
    min: float | None = None
    """Smallest number, None if the loss chooses classes or nothing finite was read."""
    max: float | None = None
    """Largest number, None as ``min``."""
    mean: float | None = None
    """Mean of the numbers, None as ``min``."""
    std: float = 0.0
    """Standard deviation of the numbers, 0 if the loss chooses classes."""
    batch_std: float = 0.0
    """Mean standard deviation inside a batch, 0 if the loss chooses classes."""
    outside_unit: float = 0.0
    """Share of the numbers outside [0, 1]."""
    negative: float = 0.0
    """Share of the numbers below 0."""
    means_std: float | None = None
    """Standard deviation of the batches' means, None if there are fewer than three."""
    means_correlation: float = 0.0
    """Correlation of the mean of a batch with that of the batch before, 0 if there are fewer than three."""
