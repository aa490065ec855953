"""The EXPERIMENT fact: the result of one experiment on a copy of a model."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ExperimentFact(Known):
    """An experiment that was tried on a copy of a model; one that was judged is of the class for its name."""

    KEY: ClassVar = "experiment"

    name: str
    """Name of the experiment, a key of ``VARIANTS``."""
    judged: bool
    """True if the experiment came to a result."""
    id: str = ""
    """Identity of the fact: "model:name", for some experiments the name alone or with a step."""
    model: str = ""
    """Name of the model, empty if the experiment is about a batch or a loss."""
    reason: str = ""
    """Reason why the experiment was not judged, else empty."""

    @classmethod
    def variant(cls, value: Mapping[str, Any]) -> type[Known]:
        """Return the class of a judged experiment's own fields, by its name."""
        return VARIANTS.get(str(value.get("name")), cls) if value.get("judged") is True else cls


@frozen
class RandomDraw:
    """An operation of the forward pass that draws random numbers in eval mode."""

    op: str
    """Operation."""
    where: SourceLine | None = None
    """Line of the user's code, None if it is not known."""
    call: str = ""
    """Source of the whole statement, empty if the line is not known."""


@frozen
class EvalRandom(ExperimentFact):
    """The result of running a model in eval mode twice on the same input."""

    random: bool = False
    """True if the outputs differ."""
    draws: tuple[RandomDraw, ...] = ()
    """Operations that draw random numbers, at most eight."""


@frozen
class MixingLayer:
    """A recurrent or attention layer that takes the batch for time."""

    layer: str
    """Path of the layer."""
    type: str
    """Class of the layer."""
    shape: tuple[Count, ...]
    """Shape of its input."""


@frozen
class AxisOperation:
    """An operation, such as a softmax, that runs over the batch axis."""

    op: str
    """Operation."""
    where: SourceLine | None = None
    """Line of the user's code, None if it is not known."""
    layer: str | None = None
    """Path of the module around it; empty or None for the model itself."""


@frozen
class MeetingPlace:
    """The first layer at which the samples of a batch meet."""

    layer: str
    """Path of the layer, empty if it is not known."""
    type: str
    """Class of the layer, empty if it is not known."""
    at: str
    """Side on which they are first mixed: "input" or "output"."""
    op: str = ""
    """Operation whose result first mixes them, empty if it is not known."""
    where: SourceLine | None = None
    """Line of the user's code with that operation, None if it is not known."""
    swapped: bool = False
    """True if the samples stay apart, and the operation leaves them along another axis than the first."""


@frozen
class BatchMixing(ExperimentFact):
    """The effect of one sample of a batch on the outputs for the others, in eval mode."""

    rows: Count
    """Samples in the batch."""
    mixed: bool
    """True if an exchanged sample changed the outputs for others."""
    pattern: Literal["none", "later", "all", "some"]
    """Other samples whose outputs changed; "later" means only those after the exchanged one."""
    strength: float
    """Largest change for another sample, relative to the change for the exchanged one."""
    why_batch: str = ""
    """Reason why axis 0 is certain to be the batch, empty if it is not certain."""
    dims: Count = 0
    """Axes of the input inside the model, where ids become vectors; 0 if the number is not known."""
    layers: tuple[MixingLayer, ...] = ()
    """Layers that take the batch for time."""
    steady: bool = False
    """True if the batches so far had one size and different contents."""
    axis_ops: tuple[AxisOperation, ...] = ()
    """Operations over the batch axis."""
    place: MeetingPlace | None = None
    """Place where samples first meet, or first depend on their places; None if it was not found."""
    placed: bool = False
    """True if the output for a sample depends on its place in the batch, and not on other samples."""


@frozen
class Causality(ExperimentFact):
    """The effect of later tokens on the outputs before them, in a model that predicts the next token."""

    leaks: bool
    """True if other tokens after a position changed outputs up to it."""
    length: Count
    """Positions in a sequence."""
    at: Count
    """Position after which the tokens were exchanged."""
    share: float
    """Share of the counted outputs up to that position that changed."""
    layer: str | None
    """Path of the first layer whose output changed, None if nothing leaks or it is the model itself."""
    type: str
    """Class of that layer, empty if nothing leaks."""
    across: bool = False
    """True if the tokens of other samples alone change those outputs: samples are mixed."""
    place: MeetingPlace | None = None
    """Place where the samples mix, None if it was not found or they do not."""


