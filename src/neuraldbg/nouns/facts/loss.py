"""The LOSS fact: the loss and its terms, as read from the graph of one backward pass."""

from dataclasses import field
from typing import ClassVar, Literal

from neuraldbg.nouns.facts.kinds import ClassId, Count, Wide
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class TensorStatistics:
    """Statistics of a tensor's finite elements, of a sample of them where it is large."""

    count: Count
    """Elements of the whole tensor."""
    nonfinite: Count
    """Elements of the sample that are NaN or infinite."""
    min: float | None = None
    """Smallest element, None if no element is finite or the tensor is complex."""
    max: float | None = None
    """Largest element, None if no element is finite or the tensor is complex."""
    mean: float | None = None
    """Mean, None if no element is finite or the tensor is complex."""
    std: float | None = None
    """Standard deviation, None if no element is finite or the tensor is complex."""


@frozen
class ProbabilityMass:
    """Sums over the scores that a loss was given, which tell log-probabilities and probabilities from raw scores."""

    low: float
    """Smallest sum of exp(score) over the classes of a row; 1 for log-probabilities."""
    high: float
    """Largest sum of exp(score) over the classes of a row."""
    top: float
    """Largest score."""
    bottom: float | None = None
    """Smallest score, None if it was not read."""
    plain_low: float | None = None
    """Smallest sum of the scores themselves over the classes of a row, None if it was not read."""
    plain_high: float | None = None
    """Largest sum of the scores themselves over the classes of a row, None if it was not read."""
    batch_low: float | None = None
    """Smallest sum of exp(score) of a class over the batch, None if the scores are not 2-D, a single row or too
    many rows."""
    batch_high: float | None = None
    """Largest sum of exp(score) of a class over the batch, None as ``batch_low``."""


@frozen
class SoftTarget:
    """Targets of a cross entropy that are given as probabilities, one row for each sample."""

    sum_low: float
    """Smallest sum of a row."""
    sum_high: float
    """Largest sum of a row."""
    many: float
    """Share of the rows whose sum is above 1.5."""
    binary: bool
    """True if the rows hold nothing but 0 and 1."""


@frozen
class LossTerm:
    """One term of a loss: a loss function of torch, or one that is written out and was recognised."""

    kind: str
    """Form of the term: ``cross_entropy``, ``nll``, ``mse``, ``l1``, ``smooth_l1``, ``huber``, ``bce``,
    ``bce_with_logits``, ``kl_div``, ``soft_margin``, ``multi_margin``, ``squared_error`` (written out) or
    ``unknown``."""
    reduction: str = ""
    """Reduction over the elements: ``mean``, ``sum``, ``mixed`` (of both, over different axes) or ``none``."""
    input_shape: tuple[Count, ...] = ()
    """Shape of the prediction."""
    target_shape: tuple[Count, ...] = ()
    """Shape of the target, empty if it was not saved."""
    operand_shapes: tuple[tuple[Count, ...], ...] = ()
    """Shapes of prediction and target as the user wrote them, before any broadcasting; empty if they were not read."""
    broadcast: bool = False
    """True if both operands grew to the shape of the result."""
    fed_by: tuple[str, ...] = ()
    """Operations and activations between the model's last layer and the loss, nearest to the loss first."""
    layer: str | None = None
    """Path of the last layer before the loss, None if it is not known."""
    target: TensorStatistics | None = None
    """Statistics of the target, None if it was not saved."""
    input: TensorStatistics | None = None
    """Statistics of the prediction, None if it was not saved or is behind a log-softmax."""
    residual: TensorStatistics | None = None
    """Statistics of prediction minus target (or the reverse), None if the term is not written out."""
    target_dtype: str = ""
    """Dtype of the target without ``torch.``, empty if it was not saved."""
    classes: Count = 0
    """Size of the class axis, or of the last axis of other losses; 0 if it is not known."""
    target_histogram: dict[ClassId, Count] = field(default_factory=dict)
    """Number of targets of each class id."""
    normalised: bool = False
    """True if a softmax stands directly below."""
    chain: tuple[str, ...] = ()
    """All operations from the loss down to the last weights, nearest to the loss first, changes of shape left out."""
    direct: bool = False
    """True if the last weights stand directly below, without any operation."""
    sign: Literal[1, -1, 0] | None = None
    """1 if the loss grows with the term, -1 if it falls, 0 if that cannot be told, None if it was not read."""
    weight: float | None = None
    """Derivative of the loss by one element of the term before its reduction; None if it is not constant, or not
    read."""
    mass: ProbabilityMass | None = None
    """Sums over the scores of an NLL or KL loss, None if they were not saved."""
    ignore: Wide | None = None
    """Class id that a cross entropy ignores, None for other losses."""
    weighted: bool = False
    """True if classes or elements have weights."""
    class_weights: tuple[float, ...] = ()
    """Weights of the classes in the order of their ids; empty if there are none, or more than 64."""
    weightless: tuple[int, ...] = ()
    """Class ids whose weight is 0, at most eight."""
    outside: float | None = None
    """Share of the targets that the activation at the head cannot give, None if the head has no bound or the targets
    were not read."""
    softmax_width: Count = 0
    """Size of the axis of the softmax directly below, 0 if there is none."""
    softmax_axis_last: bool | None = None
    """True if that softmax runs over axis 1 or the last one, None if there is none."""
    rows_sum: tuple[float, ...] = ()
    """Smallest and largest sum over the axis of that softmax, empty if there is none."""
    scattered: tuple[Count, ...] = ()
    """Shape that was cut into ``input_shape`` by a view or reshape so that the scores of one prediction are of several
    positions of the head; empty if they are of one."""
    soft: bool = False
    """True if the term was recognised by its log-softmax alone: probabilities as targets, or a loss written by hand."""
    picked: bool = False
    """True if such a term picks the log-probability of the right class by an index."""
    soft_target: SoftTarget | None = None
    """Targets of such a term that are given as probabilities, None if there are none."""


@frozen
class LossFact(Known):
    """The graph of the loss of one optimizer's steps, from its root down to the first layer outputs."""

    KEY: ClassVar = "loss"

    stream: Count = 0
    """Number of the optimizer that steps on this loss."""
    ops: tuple[str, ...] = ()
    """Operations from the loss back to the first layer outputs."""
    terms: tuple[LossTerm, ...] = ()
    """Terms that were recognised, at most eight."""
    gaussian_kl: Literal[1, -1] | None = None
    """1 if the divergence of a variational autoencoder is minimised, -1 if it is maximised, None if there is none."""
    policy: Literal[1, -1] | None = None
    """-1 if the loss of a policy falls with the log-probability of actions with a large weight, 1 if it grows with it,
    None if there is none."""
    kl_weight: float | None = None
    """Derivative of the loss by that divergence of one unit of one sample; None if it is not constant, or not read."""
