"""A fact about the program, certain and not statistical. It is recorded when it is first read and when it changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any


class FactKey(str, Enum):
    """The kinds of facts that capture reads. The value of each is a JSON object: see ``nouns/facts/<key>.py``."""

    ACCUMULATION = "accumulation"
    ALERT = "alert"
    ARCHITECTURE = "architecture"
    ATTENTION = "attention"
    BATCH = "batch"
    BATCHES = "batches"
    CHANGE = "change"
    CLIP = "clip"
    CONTRACTS = "contracts"
    COPIES = "copies"
    CUTS = "cuts"
    DATASET_WRITES = "dataset_writes"
    DEAD_INDICES = "dead_indices"
    DROPOUT = "dropout"
    DRY = "dry"
    EQUAL_WEIGHTS = "equal_weights"
    EVALUATION_MODES = "evaluation_modes"
    EVALUATION_SCORES = "evaluation_scores"
    EXPERIMENT = "experiment"
    FOOTPRINT = "footprint"
    FUNCTIONS = "functions"
    GRADIENT_COURSE = "gradient_course"
    GROWTH = "growth"
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
    RANKS = "ranks"
    REACH = "reach"
    REFUSED_IDS = "refused_ids"
    REPLICA = "replica"
    RESUME = "resume"
    SCALER = "scaler"
    SCHEDULE = "schedule"
    SYMMETRY = "symmetry"
    TARGETS = "targets"
    TERMS = "terms"
    TIES = "ties"
    TIMING = "timing"
    TOKENS = "tokens"
    UNSTEPPED = "unstepped"
    UNUSED = "unused"


IDENTITY: dict[str, tuple[str, ...]] = {
    "accumulation": ("stream",),
    "alert": ("number",),
    "architecture": ("model",),
    "batch": ("model",),
    "batches": ("model",),
    "change": ("what", "stream", "name"),
    "clip": ("stream", "kind"),
    "copies": ("model",),
    "cuts": ("model",),
    "evaluation_modes": ("model",),
    "experiment": ("id",),
    "functions": ("name",),
    "gradient_course": ("stream",),
    "loss": ("stream",),
    "loss_branches": ("pair",),
    "memory": ("stream",),
    "modes": ("model",),
    "optimizer": ("stream",),
    "optimizer_state": ("stream",),
    "order": ("stream",),
    "outputs": ("part",),
    "replica": ("stream",),
    "resume": ("id",),
    "schedule": ("id",),
    "targets": ("slot",),
    "unstepped": ("id",),
}
"""Fields of a kind's JSON object that together distinguish facts of the kind; a kind that is not here has only one."""


@dataclass(frozen=True)
class Fact:
    """One version of a fact about the program, as read at one step."""

    step: int
    """Step at which it was read."""
    key: str
    """Kind of the fact, one of FactKey: ``loss``, ``optimizer``, ``batch``, ..."""
    value: dict[str, Any]
    """JSON object, as in the run file and in exports."""

    @cached_property
    def known(self) -> Any:
        """The value as the dataclass of its key. Raises KeyError for a key of a later version."""
        from neuraldbg.nouns.facts import type_of  # noqa: PLC0415 (a program that is only watched needs none of it)
        from neuraldbg.nouns.facts.known import read  # noqa: PLC0415

        kind = type_of(self.key)
        if kind is None:
            raise KeyError(self.key)
        return read(kind, self.value)
