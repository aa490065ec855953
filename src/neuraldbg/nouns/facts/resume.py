"""The RESUME fact: a checkpoint that was loaded, and whether its optimizer state was used."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ResumeFact(Known):
    """A checkpoint that was loaded with ``torch.load`` and holds the state of an optimizer."""

    KEY: ClassVar = "resume"

    lr: float | None
    """Learning rate in the optimizer's state, None if there is none."""
    id: Count = 0
    """Number of the checkpoint, in the order of loading."""
    where: str = ""
    """Key of the optimizer's state in the checkpoint, with a dot between nested ones; empty for the whole."""
    states: Count = 0
    """Parameters that have a state in it."""
    keys: tuple[str, ...] = ()
    """Names in the state of one parameter: ``exp_avg``, ``momentum_buffer`` and others."""
    numbers: dict[str, float] = field(default_factory=dict)
    """Numbers in the checkpoint by key: epoch, step, loss and others."""
    model_loaded: int | None = None
    """Step at which weights of it were loaded into a model, None if they never were."""
    optimizer_loaded: bool = False
    """True if any optimizer was given a state."""
    loaded_steps: bool = False
    """True if an optimizer that was given a state ever stepped."""
