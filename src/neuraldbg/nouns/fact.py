"""A fact about the program, certain and not statistical. It is recorded when it is first read and when it changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any


class FactKey(str, Enum):
    """The kinds of facts that capture reads. The value of each is a JSON object: see ``nouns/facts/<key>.py``."""

    ACCUMULATION = "accumulation"
    ATTENTION = "attention"
    BATCH = "batch"
    BATCHES = "batches"
    CLIP = "clip"
    COPIES = "copies"
    CUTS = "cuts"
    DROPOUT = "dropout"
    DRY = "dry"
    EVALUATION_MODES = "evaluation_modes"
    EVALUATION_SCORES = "evaluation_scores"
    EXPERIMENT = "experiment"
    FUNCTIONS = "functions"
    GRADIENT_COURSE = "gradient_course"
    HIDDEN = "hidden"
    LOSS = "loss"
    LOSS_BRANCHES = "loss_branches"
    MEMORY = "memory"
    MODES = "modes"
    NORMS = "norms"
    OPERATIONS = "operations"
    OPTIMIZER = "optimizer"
    OPTIMIZER_STATE = "optimizer_state"
    ORDER = "order"
    OUTPUTS = "outputs"
    PARAMS = "params"
    PLACES = "places"
    PRECISION = "precision"
    RESUME = "resume"
    SCALER = "scaler"
    SCHEDULE = "schedule"
    SYMMETRY = "symmetry"
    TARGETS = "targets"
    TIES = "ties"
    TOKENS = "tokens"
    UNSTEPPED = "unstepped"


@dataclass(frozen=True)
class Fact:
    """One version of a fact about the program, as read at one step."""

    step: int
    key: str
    """One of FactKey, as its string."""
    value: dict[str, Any]
    """JSON object, as in the run file and in exports."""

    @cached_property
    def known(self) -> Any:
        """The value as the dataclass of its key. Raises KeyError for a key of a later version."""
        from neuraldbg.nouns.facts import BY_KEY  # noqa: PLC0415 (a program that is only watched needs none of it)
        from neuraldbg.nouns.facts.known import read  # noqa: PLC0415

        return read(BY_KEY[self.key], self.value)
