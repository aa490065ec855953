"""TODO loss."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from neuraldbg.nouns.facts.kinds import ClassId, Count, Wide
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The loss graph of one backward, keyed per stream: {"stream": int, "ops": [str, ...] (from the loss back to the first layer outputs), "terms": [TERM, ...]} with TERM = {"kind": "cross_entropy" | "nll" | "mse" | "l1" | "smooth_l1" | "huber" | "bce" | "bce_with_logits" | "kl_div" | "squared_error" | "unknown", "reduction": "mean" | "sum" | "mixed" (over different axes) | "none", "input_shape": [int], "target_shape": [int], "operand_shapes": [[int], [int]] (as the user wrote them, before any broadcasting), "broadcast": bool, "fed_by": [str] (ops and activation layers between the model's last layer and the loss: "softmax", "sigmoid"), "layer": str | None (the last layer before it), "target": STATS, "input": STATS, "target_dtype": str, "classes": int, "target_histogram": {class: count}, "normalised": bool (a softmax stands directly below), "chain": [op] (all operations down to the last weights, nearest to the loss first), "direct": bool (no operation there), "sign": 1 | -1 | 0 (whether the root grows with the term; 0 unknown), "mass": {"low", "high"} (sum of exp(input) over the classes) with {"batch_low", "batch_high"} over the batch, {"top", "bottom"} of the input and {"plain_low", "plain_high"} (row sums), "ignore": int, "weighted": bool, "weightless": [id], "outside": float (share of targets that the head cannot give), "softmax_width": int, "rows_sum": [low, high], "soft": bool, "picked": bool, "soft_target": {"sum_low", "sum_high", "many", "binary"}}, and "gaussian_kl": 1 | -1 (the divergence of a variational autoencoder is minimised or maximised; absent where there is none) with STATS = {"min", "max", "mean", "std", "nonfinite", "count"}.
@dataclass(frozen=True, kw_only=True)
class TensorStatistics:
    """TODO."""

    count: Count
    nonfinite: Count
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProbabilityMass:
    """TODO."""

    low: float
    high: float
    top: float
    bottom: float | None = None
    plain_low: float | None = None
    plain_high: float | None = None
    batch_low: float | None = None
    batch_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class SoftTarget:
    """TODO."""

    sum_low: float
    sum_high: float
    many: float
    binary: bool


@dataclass(frozen=True, kw_only=True)
class LossTerm:
    """TODO."""

    kind: str
    reduction: str = ""
    input_shape: tuple[Count, ...] = ()
    target_shape: tuple[Count, ...] = ()
    operand_shapes: tuple[tuple[Count, ...], ...] = ()
    broadcast: bool = False
    fed_by: tuple[str, ...] = ()
    layer: str | None = None
    target: TensorStatistics | None = None
    input: TensorStatistics | None = None
    residual: TensorStatistics | None = None
    target_dtype: str = ""
    classes: Count | None = None
    target_histogram: dict[ClassId, Count] = field(default_factory=dict)
    normalised: bool = False
    chain: tuple[str, ...] = ()
    direct: bool = False
    sign: Literal[1, -1, 0] | None = None
    mass: ProbabilityMass | None = None
    ignore: Wide | None = None
    weighted: bool = False
    weightless: tuple[int, ...] = ()
    outside: float | None = None
    softmax_width: Count | None = None
    softmax_axis_last: bool = False
    rows_sum: tuple[float, ...] = ()
    soft: bool = False
    picked: bool = False
    soft_target: SoftTarget | None = None


@dataclass(frozen=True, kw_only=True)
class LossFact(Known):
    """TODO."""

    KEY: ClassVar = "loss"
    IDENTITY: ClassVar = "stream"

    stream: Count | None = None
    ops: tuple[str, ...] = ()
    terms: tuple[LossTerm, ...] = ()
    gaussian_kl: Literal[1, -1] | None = None
