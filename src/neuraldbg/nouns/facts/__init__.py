"""The facts, typed: one file and one frozen dataclass for each FactKey, whose fields are what causes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.accumulation import AccumulationFact
from neuraldbg.nouns.facts.attention import AttentionFact
from neuraldbg.nouns.facts.batch import BatchFact
from neuraldbg.nouns.facts.batches import BatchesFact
from neuraldbg.nouns.facts.clip import ClipFact
from neuraldbg.nouns.facts.copies import CopiesFact
from neuraldbg.nouns.facts.cuts import CutsFact
from neuraldbg.nouns.facts.dropout import DropoutFact
from neuraldbg.nouns.facts.dry import DryFact
from neuraldbg.nouns.facts.evaluation_modes import EvaluationModesFact
from neuraldbg.nouns.facts.evaluation_scores import EvaluationScoresFact
from neuraldbg.nouns.facts.experiment import ExperimentFact
from neuraldbg.nouns.facts.functions import FunctionsFact
from neuraldbg.nouns.facts.gradient_course import GradientCourseFact
from neuraldbg.nouns.facts.hidden import HiddenFact
from neuraldbg.nouns.facts.loss import LossFact
from neuraldbg.nouns.facts.loss_branches import LossBranchesFact
from neuraldbg.nouns.facts.memory import MemoryFact
from neuraldbg.nouns.facts.modes import ModesFact
from neuraldbg.nouns.facts.norms import NormsFact
from neuraldbg.nouns.facts.operations import OperationsFact
from neuraldbg.nouns.facts.optimizer import OptimizerFact
from neuraldbg.nouns.facts.optimizer_state import OptimizerStateFact
from neuraldbg.nouns.facts.order import OrderFact
from neuraldbg.nouns.facts.outputs import OutputsFact
from neuraldbg.nouns.facts.params import ParamsFact
from neuraldbg.nouns.facts.places import PlacesFact
from neuraldbg.nouns.facts.precision import PrecisionFact
from neuraldbg.nouns.facts.resume import ResumeFact
from neuraldbg.nouns.facts.scaler import ScalerFact
from neuraldbg.nouns.facts.schedule import ScheduleFact
from neuraldbg.nouns.facts.symmetry import SymmetryFact
from neuraldbg.nouns.facts.targets import TargetsFact
from neuraldbg.nouns.facts.ties import TiesFact
from neuraldbg.nouns.facts.tokens import TokensFact
from neuraldbg.nouns.facts.unstepped import UnsteppedFact

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.known import Known

FACTS: tuple[type[Known], ...] = (
    AccumulationFact,
    AttentionFact,
    BatchFact,
    BatchesFact,
    ClipFact,
    CopiesFact,
    CutsFact,
    DropoutFact,
    DryFact,
    EvaluationModesFact,
    EvaluationScoresFact,
    ExperimentFact,
    FunctionsFact,
    GradientCourseFact,
    HiddenFact,
    LossFact,
    LossBranchesFact,
    MemoryFact,
    ModesFact,
    NormsFact,
    OperationsFact,
    OptimizerFact,
    OptimizerStateFact,
    OrderFact,
    OutputsFact,
    ParamsFact,
    PlacesFact,
    PrecisionFact,
    ResumeFact,
    ScalerFact,
    ScheduleFact,
    SymmetryFact,
    TargetsFact,
    TiesFact,
    TokensFact,
    UnsteppedFact,
)
"""All of them."""
BY_KEY: dict[str, type[Known]] = {one.KEY: one for one in FACTS}
