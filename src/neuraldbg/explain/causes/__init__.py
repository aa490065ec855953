"""The causes, one file each: a help page (its module docstring) and a judge that weighs the evidence.

One line in ``MEMBERS`` registers a cause. The folder of a cause is its category, the name of its file its id; ids are
public, since saved diagnoses and CI scripts hold them.

- ``architecture/``: the model
- ``data/``: inputs and targets
- ``distributed/``: the ranks of one job, compared
- ``loop/``: the wiring of the training program
- ``loss/``: a loss that is not what is meant
- ``optimisation/``: how the loss is optimised
- ``precision/``: the number format
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from neuraldbg.errors import UnknownCause

if TYPE_CHECKING:
    from neuraldbg.explain.cause import Cause

MEMBERS = (
    "architecture.attention_collapse",
    "architecture.batchnorm_momentum",
    "architecture.batchnorm_small_batch",
    "architecture.capacity_too_small",
    "architecture.dead_relu",
    "architecture.dropout_too_high",
    "architecture.exploding_depth",
    "architecture.frozen_norm_drift",
    "architecture.init_scale_wrong",
    "architecture.logit_drift",
    "architecture.members_alike",
    "architecture.missing_activation",
    "architecture.mode_collapse",
    "architecture.plasticity_loss",
    "architecture.rank_collapse",
    "architecture.saturating_activation",
    "architecture.symmetric_init",
    "architecture.vanishing_depth",
    "data.bad_batch",
    "data.batch_axis_mixup",
    "data.channels_interleaved",
    "data.class_imbalance",
    "data.dataset_overwritten",
    "data.degenerate_batch",
    "data.double_normalisation",
    "data.duplicate_worker_rng",
    "data.input_ignored",
    "data.label_noise",
    "data.mask_error",
    "data.nonfinite_input",
    "data.split_skew",
    "data.train_val_leak",
    "data.unnormalised_inputs",
    "data.unnormalised_targets",
    "data.unshuffled_data",
    "distributed.buffers_not_synchronised",
    "distributed.duplicate_shards",
    "distributed.hardware_corruption",
    "distributed.rank_data_skew",
    "distributed.rank_hangs",
    "distributed.replica_divergence",
    "distributed.replica_same_rng",
    "distributed.slow_rank",
    "loop.accumulation_unscaled",
    "loop.accumulation_wiped",
    "loop.clip_misplaced",
    "loop.clip_too_tight",
    "loop.detached_graph",
    "loop.ema_stale",
    "loop.eval_mode_left_on",
    "loop.function_misused",
    "loop.memory_leak",
    "loop.missing_zero_grad",
    "loop.optimizer_stale_params",
    "loop.optimizer_state_lost",
    "loop.optimizer_step_missing",
    "loop.param_frozen",
    "loop.param_not_in_optimizer",
    "loop.param_unused",
    "loop.refused_operation",
    "loop.schedule_error",
    "loop.tied_weights_broken",
    "loop.train_mode_in_eval",
    "loop.unregistered_params",
    "loop.update_lost",
    "loop.value_unused",
    "loop.weights_overwritten",
    "loop.wrong_custom_backward",
    "loop.zero_gradient_path",
    "loss.adversary_helped",
    "loss.double_sigmoid",
    "loss.double_softmax",
    "loss.labels_degenerate",
    "loss.loss_mask_error",
    "loss.loss_sign_flip",
    "loss.loss_task_mismatch",
    "loss.missing_log_softmax",
    "loss.output_activation_mismatch",
    "loss.target_broadcast",
    "loss.target_misaligned",
    "loss.target_out_of_range",
    "loss.term_without_gradient",
    "loss.unstable_op",
    "loss.wrong_reduction",
    "optimisation.adam_epsilon",
    "optimisation.adam_second_moment_stale",
    "optimisation.batch_too_small",
    "optimisation.decay_on_norms",
    "optimisation.gradient_conflict",
    "optimisation.lr_too_high",
    "optimisation.lr_too_low",
    "optimisation.momentum_too_high",
    "optimisation.warmup_missing",
    "optimisation.weight_decay_too_high",
    "precision.bf16_update_lost",
    "precision.fp16_overflow",
    "precision.fp16_underflow",
    "precision.loss_scale_misuse",
)
"""Modules below this package, sorted; each defines ``CAUSE``."""


def _load(member: str) -> Cause:
    found: Cause = importlib.import_module(f"{__name__}.{member}").CAUSE
    return found


CAUSES: tuple[Cause, ...] = tuple(_load(member) for member in MEMBERS)
"""Every cause, by category and id."""


def cause(name: str) -> Cause:
    """Return the cause with an id. UnknownCause, which lists the nearest ids, is raised where there is none."""
    known = {member.id: member for member in CAUSES}
    if name not in known:
        plain = name.strip().lower().replace("-", "_").replace(" ", "_")
        if plain in known:
            return known[plain]
        near = difflib.get_close_matches(plain, known, n=3, cutoff=0.4)
        near += [id_ for id_ in known if plain and plain in id_ and id_ not in near]
        raise UnknownCause(name, near[:5])
    return known[name]
