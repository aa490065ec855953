"""The EVALUATION_SCORES fact: losses and accuracies of all evaluations of the run."""

from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


class EvaluationPhase(NamedTuple):
    """The scores of the evaluating passes between two optimizer steps."""

    step: int
    """Optimizer step before which the evaluation ran."""
    loss: float
    """Mean loss over its batches."""
    accuracy: float | None
    """Mean share of right predictions, None if no class ids were given to ``cross_entropy`` or ``nll_loss``."""
    batches: Count
    """Batches, one for each loss that was computed."""


@frozen
class EvaluationScoresFact(Known):
    """The evaluations of the run with their scores, logged at the end."""

    KEY: ClassVar = "evaluation_scores"

    phases: tuple[EvaluationPhase, ...] = ()
    """Evaluations, oldest first; of more than 256 the oldest quarter and the newest are kept."""
