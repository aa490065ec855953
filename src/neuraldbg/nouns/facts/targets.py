"""TODO targets."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import ClassId, Count, Numeral, Wide
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The targets of one loss over the run so far, at steps that are powers of two and at the end: {"slot": int (which loss), "stream": int, "kind": as in LOSS, "alone": bool (the only loss of its backward pass that saves targets), "single": bool (backward passes of one kind only), "maximised": bool (by the optimizer), "batches", "samples", of class ids: "classes", "distinct", "histogram": {id: count} (64 most frequent), "ignore", "ignored" (share), "empty" (batches with nothing but ignored ids), "first_empty" (step), "entropy" (nats), "batch_entropy" (mean inside a batch), "same_next" (share of batches whose most frequent class is that of the batch before), "same_by_chance", "switches" [step], "period" (batches after which the same come again, 0 never); of numbers: "min", "max", "mean", "std", "batch_std", "outside_unit" (share outside [0, 1]), "negative" (share), "integral", "values": {value: count} (if at most 64), "means_std", "means_correlation", "period"; "predicted": {"from": step, "readings": int, "classes": {id: [labels, said, right]}} of the later readings; "mask_zeros": float, "tokens": {"match": {offset: share of targets equal to the input token there}, "compared", "padded" (share of counted targets that are padding), "padded_rows", "pad": id, "mask": {"padding", "rest"}, "unlabelled_rows" (share in which no target counts), "order": {"guessed", "given", "mirrored", "base", "copies"} (shares of labels that tokens tell at their own and at mirrored positions, and the most frequent label)}; "fit": {"samples", "features", "score" (leave-one-out R^2 of targets from inputs), "null", "null_sd" (of permuted targets), "z", "best" (another alignment), "best_score", "best_z", "again", "agree", "spread" (of inputs over directions: 1 for independent numbers), "ordinal" (of whole numbers: how far near ones have near inputs)}}.
class ClassScore(NamedTuple):
    """TODO."""

    labels: Count
    said: Count
    right: Count


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """TODO."""

    from_: int | None = None
    readings: Count | None = None
    classes: dict[ClassId, ClassScore] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TokenMask:
    """TODO."""

    padding: float
    rest: float


@dataclass(frozen=True, kw_only=True)
class TokenOrder:
    """TODO."""

    guessed: Count | None = None
    given: float | None = None
    mirrored: float | None = None
    base: float | None = None
    copies: float | None = None


@dataclass(frozen=True, kw_only=True)
class TokenTargets:
    """TODO."""

    batches: Count | None = None
    positions: Count | None = None
    match: dict[ClassId, float] = field(default_factory=dict)
    compared: Count | None = None
    padded: float | None = None
    padded_rows: float | None = None
    pad: int | None = None
    mask: TokenMask | None = None
    unlabelled_rows: float | None = None
    lost: float | None = None
    lost_kinds: Count | None = None
    order: TokenOrder | None = None


@dataclass(frozen=True, kw_only=True)
class TargetFit:
    """TODO."""

    JOINED: ClassVar = (("best", "best_score", "best_z"),)

    samples: Count
    score: float
    null: float
    z: float
    spread: float
    features: Count | None = None
    null_sd: float | None = None
    best: str = ""
    best_score: float | None = None
    best_z: float | None = None
    again: Count | None = None
    agree: Count | None = None
    ordinal: float | None = None


@dataclass(frozen=True, kw_only=True)
class TargetsFact(Known):
    """TODO."""

    KEY: ClassVar = "targets"
    IDENTITY: ClassVar = "slot"
    JOINED: ClassVar = (
        ("classes", "distinct", "entropy"),
        ("distinct", "classes"),
        ("batch_entropy", "same_next", "same_by_chance", "period", "entropy", "distinct"),
        ("integral", "min", "max", "period"),
    )

    kind: str
    batches: Count
    samples: Count
    slot: Count | None = None
    stream: Count | None = None
    alone: bool = False
    single: bool = False
    maximised: bool = False
    classes: Count | None = None
    distinct: Count | None = None
    histogram: dict[ClassId, Count] = field(default_factory=dict)
    ignore: Wide | None = None
    empty: Count | None = None
    first_empty: int | None = None
    switches: tuple[int, ...] = ()
    period: Count | None = None
    integral: bool = False
    values: dict[Numeral, Count] = field(default_factory=dict)
    predicted: Predictions | None = None
    mask_zeros: float | None = None
    tokens: TokenTargets | None = None
    fit: TargetFit | None = None
    ignored: float | None = None
    entropy: float | None = None
    batch_entropy: float | None = None
    same_next: float | None = None
    same_by_chance: float | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    batch_std: float | None = None
    outside_unit: float | None = None
    negative: float | None = None
    means_std: float | None = None
    means_correlation: float | None = None
