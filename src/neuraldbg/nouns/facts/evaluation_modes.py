"""The EVALUATION_MODES fact: the evaluations of a model that ran in training mode."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class EvaluationModesFact(Known):
    """Passes of a trained model without gradients, or with gradients and no backward, counted by mode.

    The passes between two optimizer steps make one burst.
    """

    KEY: ClassVar = "evaluation_modes"

    model: str
    """Name of the model."""
    same: bool
    """True if each burst has one pass, always with one input that is not trained on."""
    grad: bool
    """True if gradients were left on."""
    first: int
    """Step before which the first burst in training mode ran."""
    dropout: tuple[str, ...]
    """Paths of the dropout layers that were active in such passes, at most eight."""
    norms: tuple[str, ...]
    """Paths of the batch norms whose running statistics such passes moved, at most eight."""
    train_bursts: Count
    """Bursts with passes in training mode."""
    eval_bursts: Count
    """Bursts with passes in eval mode."""
    passes: Count
    """Passes in training mode."""
    longest: Count
    """Most passes in training mode in one burst."""
    repeated: Count
    """Passes in training mode with the input of the pass before."""
    steps: Count
    """Optimizer steps that were seen with all passes before them."""
    bursts: Count = 0
    """All bursts."""
