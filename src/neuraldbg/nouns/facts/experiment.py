"""TODO experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from neuraldbg.nouns.facts.kinds import CodeLine, Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: What was tried on a copy of a model: {"id": "model:name", "name": str, "model": str, "judged": bool, "reason": str (where not judged)} and, by name: "eval_random": {"random": bool (eval mode gives another output for the same input), "draws": [{"op": str, "where": WHERE, "call": str (the statement)}]}; "batch_mixing": {"rows": int, "mixed": bool, "pattern": "none" | "later" | "all" | "some", "strength": float (effect on other rows relative to the effect on the own row), "why_batch": str, "dims": int, "layers": [{"layer", "type", "shape"}] (recurrent or attention layers that take the batch for time), "axis_ops": [{"op": str, "where": WHERE}] (softmax over the batch), "place": {"layer", "type", "at": "input" | "output"} | None (where they first meet), "steady": bool (batches of one size, with other contents)}; "causality": {"leaks": bool, "length": int, "at": int, "layer": str | None, "type": str, "share": float}; "target_inside": {"inside": bool (a column of the input table is the target), "leaf": str, "column": int, "columns": int, "rows": int}; "input_ignored": {"ignored": bool, "layer": str | None (where it gets lost), "leaves": [str] (single inputs without any effect), "zeros": bool (all inputs are zero), "output": [name, shape] (the one output that is ignored)}; "padding_mask": {"inverted": bool, "layer": str | None, "type": str, "masks": int}; "nonfinite_birth": {"phase": "input" | "target" | "forward" | "backward", "op": str, "where": WHERE, "layer": str, "sample": int | None, "count": int (bad samples), "step": int}. WHERE = [file, line, source line] | None.
@dataclass(frozen=True, kw_only=True)
class ExperimentFact(Known):
    """TODO."""

    KEY: ClassVar = "experiment"
    IDENTITY: ClassVar = "id"

    name: str
    judged: bool
    id: str = ""
    model: str = ""
    reason: str = ""

    @classmethod
    def variant(cls, value: Mapping[str, Any]) -> type[Known]:
        """Return the class of a judged experiment's own fields, by its name."""
        return VARIANTS.get(str(value.get("name")), cls) if value.get("judged") is True else cls


@dataclass(frozen=True, kw_only=True)
class RandomDraw:
    """TODO."""

    op: str
    where: CodeLine | None = None
    call: str = ""


@dataclass(frozen=True, kw_only=True)
class EvalRandom(ExperimentFact):
    """TODO."""

    random: bool = False
    draws: tuple[RandomDraw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MixingLayer:
    """TODO."""

    layer: str
    type: str
    shape: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True)
class AxisOperation:
    """TODO."""

    op: str
    where: CodeLine | None = None
    layer: str | None = None


@dataclass(frozen=True, kw_only=True)
class MeetingPlace:
    """TODO."""

    layer: str
    type: str
    at: str


@dataclass(frozen=True, kw_only=True)
class BatchMixing(ExperimentFact):
    """TODO."""

    rows: Count
    mixed: bool
    pattern: Literal["none", "later", "all", "some"]
    strength: float
    why_batch: str = ""
    dims: Count | None = None
    layers: tuple[MixingLayer, ...] = ()
    steady: bool = False
    axis_ops: tuple[AxisOperation, ...] = ()
    place: MeetingPlace | None = None


@dataclass(frozen=True, kw_only=True)
class Causality(ExperimentFact):
    """TODO."""

    leaks: bool
    length: Count
    at: Count
    share: float
    layer: str | None
    type: str


@dataclass(frozen=True, kw_only=True)
class TargetInside(ExperimentFact):
    """TODO."""

    inside: bool
    column: Count | None = None
    columns: Count | None = None
    rows: Count | None = None
    leaf: str = ""


class IgnoredOutput(NamedTuple):
    """TODO."""

    name: str
    shape: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True)
class InputIgnored(ExperimentFact):
    """TODO."""

    ignored: bool
    leaves: tuple[str, ...]
    layer: str | None = None
    zeros: bool = False
    faded: bool = False
    output: IgnoredOutput | None = None


@dataclass(frozen=True, kw_only=True)
class PaddingMask(ExperimentFact):
    """TODO."""

    inverted: bool
    layer: str | None
    type: str
    masks: Count | None = None


@dataclass(frozen=True, kw_only=True)
class NonfiniteBirth(ExperimentFact):
    """TODO."""

    phase: str
    op: str
    where: CodeLine | None
    layer: str | None
    sample: Count | None
    count: Count
    step: int | None = None
    dtype: str = ""
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class OddSample(ExperimentFact):
    """TODO."""

    value: float
    usual: float
    step: int | None = None
    sample: Count | None = None
    leaf: str = ""


VARIANTS: dict[str, type[ExperimentFact]] = {
    "eval_random": EvalRandom,
    "batch_mixing": BatchMixing,
    "causality": Causality,
    "target_inside": TargetInside,
    "input_ignored": InputIgnored,
    "padding_mask": PaddingMask,
    "nonfinite_birth": NonfiniteBirth,
    "odd_sample": OddSample,
}
"""By the experiment's name."""
