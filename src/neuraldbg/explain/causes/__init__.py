"""The causes, one file each: a page to read and a judge that weighs the evidence. One line here registers one."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from neuraldbg.errors import UnknownCause

if TYPE_CHECKING:
    from neuraldbg.explain.cause import Cause

MEMBERS = (
    "architecture.dead_relu",
    "architecture.exploding_depth",
    "architecture.init_scale_wrong",
    "architecture.saturating_activation",
    "architecture.vanishing_depth",
    "data.bad_batch",
    "data.nonfinite_input",
    "data.unnormalised_inputs",
    "data.unnormalised_targets",
    "loop.eval_mode_left_on",
    "loop.missing_zero_grad",
    "loop.optimizer_stale_params",
    "loop.param_frozen",
    "loop.param_not_in_optimizer",
    "loop.param_unused",
    "loss.double_softmax",
    "loss.target_broadcast",
    "loss.unstable_op",
    "loss.wrong_reduction",
    "optimisation.lr_too_high",
    "optimisation.lr_too_low",
    "precision.fp16_overflow",
)
"""Modules below this package, sorted; each defines ``CAUSE``."""


def _load(member: str) -> Cause:
    found: Cause = importlib.import_module(f"{__name__}.{member}").CAUSE
    return found


CAUSES: tuple[Cause, ...] = tuple(_load(member) for member in MEMBERS)
"""Every cause, by category and id."""


def cause(name: str) -> Cause:
    """Return the cause with that id; UnknownCause lists the nearest ids."""
    known = {member.id: member for member in CAUSES}
    if name not in known:
        plain = name.strip().lower().replace("-", "_").replace(" ", "_")
        if plain in known:
            return known[plain]
        near = difflib.get_close_matches(plain, known, n=3, cutoff=0.4)
        near += [id_ for id_ in known if plain and plain in id_ and id_ not in near]
        raise UnknownCause(name, near[:5])
    return known[name]
