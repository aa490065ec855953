"""The shape of every kind of fact, as nouns/fact.py tells it in words: a fact's value in, the same value out.

Causes read facts without asking again, so nothing else may get to them. A field of another type, or out of its range,
is a ValueError that names it. A fact that lacks a field on which causes rely is of another version: ``Lacking``. What a
later version adds, kinds of facts and fields of known ones, is let through and read by nobody.

In a run file a number that is not finite is a text. It is made a number again only where a number belongs: a layer may
be called "NaN".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.nouns import FactKey
from neuraldbg.record import validation
from neuraldbg.record.validation import (
    count,
    each,
    flag,
    integer,
    line,
    mapping,
    named,
    named_by,
    numbered,
    numeric,
    of,
    one_of,
    pair,
    perhaps,
    real,
    revived,
    row,
    text,
    wide,
    word,
)

if TYPE_CHECKING:
    from neuraldbg.record.validation import Check, Name

Lacking = validation.Lacking

texts = each(text)
"""An array of texts, as a list: that is what causes compare it with."""
_shape = each(count)
_layer = perhaps(text)
_place = perhaps(line)
_first = perhaps(integer)
_classes = named_by(numbered, count)
"""Counts by the id of a class, which JSON makes a text."""

_statistics = of({"count": count, "nonfinite": count}, {"min": real, "max": real, "mean": real, "std": real})
_mass = of(
    {"low": real, "high": real, "top": real},
    dict.fromkeys(("bottom", "plain_low", "plain_high", "batch_low", "batch_high"), real),
)
_term = of(
    {"kind": text},
    {
        "reduction": text, "input_shape": _shape, "target_shape": _shape, "operand_shapes": each(_shape),
        "broadcast": flag, "fed_by": texts, "layer": _layer, "target": _statistics, "input": _statistics,
        "residual": _statistics, "target_dtype": text, "classes": count, "target_histogram": _classes,
        "normalised": flag, "chain": texts, "direct": flag, "sign": one_of(1, -1, 0), "mass": _mass,
        "ignore": wide, "weighted": flag, "weightless": each(integer), "outside": real, "softmax_width": count,
        "softmax_axis_last": flag, "rows_sum": each(real), "soft": flag, "picked": flag,
        "soft_target": of({"sum_low": real, "sum_high": real, "many": real, "binary": flag}),
    },
)  # fmt: skip
_loss = of({}, {"stream": count, "ops": texts, "terms": each(_term), "gaussian_kl": one_of(1, -1)})

_leaf = of(
    {},
    {
        "shape": _shape, "dtype": text, "image": flag, "column_std_min": real, "column_std_max": real,
        "column_mean_absmax": real, "min": wide, "max": wide,
    },
)  # fmt: skip
_batch = of({}, {"model": text, "inputs": named(_leaf)})
_modes = of({}, {"model": text, "training": flag, "eval_layers": texts, "mode_layers": texts})
_params = of(
    {},
    {
        "total": count, "tied": each(texts),
        **dict.fromkeys(("frozen", "not_in_optimizer", "no_grad", "uncalled", "zero_lr"), texts),
    },
)  # fmt: skip
_setting = validation.any_of(flag, real, each(real))
_group = of(
    {},
    {
        "params": count, "lr": real, "weight_decay": real, "momentum": real, "betas": each(real), "eps": real,
        "alpha": real, "max_iter": real,
        **dict.fromkeys(("nesterov", "amsgrad", "centered", "decoupled_weight_decay"), _setting),
    },
)  # fmt: skip
_optimizer = of(
    {"foreign_no_grad": count, "owned": count},
    {
        "stream": count, "type": text, "groups": each(_group), "foreign_shapes": each(_shape), "decayed_norms": texts,
        **dict.fromkeys(("foreign", "frozen", "idle", "decayed", "undecayed"), count),
    },
)  # fmt: skip
_optimizer_state = of(
    {"eps": real, "eps_kept": real, "dtype": text},
    {"stream": count, "key": text, "params": count, "below_eps": real, "typical": real},
)
_window = of({"first": integer, "last": integer, "count": count, "signal": real, "error": real})
_gradient_course = of({}, {"stream": count, "windows": each(_window)})
_loss_branches = of(
    {"pair": text, "step": integer, "layer": _layer, "cosine": real, "norms": pair(real), "names": pair(text)},
    {"kind": text},
)
_phase = row(integer, real, perhaps(real), count)
_evaluation_scores = of({}, {"phases": each(_phase)})

_predicted = of({}, {"from": integer, "readings": count, "classes": named_by(numbered, row(count, count, count))})
_tokens = of(
    {},
    {
        "batches": count, "positions": count, "match": named_by(numbered, real), "compared": count, "padded": real,
        "padded_rows": real, "pad": integer, "mask": of({"padding": real, "rest": real}), "unlabelled_rows": real,
        "lost": real, "lost_kinds": count,
        "order": of({}, {"guessed": count, **dict.fromkeys(("given", "mirrored", "base", "copies"), real)}),
    },
)  # fmt: skip
_fit = of(
    {"samples": count, "score": real, "null": real, "z": real, "spread": real},
    {
        "features": count, "null_sd": real, "best": text, "best_score": real, "best_z": real, "again": count,
        "agree": count, "ordinal": real,
    },
    ("best", "best_score", "best_z"),
)  # fmt: skip
_targets = of(
    {"kind": text, "batches": count, "samples": count},
    {
        "slot": count, "stream": count, "alone": flag, "single": flag, "maximised": flag, "classes": count,
        "distinct": count, "histogram": _classes,
        "ignore": wide, "empty": count, "first_empty": _first, "switches": each(integer), "period": count,
        "integral": flag, "values": named_by(numeric, count), "predicted": _predicted, "mask_zeros": real,
        "tokens": _tokens, "fit": _fit,
        **dict.fromkeys(
            (
                "ignored", "entropy", "batch_entropy", "same_next", "same_by_chance", "min", "max", "mean", "std",
                "batch_std", "outside_unit", "negative", "means_std", "means_correlation",
            ),
            real,
        ),
    },
    ("classes", "distinct", "entropy"),
    ("distinct", "classes"),
    ("batch_entropy", "same_next", "same_by_chance", "period", "entropy", "distinct"),
    ("integral", "min", "max", "period"),
)  # fmt: skip
_places = named(each(line))
_precision = of({}, {"autocast": perhaps(text), "param_dtypes": texts, "scaler": flag})

_drawn = of({"op": text}, {"where": _place, "call": text})
_batch_layer = of({"layer": text, "type": text, "shape": _shape})
_inside = {
    True: of({"inside": flag, "column": count, "columns": count, "rows": count}, {"leaf": text}),
    False: of({"inside": flag}),
}
_experiments: dict[str, Check] = {
    "eval_random": of({}, {"random": flag, "draws": each(_drawn)}),
    "batch_mixing": of(
        {"rows": count, "mixed": flag, "pattern": word("none", "later", "all", "some"), "strength": real},
        {
            "why_batch": text, "dims": count, "layers": each(_batch_layer), "steady": flag,
            "axis_ops": each(of({"op": text}, {"where": _place, "layer": _layer})),
            "place": perhaps(of({"layer": text, "type": text, "at": text})),
        },
    ),
    "causality": of({"leaks": flag, "length": count, "at": count, "share": real, "layer": _layer, "type": text}),
    "target_inside": lambda value, name: _inside[value.get("inside") is True](value, name),
    "input_ignored": of(
        {"ignored": flag, "leaves": texts}, {"layer": _layer, "zeros": flag, "faded": flag, "output": row(text, _shape)}
    ),
    "padding_mask": of({"inverted": flag, "layer": _layer, "type": text}, {"masks": count}),
    "nonfinite_birth": of(
        {"phase": text, "op": text, "where": _place, "layer": _layer, "sample": perhaps(count), "count": count},
        {"step": integer, "dtype": text, "share": real},
    ),
    "odd_sample": of({"value": real, "usual": real}, {"step": integer, "sample": count, "leaf": text}),
}  # fmt: skip
_tried = of({"name": text, "judged": flag}, {"id": text, "model": text, "reason": text})


def _experiment(value: Any, name: Name) -> dict[str, Any]:
    """Return the fields that a judged experiment holds beside its name: they depend on the name."""
    found: dict[str, Any] = _tried(value, name)
    own: Check | None = _experiments.get(found["name"])
    return own(found, name) if own is not None and found["judged"] else found


_level = of({"mean": real, "std": real, "low": real, "high": real, "passes": count, "wander": real})
_columns = of(
    {"std_min": real, "std_max": real, "offset": real, "worst": integer, "worst_mean": real, "worst_std": real},
    {"count": count, "constant": count},
)
_dataset = of({"trained": flag, "shared": count, "samples": count, "bursts": count})
_overlap = of(
    {
        **dict.fromkeys(
            ("passes", "mixed", "pure", "shared", "samples", "mixed_shared", "mixed_samples", "again"), count
        ),
        **dict.fromkeys(("seen_before", "twice"), real),
        "datasets": each(_dataset),
    },
    {"covered": real, "recall": real, "natural": real},
)
_alike = of({"how": text, "name": text, "workers": count, "dataset": text})
_workers = of({"workers": count, "dataset": text}, {"iterable": text})
_batches = of(
    {"grid": text, "train": perhaps(_level), "skewed": real, "alike": perhaps(_alike)},
    {
        "model": text, "first_eval": integer, "odd": each(row(integer, count)), "floating": flag, "shape": _shape,
        "grid_eval": text, "columns": perhaps(_columns), "eval": perhaps(_level), "overlap": perhaps(_overlap),
        "runs": of(
            {},
            {
                "lengths": named_by(numbered, count), "first": integer, "reused": count, "workers": perhaps(_workers),
            },
        ),
        **dict.fromkeys(("passes", "steps", "evals", "bursts", "usual", "sizes"), count),
    },
)  # fmt: skip
_norms = of(
    {},
    {
        "step": integer,
        "layers": each(of(
            {"layer": text},
            {
                **dict.fromkeys(("momentum", "mean_gap", "var_gap"), perhaps(real)), "drift": real,
                **dict.fromkeys(("tracking", "frozen", "still", "training", "fresh", "moved"), flag),
                "batch": count, "elements": count,
            },
        )),
    },
)  # fmt: skip
_symmetry = of(
    {},
    {
        "step": integer,
        "layers": each(of(
            {"layer": text},
            {
                "name": text, "units": count, "spread": real, "zero": flag, "gradient": perhaps(real),
                "gradient_zero": flag,
            },
        )),
    },
)  # fmt: skip
_dropout = of({}, {"places": each(of({"before": text, "p": real}))})
_attention = of(
    {},
    {
        "step": integer,
        "places": each(of(
            {"layer": text}, {"heads": count, "keys": count, "entropy": real, "low": real, "logit": perhaps(real)}
        )),
    },
)  # fmt: skip
_variety = of({}, {"leaf": text, "shape": _shape, "across": real, "scale": real, "alike": real, "log_z": perhaps(real)})
_outputs = of({}, {"part": text, "model": text, "batch": count, "inputs": each(_variety), "outputs": each(_variety)})
_token_layers = of({"layers": each(of({"layer": text, "tokens": count, "cosine": real}))}, {"step": integer})

_cut = of({"after": text, "before": text, "how": word("shared", "shape", "next"), "place": _place})
_cuts = of({"model": text, "cut": perhaps(_cut), "no_grad": named(_place), "unreached": texts}, {"reached": texts})
_dry = of(
    {"dry": count, "backwards": count, "leaf": count, "output_grad": perhaps(flag), "place": _place, "step": integer}
)
_hidden = of({}, {"weights": each(of(
    {
        "name": text, "owner": text, "attribute": text, "how": text, "layer": text, "shape": _shape, "holder": text,
        "parameter": flag, "lone": flag, "feeds": texts, "seen": count, "moved": flag,
    },
    {"first": integer},
))})  # fmt: skip
_ties = of({}, {"pairs": each(of(
    {
        "a": text, "b": text, "transposed": flag, "started_equal": flag, "equal": flag, "declared": text,
        "trained": pair(flag), "distance": real, "untied": text,
    },
    {"drifted": _first},
))})  # fmt: skip
_copies = of(
    {
        "model": text, "names": texts, "of": text, "kind": text, "averaged": _first, "stale_norms": texts,
        "lag": perhaps(real),
        **dict.fromkeys(("began_equal", "constant", "follows", "moved", "swapped"), flag),
        **dict.fromkeys(("evaluated", "first", "last", "written", "refreshed"), integer),
    },
    {"unseen": flag, "apart": flag},
)  # fmt: skip
_evaluation_modes = of(
    {
        "model": text, "same": flag, "grad": flag, "first": integer, "dropout": texts, "norms": texts,
        **dict.fromkeys(("train_bursts", "eval_bursts", "passes", "longest", "repeated", "steps"), count),
    },
    {"bursts": count},
)  # fmt: skip
_functions = of(
    {
        "name": text, "judged": flag, "input": integer, "analytic": real, "numeric": real, "error": real,
        "place": _place,
    },
    {"layer": text, "reason": text},
)  # fmt: skip
_order = of({"order": texts}, {"stream": count})
_accumulation = of(
    {},
    {
        "stream": count, "backwards": count, "forwards": count, "wiped": count, "divisor": real, "kinds": texts,
        "by_hand": flag,
    },
)  # fmt: skip
_clip = of(
    {"scaled": count},
    {
        "kind": text, "limit": real, "scale": real, "worst": real, "first": _first,
        **dict.fromkeys(
            ("stream", "calls", "right", "after_step", "before_backward", "between", "empty", "exceeded"),
            count,
        ),
    },
)  # fmt: skip
_waits = of(
    {"first": real, "last": real, "falls": count, "cuts": count, "cut_at": _first}, {"mode": text, "rises": count}
)
_schedule = of(
    {"type": text, "stream": perhaps(count), "made": integer, "steps": integer, "pass_steps": integer},
    {
        "id": count, "params": named(validation.any_of(real, each(perhaps(real)))), "position": real,
        "base_lr": perhaps(real), "waits": _waits,
        **dict.fromkeys(("optimizer_steps", "double", "early", "passes"), integer),
    },
)  # fmt: skip
_memory = of(
    {},
    {
        "stream": count, "type": text, "stateful": flag, "steps": count, "remade": count, "emptied": count,
        "every": count, "first": _first, "same_lr": flag,
    },
)  # fmt: skip
_resume = of(
    {"lr": perhaps(real)},
    {
        "id": count, "where": text, "states": count, "keys": texts, "numbers": named(real),
        "model_loaded": _first, "optimizer_loaded": flag, "loaded_steps": flag,
    },
)  # fmt: skip
_scaler = of(
    dict.fromkeys(("used", "steps", "discarded", "direct", "mixed"), count),
    {
        "scale": real, "first": _first,
        **dict.fromkeys(("scaled", "skipped", "updates", "unscaled", "seen"), count),
    },
)  # fmt: skip
_unstepped = of(
    {},
    {
        "id": count, "type": text, "moved": flag, "layers": texts, "lr": perhaps(real), "training": flag,
        **dict.fromkeys(("tensors", "with_grad", "zeroed", "backwards", "steps", "scaler_steps"), count),
    },
)  # fmt: skip

SHAPES: dict[str, Check] = {
    FactKey.ACCUMULATION.value: _accumulation,
    FactKey.ATTENTION.value: _attention,
    FactKey.BATCH.value: _batch,
    FactKey.BATCHES.value: _batches,
    FactKey.CLIP.value: _clip,
    FactKey.COPIES.value: _copies,
    FactKey.CUTS.value: _cuts,
    FactKey.DROPOUT.value: _dropout,
    FactKey.DRY.value: _dry,
    FactKey.EVALUATION_MODES.value: _evaluation_modes,
    FactKey.EVALUATION_SCORES.value: _evaluation_scores,
    FactKey.EXPERIMENT.value: _experiment,
    FactKey.FUNCTIONS.value: _functions,
    FactKey.GRADIENT_COURSE.value: _gradient_course,
    FactKey.HIDDEN.value: _hidden,
    FactKey.LOSS.value: _loss,
    FactKey.LOSS_BRANCHES.value: _loss_branches,
    FactKey.MEMORY.value: _memory,
    FactKey.MODES.value: _modes,
    FactKey.NORMS.value: _norms,
    FactKey.OPERATIONS.value: of({}, {"into": named(texts)}),
    FactKey.OPTIMIZER.value: _optimizer,
    FactKey.OPTIMIZER_STATE.value: _optimizer_state,
    FactKey.ORDER.value: _order,
    FactKey.OUTPUTS.value: _outputs,
    FactKey.PARAMS.value: _params,
    FactKey.PLACES.value: _places,
    FactKey.PRECISION.value: _precision,
    FactKey.RESUME.value: _resume,
    FactKey.SCALER.value: _scaler,
    FactKey.SCHEDULE.value: _schedule,
    FactKey.SYMMETRY.value: _symmetry,
    FactKey.TARGETS.value: _targets,
    FactKey.TIES.value: _ties,
    FactKey.TOKENS.value: _token_layers,
    FactKey.UNSTEPPED.value: _unstepped,
}
"""By key. A field of the first mapping of ``of`` must be there, one of the second may be."""


def fitting(key: str, value: Any) -> dict[str, Any]:
    """Return a fact's value as it was before it became JSON; ValueError or Lacking name the field that does not fit."""
    check = SHAPES.get(key)
    if check is None:
        return revived(mapping(value, "Fact.value"))  # type: ignore[no-any-return]
    found: dict[str, Any] = check(value, key)
    return found