@frozen
class TargetInside(ExperimentFact):
    """The search for the target among the columns of a table that goes into the model."""

    JOINED: ClassVar = (("column", "columns", "rows"),)

    inside: bool
    """True if one column equals the target."""
    column: Count | None = None
    """That column, counted from 0; None if the target is not inside."""
    columns: Count | None = None
    """Columns of the table, None if the target is not inside."""
    rows: Count | None = None
    """Samples that were compared, None if the target is not inside."""
    leaf: str = ""
    """Name of the input that holds the table, empty if the target is not inside."""


class IgnoredOutput(NamedTuple):
    """An output of the model that does not depend on the input."""

    name: str
    """Name of the output, empty if it is the only one."""
    shape: tuple[Count, ...]
    """Shape of the output."""


@frozen
class InputIgnored(ExperimentFact):
    """The effect of the input on the outputs of a model with fresh weights."""

    ignored: bool
    """True if an output is the same to the last bit for other inputs."""
    leaves: tuple[str, ...]
    """Names of single inputs without any effect, beside others that have one."""
    layer: str | None = None
    """Path of the layer where the input gets lost, None if it is not known."""
    zeros: bool = False
    """True if all inputs are zero."""
    faded: bool = False
    """True if only double precision shows an effect of the input."""
    output: IgnoredOutput | None = None
    """Output that alone ignores the input, None if it is not one of several."""


@frozen
class PaddingMask(ExperimentFact):
    """The comparison of the padding masks that attention is given with the padding of the ids."""

    inverted: bool
    """True if a mask is the wrong way round."""
    layer: str | None
    """Path of the attention layer that is given the wrong mask, None if there is none."""
    type: str
    """Class of that layer, empty if there is none."""
    masks: Count = 0
    """Masks that were compared with the padding; 0 where words and padding were exchanged instead."""


class Attempt(NamedTuple):
    """The training of a copy of a model on one batch."""

    optimizer: str
    """Rule of the updates: "Adam" or "SGD"."""
    lr: float
    """Learning rate."""
    steps: Count
    """Updates."""
    first: float
    """Loss before the first update."""
    last: float
    """Loss after the last one."""
    learnt: bool
    """True if the loss fell to a small part."""


@frozen
class OneBatch(ExperimentFact):
    """The training of a copy of a model on one batch, with a plain loop and the program's loss."""

    attempts: tuple[Attempt, ...] = ()
    """With the rule and the learning rate of the program, and, if nothing was learnt, with Adam at a usual one."""
    still: tuple[str, ...] = ()
    """Layers whose weights the last attempt did not change at all, at most eight."""


@frozen
class NonfiniteBirth(ExperimentFact):
    """The operation or the data in which the first non-finite value of the run arose."""

    phase: str
    """Part of the step: "input", "target", "forward", "loss" or "backward"."""
    op: str
    """Operation, empty for data."""
    where: SourceLine | None
    """Line of the user's code, None if it is not known."""
    layer: str | None
    """Path of the layer around the operation, empty or None if it is not known."""
    sample: Count | None
    """First sample of the batch that is not finite, None if axis 0 is not the batch."""
    count: Count
    """Samples of the batch that are not finite, 0 if axis 0 is not the batch."""
    step: int | None = None
    """Optimizer step, None if it is not known."""
    dtype: str = ""
    """Data type of the result of a "forward" operation, else empty."""
    share: float | None = None
    """Share of the values of the "input" that are not finite, None in other phases."""


@frozen
class OddSample(ExperimentFact):
    """The batch at which the loss jumped, with the sample that stands out in it."""

    value: float
    """Largest absolute value of the sample, or of the batch."""
    usual: float
    """Median over the samples of the batch of their largest absolute value."""
    step: int | None = None
    """Optimizer step of the batch, None if it is not known."""
    sample: Count | None = None
    """Number of the sample in the batch, None if none stands out."""
    leaf: str = ""
    """Name of the input that holds it."""
    low: float | None = None
    """Smallest finite value of that input in the batch, None if it was not read."""
    high: float | None = None
    """Largest finite value, likewise."""
    rms: float | None = None
    """Root mean square of its finite values, likewise."""


VARIANTS: dict[str, type[ExperimentFact]] = {
    "eval_random": EvalRandom,
    "batch_mixing": BatchMixing,
    "causality": Causality,
    "target_inside": TargetInside,
    "input_ignored": InputIgnored,
    "padding_mask": PaddingMask,
    "one_batch": OneBatch,
    "nonfinite_birth": NonfiniteBirth,
    "odd_sample": OddSample,
}
"""Class of a judged experiment by its name."""
