"""The experiments, one file each: what they ask of a copy of the model. One line here registers one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.capture.experiments.experiment import Experiment

MEMBERS = (
    "eval_random",
    "target_inside",
    "batch_mixing",
    "causality",
    "padding_mask",
    "input_ignored",
)
"""Modules of this package, in the order in which they are made; each defines ``EXPERIMENT``. The last one may
change the twin's weights."""


def experiments() -> tuple[Experiment, ...]:
    """Return every experiment, in order."""
    return tuple(importlib.import_module(f"{__name__}.{member}").EXPERIMENT for member in MEMBERS)
