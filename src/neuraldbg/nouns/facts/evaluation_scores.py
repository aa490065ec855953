"""TODO evaluation_scores."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The evaluations of the run, logged at its end: {"phases": [[step before which it was, mean loss, accuracy | None, batches], ...]}. Accuracy is known for classes given to ``cross_entropy`` or ``nll_loss``.
class EvaluationPhase(NamedTuple):
    """TODO."""

    step: int
    loss: float
    accuracy: float | None
    batches: Count


@dataclass(frozen=True, kw_only=True)
class EvaluationScoresFact(Known):
    """TODO."""

    KEY: ClassVar = "evaluation_scores"

    phases: tuple[EvaluationPhase, ...] = ()
