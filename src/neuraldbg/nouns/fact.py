"""What was learnt about the program: certain, not statistical. A fact is logged when it is first seen or changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class FactKey(str, Enum):
    """The facts that capture reads. The value of each is a JSON object of the shape given here."""

    LOSS = "loss"
    """The loss graph of one backward, keyed per stream: {"stream": int, "ops": [str, ...] (from the loss back to the
    first layer outputs), "terms": [TERM, ...]} with TERM = {"kind": "cross_entropy" | "nll" | "mse" | "l1" |
    "smooth_l1" | "huber" | "bce" | "bce_with_logits" | "kl_div" | "squared_error" | "unknown", "reduction": "mean"
    | "sum" | "mixed" (over different axes) | "none", "input_shape": [int], "target_shape": [int], "operand_shapes":
    [[int], [int]] (as the user wrote them, before any broadcasting), "broadcast": bool, "fed_by": [str] (ops and
    activation layers between the model's last layer and the loss: "softmax", "sigmoid"), "layer": str | None (the
    last layer before it), "target": STATS, "input": STATS, "target_dtype": str, "classes": int, "target_histogram":
    {class: count}, "normalised": bool (a softmax stands directly below), "chain": [op] (all operations down to the
    last weights, nearest to the loss first), "direct": bool (no operation there), "sign": 1 | -1 | 0 (whether the
    root grows with the term; 0 unknown), "mass": {"low", "high"} (sum of exp(input) over the classes) with
    {"batch_low", "batch_high"} over the batch, {"top", "bottom"} of the input and {"plain_low", "plain_high"} (row
    sums), "ignore": int, "weighted": bool, "weightless": [id], "outside": float (share of targets that the head
    cannot give), "softmax_width": int, "rows_sum": [low, high], "soft": bool, "picked": bool, "soft_target":
    {"sum_low", "sum_high", "many", "binary"}}, and "gaussian_kl": 1 | -1 (the divergence of a variational
    autoencoder is minimised or maximised; absent where there is none) with STATS = {"min", "max", "mean", "std",
    "nonfinite", "count"}."""

    BATCH = "batch"
    """The root model's inputs: {"model": str, "inputs": {leaf: {"shape": [int], "dtype": str, "column_std_min": float,
    "column_std_max": float, "column_mean_absmax": float, "image": bool}}}. Columns are features of 2-D inputs."""

    MODES = "modes"
    """Modes during a forward pass with gradients: {"model": str, "training": bool, "eval_layers": [path of dropout or
    batch-norm layers in eval mode], "mode_layers": [path of all dropout and batch-norm layers]}."""

    PARAMS = "params"
    """Where the parameters of all watched models stand: {"total": int, "frozen": [name] (requires_grad=False and in a
    called layer), "not_in_optimizer": [name] (got a gradient, in no group of any optimizer seen), "no_grad": [name]
    (requires grad, gradient None at the step), "uncalled": [name] (owner never called), "zero_lr": [name],
    "tied": [[name, name]]}.
    Logged at the first steps and then at steps 2**k."""

    OPTIMIZER = "optimizer"
    """One optimizer: {"stream": int, "type": str, "groups": [{"lr", "weight_decay", "momentum", "betas", "eps",
    "params": int}], "foreign": int (tensors of its groups that no watched model owns), "foreign_no_grad": int (those
    of them whose gradient is None), "frozen": int (those that do not require gradients), "owned": int,
    "idle": int (those of the owned that never had a gradient),
    "foreign_shapes": [[int]] (at most 8), "decayed_norms": [name] (gains and offsets of normalisation layers in a group
    with weight decay, at most 32), "decayed": int and "undecayed": int (parameters in groups with and without)}."""

    OPTIMIZER_STATE = "optimizer_state"
    """The second moments of an adaptive optimizer, read from samples of its state after a step: {"stream": int, "key":
    str (name of the state), "dtype": str (of the state), "eps": float, "eps_kept": float (eps as that dtype holds it: 0
    where it underflows), "params": int (how many were sampled), "below_eps": float (median over them of the share of
    elements with 0 < sqrt(v) <= eps among those that are not 0), "typical": float (median sqrt(v) of those)}."""

    GRADIENT_COURSE = "gradient_course"
    """How far single gradients agree, from a fixed sample of their elements, logged at the end: {"stream": int,
    "windows": [{"first": int, "last": int (steps), "count": int (gradients), "signal": float (share of a gradient's
    squared norm that all of them have in common, unbiased: 0 for pure noise, 1 for one direction), "error": float (its
    standard error for pure noise)}]}."""

    LOSS_BRANCHES = "loss_branches"
    """Two losses on shared weights: {"pair": str, "step": int, "layer": str (whose output or parameters both reach),
    "kind": "terms" (of one sum) | "backwards" (one after the other), "cosine": float, "norms": [float, float],
    "names": [str, str]}."""

    EVALUATION_SCORES = "evaluation_scores"
    """The evaluations of the run, logged at its end: {"phases": [[step before which it was, mean loss, accuracy | None,
    batches], ...]}. Accuracy is known for classes given to ``cross_entropy`` or ``nll_loss``."""

    TARGETS = "targets"
    """The targets of one loss over the run so far, at steps that are powers of two and at the end: {"slot": int (which
    loss), "stream": int, "kind": as in LOSS, "alone": bool (the only loss of its backward pass that saves targets),
    "single": bool (backward passes of one kind only), "maximised": bool (by the optimizer), "batches", "samples",
    of class ids: "classes", "distinct", "histogram": {id: count} (64 most frequent), "ignore", "ignored" (share),
    "empty" (batches with nothing but ignored ids), "first_empty" (step), "entropy" (nats), "batch_entropy" (mean inside
    a batch), "same_next" (share of batches whose most frequent class is that of the batch before), "same_by_chance",
    "switches" [step], "period" (batches after which the same come again, 0 never);
    of numbers: "min", "max", "mean", "std", "batch_std", "outside_unit" (share outside [0, 1]), "negative" (share),
    "integral", "values": {value: count} (if at most 64), "means_std", "means_correlation", "period";
    "predicted": {"from": step, "readings": int, "classes": {id: [labels, said, right]}} of the later readings;
    "mask_zeros": float, "tokens": {"match": {offset: share of targets equal to the input token there}, "compared",
    "padded" (share of counted targets that are padding), "padded_rows", "pad": id, "mask": {"padding", "rest"},
    "unlabelled_rows" (share in which no target counts), "order": {"guessed", "given", "mirrored", "base", "copies"}
    (shares of labels that tokens tell at their own and at mirrored positions, and the most frequent label)};
    "fit": {"samples", "features", "score" (leave-one-out R^2 of targets from inputs), "null", "null_sd" (of permuted
    targets), "z", "best" (another alignment), "best_score", "best_z", "again", "agree", "spread" (of inputs over
    directions: 1 for independent numbers), "ordinal" (of whole numbers: how far near ones have near inputs)}}."""

    PLACES = "places"
    """Lines of the user's code: {kind: [[file, line number, source line], ...]} in order of appearance, at most 4 of a
    kind: "forward" (a model is called in training), "evaluation", "backward", "step" (of an optimizer), "optimizer"
    and "scheduler" (one is made)."""

    PRECISION = "precision"
    """{"autocast": str | None (dtype), "param_dtypes": [str], "scaler": bool}."""

    EXPERIMENT = "experiment"
    """What was tried on a copy of a model: {"id": "model:name", "name": str, "model": str, "judged": bool,
    "reason": str (where not judged)} and, by name: "eval_random": {"random": bool (eval mode gives another output
    for the same input), "draws": [{"op": str, "where": WHERE, "call": str (the statement)}]}; "batch_mixing":
    {"rows": int, "mixed": bool, "pattern": "none" | "later" | "all" | "some", "strength": float (effect on other
    rows relative to the effect on the own row), "why_batch": str, "dims": int, "layers": [{"layer", "type",
    "shape"}] (recurrent or attention layers that take the batch for time), "axis_ops": [{"op": str, "where":
    WHERE}] (softmax over the batch), "place": {"layer", "type", "at": "input" | "output"} | None (where they first
    meet), "steady": bool (batches of one size, with other contents)}; "causality":
    {"leaks": bool, "length": int, "at": int, "layer": str | None, "type": str, "share": float};
    "target_inside": {"inside": bool (a column of the input table is the target), "leaf": str, "column": int, "columns":
    int, "rows": int}; "input_ignored":
    {"ignored": bool, "layer": str | None (where it gets lost), "leaves": [str] (single inputs without any effect),
    "zeros": bool (all inputs are zero), "output": [name, shape] (the one output that is ignored)}; "padding_mask":
    {"inverted": bool, "layer": str | None, "type": str, "masks": int}; "nonfinite_birth": {"phase": "input" |
    "target" | "forward" | "backward", "op": str, "where": WHERE, "layer": str, "sample": int | None, "count": int
    (bad samples), "step": int}. WHERE = [file, line, source line] | None."""

    BATCHES = "batches"
    """What went into a model, from samples of its first input, logged at the end: {"model": str, "passes": int (of
    training), "steps": int (with such a pass that was seen), "evals": int (in eval mode without gradients), "bursts":
    int (steps before which there were some),
    "first_eval": int (step of the first, -1 for none), "usual": int (batch size), "odd": [[step, size]] (first passes
    of other sizes), "sizes": int, "floating": bool, "shape": [int], "grid": "bytes" | "unit" | "twice" | "shrunk" |
    "faint" | "" (on which pixel values lie: 0..255, k/255, k/255/255, (k/255 - 127.5)/127.5, (k/255/255 - mean)/std),
    "grid_eval": the same, "columns": {"std_min", "std_max", "offset" (largest |mean| / std), "worst" (its column),
    "worst_mean", "worst_std", "count", "constant"} | None, "train": LEVEL | None, "eval": LEVEL | None with LEVEL =
    {"mean", "std", "low", "high", "passes", "wander"}, "skewed": float (share of evaluation passes outside of all
    training passes), "overlap": {"passes", "mixed" (evaluation passes of which a part was trained on), "pure" (all of
    it), "shared", "samples", "mixed_shared", "mixed_samples", "seen_before" (share of the newest training samples
    that came before), "twice" (share of samples that stand twice in their batch), "covered" (share of the samples
    that were looked at), "again" (evaluation passes repeated in a later burst), "recall" (share of the training data
    that one burst evaluates, about), "natural" (training samples of whole numbers that equal another one, at most;
    0 where that is not known), "datasets": [{"trained" (loaders took training batches from it too), "shared",
    "samples", "bursts"}] (each dataset that loaders evaluated)} | None, "alike": {"how": "init" | "copied", "name":
    str, "workers": int, "dataset": str} | None (random numbers that all workers of the loader draw alike: a constant
    seed, a copied generator), "runs": {"lengths": {length: count} (equal training passes in a row), "first": int
    (step), "reused": int (of those: the very same tensor), "workers": {"workers": int, "iterable": str, "dataset":
    str} | None}}."""

    NORMS = "norms"
    """Batch normalisation in training passes: {"step": int, "layers": [{"layer": str, "momentum": float | None
    (None averages over all batches), "tracking": bool, "frozen": bool (its part of the model has parameters, and
    none requires gradients), "still": bool (the weights of that part are bitwise as when first seen), "training":
    bool, "fresh": bool (running statistics were 0 and 1 when first seen), "batch": int, "elements": int (values
    that one channel's statistic is taken over), "mean_gap": float | None (median over channels of |batch mean -
    running mean| / running std, before the update), "var_gap": float | None (median of |ln(batch variance / running
    variance)|), "drift": float (median of |running mean - that when first seen| / running std), "moved": bool
    (running statistics changed since then)}]}."""

    OPERATIONS = "operations"
    """Every operation of the loss graphs so far, by where its result goes: {"into": {layer path: [op, ...]}}: those
    that made the layer's output and those on the way to it from the layers before. Shape operations are left
    out."""

    SYMMETRY = "symmetry"
    """Weight matrices whose rows (one a unit) are alike, or were: {"step": int, "layers": [{"name": str, "layer":
    str, "units": int, "spread": float (rms of the rows about their mean row / rms of the rows), "zero": bool (all
    values are 0), "gradient": float | None (the same spread of the gradient; None without one), "gradient_zero":
    bool}]}."""

    DROPOUT = "dropout"
    """Dropout that was at work in a training pass, read from the graph of the loss: {"places": [{"before": str (the
    layer that it feeds, or "loss"), "p": float (share of zeros)}]}."""

    ATTENTION = "attention"
    """Softmax over positions in a training pass: {"step": int, "places": [{"layer": str (the layer that it feeds),
    "heads": int, "keys": int, "entropy": float (mean over samples, heads and queries, relative to that of a uniform
    distribution over the keys a query may see), "low": float (share of heads whose mean is below 0.05), "logit":
    float | None (largest score of a query and a key that was read)}]}."""

    OUTPUTS = "outputs"
    """How much the outputs of a called model, or part of one, vary over the batch: {"part": str, "model": str,
    "batch": int, "inputs": [VARIETY], "outputs": [VARIETY]} with VARIETY = {"leaf": str, "shape": [int], "across":
    float (rms over features of the standard deviation over the samples), "scale": float (rms of all values),
    "alike": float (mean cosine between samples), "log_z": float | None (mean logsumexp over the last axis, of
    floats with at least 2 columns)}."""

    TOKENS = "tokens"
    """How alike the positions of one sequence are: {"step": int, "layers": [{"layer": str, "tokens": int, "cosine":
    float (mean cosine between positions of the same sample)}]}, layers in order of their call."""

    CUTS = "cuts"
    """Layers that a training pass calls and the loss's graph never reaches: {"model": str, "cut": {"after": path,
    "before": path, "how": "shared" (the input of the one is the output of the other) | "shape" (it has its shape) |
    "next", "place": [file, line, source line] | None} | None, "no_grad": {path: [file, line, source line] | None}
    (called with gradients off inside a pass that has them on), "reached": [path] (layers with a gradient),
    "unreached": [path]}."""

    DRY = "dry"
    """Backward passes that reached no parameter of any watched model: {"dry": int, "backwards": int (all that were
    looked at), "leaf": int (of the dry ones those whose loss has no graph at all), "output_grad": bool | None (the
    model's last output before it still had a graph; None without such a pass), "place": [file, line, source line] |
    None, "step": int}."""

    HIDDEN = "hidden"
    """Weights in the graph of the loss that are no parameter of the module that holds them and in no optimizer:
    {"weights": [{"name": str ("Net.layers[2].weight"), "owner": str ("Net.layers[2]"), "layer": str (its path,
    "layers[2]"), "attribute": str ("layers"), "shape": [int], "how": "list" | "dict" | "tuple" | "set" | "object" |
    "tensor" | "result" (the module holds what was computed from it) | "model" (a watched model without layers, such
    as a loss), "holder": str, "parameter": bool, "lone": bool (the only module in its list), "feeds": [path or "loss"],
    "seen": int (readings), "moved": bool, "first": int (step)}]}."""

    TIES = "ties"
    """Pairs of weights that began equal, or that a declaration ties, in storages of their own: {"pairs": [{"a": name,
    "b": name, "transposed": bool, "started_equal": bool, "equal": bool, "declared": str (what declares it, or ""),
    "trained": [bool, bool], "drifted": int | None (step at which they were first seen to differ), "distance": float
    (rms of the difference over rms of a), "untied": str (what made two of one parameter, or "")}]}."""

    COPIES = "copies"
    """A model that is evaluated and in no optimizer, beside the trained one it is a copy of: {"model": str,
    "names": [str] (by which the program holds it), "of": str, "kind": "AveragedModel" | "copy", "evaluated": int
    (steps before which it was), "first": int, "last": int (those steps), "began_equal": bool (its weights were
    those of the trained model at step 0), "constant": bool, "follows": bool (bitwise the trained one's whenever
    evaluated), "moved": bool (the trained one's did), "averaged": int | None (n_averaged), "stale_norms": [path]
    (batch norm that never saw a batch, in evaluation mode), "swapped": bool (the trained model itself, put back to
    its first weights for evaluation), "lag": float | None (how far the copy is from all multiples of the trained
    one's first weights, relative to how far the trained one is), "written": int (looks before which its weights
    were written to), "refreshed": int (looks before which its running statistics had changed, without a pass of its
    own in training mode), "unseen": bool (steps went by unseen: what is said of evaluations is of those that were
    seen), "apart": bool (if so: its weights are not the trained one's when the run is summed up)}."""

    EVALUATION_MODES = "evaluation_modes"
    """Passes of a trained model without gradients, or without a backward: {"model": str, "bursts": int (steps before
    which there were some), "train_bursts": int (those in training mode), "eval_bursts": int, "passes": int (in
    training mode), "longest": int (such passes in one burst), "repeated": int (passes with the input of the pass
    before), "same": bool (each burst has one pass, always with one input that is not trained on), "steps": int,
    "grad": bool (gradients were left on), "first": int, "dropout": [path], "norms": [path] (batch norm whose
    statistics moved)}."""

    FUNCTIONS = "functions"
    """Custom autograd Functions against finite differences: {"name": str, "layer": str (or "loss") that it feeds,
    "judged": bool, "reason": str, "input": int (position), "analytic": float, "numeric": float (both directional
    derivatives), "error": float (largest relative error over inputs and directions), "place": [file, line, source
    line] | None}."""

    ORDER = "order"
    """The order of one optimizer's loop, from after the step before up to this step: {"stream": int, "order": [token]}
    with tokens "zero_grad", "forward", "backward", "grad" (autograd.grad), "unscale", "clip", "clip_value", "step",
    "update" (of a scaler), "schedule". Equal neighbours are merged, a repeated block is written once. At most
    6 versions are kept of an optimizer."""

    ACCUMULATION = "accumulation"
    """Several backward passes for one step: {"stream": int, "backwards": int, "forwards": int, "wiped": int (of them,
    those whose gradients were cleared and not used), "divisor": float (by what the losses were divided at their root,
    1.0 if by nothing), "kinds": [str] (root operation of each different loss), "by_hand": bool (the gradients were
    replaced or the weights moved between the passes)}."""

    CLIP = "clip"
    """Gradient clipping so far: {"stream": int, "kind": "norm" | "value", "limit": float, "calls": int, "right": int
    (after the last backward and before the step), "after_step": int, "before_backward": int, "between": int (more
    gradient came after it), "empty": int (no gradient was there), "scaled": int (the loss scale was still in), "scale":
    float, "exceeded": int (misplaced calls after which the step was taken with more than the limit), "worst": float
    (largest gradient stepped with in those, as a multiple of the limit), "first": int | None (first such step)}."""

    SCHEDULE = "schedule"
    """One learning-rate scheduler so far: {"id": int, "type": str, "stream": int | None, "params": {name: number |
    [number]} (T_max, step_size, milestones, total_steps, gamma, ...), "made": int (step), "steps": int,
    "optimizer_steps": int (of its optimizer since then), "double": int (steps without a step or a backward between),
    "early": int (steps before the first of its optimizer), "position": float (its last_epoch), "base_lr": float,
    "passes": int (passes over the training DataLoader so far, 0 if unknown), "pass_steps": int (optimizer steps in
    one of them), "waits": of a ReduceLROnPlateau {"mode": "min" | "max", "first", "last": float (what it was told),
    "rises": int, "falls": int (times that rose or fell), "cuts": int (times it lowered the rate), "cut_at": int | None
    (step of the first)}}."""

    MEMORY = "memory"
    """What an optimizer remembers: {"stream": int, "type": str, "stateful": bool, "steps": int, "remade": int (new
    objects for the same weights, which went on from where they were), "emptied": int (its state was cleared),
    "every": int (median steps between two of those), "first": int | None, "same_lr": bool}."""

    RESUME = "resume"
    """A checkpoint that was loaded with ``torch.load`` and holds the state of an optimizer: {"id": int, "where": str
    (key), "states": int, "keys": [str] (exp_avg, momentum_buffer, ...), "lr": float | None, "numbers": {key: float}
    (epoch, step, loss beside it), "model_loaded": int | None (step at which weights of it were put into a model),
    "optimizer_loaded": bool, "loaded_steps": bool (whether an optimizer that was given a state ever stepped)}."""

    SCALER = "scaler"
    """The use of gradient scalers so far: {"scaled": int (losses), "used": int (backwards of those), "steps": int,
    "skipped": int, "updates": int, "unscaled": int, "discarded": int (backwards of a loss whose scaled version was
    made and not used), "direct": int (optimizer steps past the scaler on gradients that carry the scale), "seen":
    int (steps that were looked at), "mixed":
    int (scaled backwards after unscale_ and before the step), "scale": float, "first": int | None (step of the
    first misuse)}."""

    UNSTEPPED = "unstepped"
    """Optimizers that never stepped: {"id": int, "type": str, "tensors": int, "with_grad": int, "zeroed": int
    (calls), "backwards": int, "moved": bool (their tensors changed all the same), "layers": [path], "lr": float,
    "training": bool, "steps": int (of other optimizers), "scaler_steps": int (tries of a gradient scaler)}."""


@dataclass(frozen=True)
class Fact:
    """One fact as of one step."""

    step: int
    key: str
    """One of FactKey, as its string."""
    value: dict[str, Any]
