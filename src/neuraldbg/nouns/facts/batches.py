"""TODO batches."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import ClassId, Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: What went into a model, from samples of its first input, logged at the end: {"model": str, "passes": int (of training), "steps": int (with such a pass that was seen), "evals": int (in eval mode without gradients), "bursts": int (steps before which there were some), "first_eval": int (step of the first, -1 for none), "usual": int (batch size), "odd": [[step, size]] (first passes of other sizes), "sizes": int, "floating": bool, "shape": [int], "grid": "bytes" | "unit" | "twice" | "shrunk" | "faint" | "" (on which pixel values lie: 0..255, k/255, k/255/255, (k/255 - 127.5)/127.5, (k/255/255 - mean)/std), "grid_eval": the same, "columns": {"std_min", "std_max", "offset" (largest |mean| / std), "worst" (its column), "worst_mean", "worst_std", "count", "constant"} | None, "train": LEVEL | None, "eval": LEVEL | None with LEVEL = {"mean", "std", "low", "high", "passes", "wander"}, "skewed": float (share of evaluation passes outside of all training passes), "overlap": {"passes", "mixed" (evaluation passes of which a part was trained on), "pure" (all of it), "shared", "samples", "mixed_shared", "mixed_samples", "seen_before" (share of the newest training samples that came before), "twice" (share of samples that stand twice in their batch), "covered" (share of the samples that were looked at), "again" (evaluation passes repeated in a later burst), "recall" (share of the training data that one burst evaluates, about), "natural" (training samples of whole numbers that equal another one, at most; 0 where that is not known), "datasets": [{"trained" (loaders took training batches from it too), "shared", "samples", "bursts"}] (each dataset that loaders evaluated)} | None, "alike": {"how": "init" | "copied", "name": str, "workers": int, "dataset": str} | None (random numbers that all workers of the loader draw alike: a constant seed, a copied generator), "runs": {"lengths": {length: count} (equal training passes in a row), "first": int (step), "reused": int (of those: the very same tensor), "workers": {"workers": int, "iterable": str, "dataset": str} | None}}.
@dataclass(frozen=True, kw_only=True)
class Level:
    """TODO."""

    mean: float
    std: float
    low: float
    high: float
    passes: Count
    wander: float


@dataclass(frozen=True, kw_only=True)
class AlikeWorkers:
    """TODO."""

    how: str
    name: str
    workers: Count
    dataset: str


class OddBatch(NamedTuple):
    """TODO."""

    step: int
    size: Count


@dataclass(frozen=True, kw_only=True)
class Columns:
    """TODO."""

    std_min: float
    std_max: float
    offset: float
    worst: int
    worst_mean: float
    worst_std: float
    count: Count | None = None
    constant: Count | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluatedDataset:
    """TODO."""

    trained: bool
    shared: Count
    samples: Count
    bursts: Count


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """TODO."""

    passes: Count
    mixed: Count
    pure: Count
    shared: Count
    samples: Count
    mixed_shared: Count
    mixed_samples: Count
    again: Count
    seen_before: float
    twice: float
    datasets: tuple[EvaluatedDataset, ...]
    covered: float | None = None
    recall: float | None = None
    natural: float | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderWorkers:
    """TODO."""

    workers: Count
    dataset: str
    iterable: str = ""


@dataclass(frozen=True, kw_only=True)
class EqualBatches:
    """TODO."""

    lengths: dict[ClassId, Count] = field(default_factory=dict)
    first: int | None = None
    reused: Count | None = None
    workers: LoaderWorkers | None = None


@dataclass(frozen=True, kw_only=True)
class BatchesFact(Known):
    """TODO."""

    KEY: ClassVar = "batches"
    IDENTITY: ClassVar = "model"

    grid: str
    train: Level | None
    skewed: float
    alike: AlikeWorkers | None
    model: str = ""
    first_eval: int | None = None
    odd: tuple[OddBatch, ...] = ()
    floating: bool = False
    shape: tuple[Count, ...] = ()
    grid_eval: str = ""
    columns: Columns | None = None
    eval: Level | None = None
    overlap: Overlap | None = None
    runs: EqualBatches | None = None
    passes: Count | None = None
    steps: Count | None = None
    evals: Count | None = None
    bursts: Count | None = None
    usual: Count | None = None
    sizes: Count | None = None
