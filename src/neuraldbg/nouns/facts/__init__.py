"""The facts, typed: one file and one frozen dataclass for each FactKey, whose fields are what causes read.

``<key>.py`` holds the class ``<Key>Fact``: ``loss_branches.py`` holds ``LossBranchesFact``. A kind is imported when its
first fact is checked or read: no run has facts of every kind.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.known import Known

MEMBERS: tuple[str, ...] = (
    "accumulation",
    "alert",
    "architecture",
    "attention",
    "batch",
    "batches",
    "change",
    "clip",
    "contracts",
    "copies",
    "cuts",
    "dataset_writes",
    "dead_indices",
    "dropout",
    "dry",
    "equal_weights",
    "evaluation_modes",
    "evaluation_scores",
    "experiment",
    "footprint",
    "functions",
    "gradient_course",
    "growth",
    "hidden",
    "loss",
    "loss_branches",
    "memory",
    "modes",
    "norms",
    "operations",
    "optimizer",
    "optimizer_state",
    "order",
    "outputs",
    "params",
    "places",
    "precision",
    "ranks",
    "reach",
    "refused_ids",
    "replica",
    "resume",
    "scaler",
    "schedule",
    "symmetry",
    "targets",
    "terms",
    "ties",
    "timing",
    "tokens",
    "unstepped",
    "unused",
)
"""Modules of this package, sorted; each is named after its FactKey."""


@cache
def type_of(key: str) -> type[Known] | None:
    """Return the class of a kind of facts; None for a kind of a later version."""
    if key not in MEMBERS:
        return None
    module = importlib.import_module(f"{__name__}.{key}")
    found: type[Known] = getattr(module, f"{key.title().replace('_', '')}Fact")
    return found
