"""Written by late_harm.py: on which tasks each kind is what it says, measured bare with seed 0."""

PAIRS: dict[str, tuple[str, ...]] = {
    "rate_multiplied": (
        "customers",
        "prices",
    ),
    "growing_schedule": (
        "customers",
        "prices",
    ),
    "restart_far_too_high": ("customers",),
    "rate_zero": ("prices",),
    "rate_almost_zero": ("prices",),
    "momentum_raised": (
        "customers",
        "prices",
    ),
    "decay_raised": (
        "customers",
        "prices",
    ),
    "epsilon_raised": ("prices",),
    "zero_grad_skipped": (
        "customers",
        "prices",
    ),
    "step_skipped": ("prices",),
    "clipped_to_nothing": ("prices",),
    "body_frozen": ("customers",),
    "first_layers_frozen": ("prices",),
    "features_detached": ("prices",),
    "model_replaced": ("prices",),
    "head_replaced": ("prices",),
    "checkpoint_loaded_each_step": ("prices",),
    "early_checkpoint_every_30": (
        "customers",
        "prices",
    ),
    "sign_flipped": (
        "customers",
        "prices",
    ),
    "loss_summed": ("customers",),
    "loss_without_mean": ("customers",),
    "loss_times_hundred": ("customers",),
    "entropy_with_log_of_zero": ("customers",),
    "softmax_before_loss": ("customers",),
    "target_squeezed": ("prices",),
    "shard_in_raw_units": (
        "customers",
        "prices",
    ),
    "inputs_all_zero": (
        "customers",
        "prices",
    ),
    "normalised_twice": (
        "customers",
        "prices",
    ),
    "absurd_batch": (
        "customers",
        "prices",
    ),
    "nan_in_one_batch": (
        "customers",
        "prices",
    ),
    "labels_shuffled": (
        "customers",
        "prices",
    ),
    "labels_all_one": (
        "customers",
        "prices",
    ),
    "labels_off_by_one": ("customers",),
    "targets_in_other_units": ("prices",),
    "sorted_by_target": (
        "customers",
        "prices",
    ),
    "one_class_in_the_shard": ("customers",),
    "axes_mixed": (
        "customers",
        "prices",
    ),
    "batch_of_one": (
        "customers",
        "prices",
    ),
    "dropout_raised": (
        "customers",
        "prices",
    ),
    "early_checkpoint_loaded": ("prices",),
    "weights_multiplied": (
        "customers",
        "prices",
    ),
    "noise_on_weights": (
        "customers",
        "prices",
    ),
    "nothing": (
        "customers",
        "prices",
    ),
    "decay_step": (
        "customers",
        "prices",
    ),
    "sane_restart": (
        "customers",
        "prices",
    ),
    "decay_to_zero": (
        "customers",
        "prices",
    ),
    "unfreezing": (
        "customers",
        "prices",
    ),
    "larger_batches": (
        "customers",
        "prices",
    ),
    "label_smoothing": ("customers",),
    "mild_augmentation": (
        "customers",
        "prices",
    ),
    "harder_data": (
        "customers",
        "prices",
    ),
    "dropout_doubled": (
        "customers",
        "prices",
    ),
    "decay_doubled": (
        "customers",
        "prices",
    ),
    "validation": (
        "customers",
        "prices",
    ),
    "pause_with_checkpoint": (
        "customers",
        "prices",
    ),
    "resumed_from_checkpoint": (
        "customers",
        "prices",
    ),
    "average_evaluated": (
        "customers",
        "prices",
    ),
    "accumulation": (
        "customers",
        "prices",
    ),
    "loss_weight": (
        "customers",
        "prices",
    ),
    "mild_outliers": (
        "customers",
        "prices",
    ),
    "rate_doubled": (
        "customers",
        "prices",
    ),
    "sane_clipping": (
        "customers",
        "prices",
    ),
    "seeded_again": (
        "customers",
        "prices",
    ),
    "new_shard": (
        "customers",
        "prices",
    ),
}

DROPPED: dict[str, tuple[str, ...]] = {
    "restart_far_too_high": ("prices",),
    "rate_zero": ("customers",),
    "rate_almost_zero": ("customers",),
    "step_skipped": ("customers",),
    "clipped_to_nothing": ("customers",),
    "body_frozen": ("prices",),
    "first_layers_frozen": ("customers",),
    "eval_mode": (
        "customers",
        "prices",
    ),
    "features_detached": ("customers",),
    "model_replaced": ("customers",),
    "head_replaced": ("customers",),
    "optimizer_of_the_head": (
        "customers",
        "prices",
    ),
    "optimizer_rebuilt_each_step": (
        "customers",
        "prices",
    ),
    "checkpoint_loaded_each_step": ("customers",),
    "accumulated_undivided": ("customers",),
    "loss_summed": ("prices",),
    "weights_cast_each_step": (
        "customers",
        "prices",
    ),
    "head_initialised_again": (
        "customers",
        "prices",
    ),
    "early_checkpoint_loaded": ("customers",),
}
