"""What goes wrong with a long training in mid-run, and what people change in it without harm.

Each kind changes one thing of a ``Training`` at the step at which it is called. Its truth is what the change is, in
ids of the taxonomy; several only where the list cannot tell them apart; none where the list has no name for it.
"""

from __future__ import annotations

import copy
import io
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tests.faults.late.late_tasks import Change, Training
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR

Fits = Callable[[type[Training]], bool]
Truth = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """One change of a training."""

    name: str
    change: Change
    harmless: bool
    truth: Callable[[type[Training]], Truth]
    fits: Fits
    """Whether a task has what is changed."""
    before: Change | None = None
    """What is so from the first step on."""


KINDS: dict[str, Kind] = {}


def everywhere(task: type[Training]) -> bool:
    return True


def of(*targets: str) -> Fits:
    return lambda task: task.target in targets


def on(*names: str) -> Fits:
    return lambda task: task.name in names


def fault(
    *cause: str,
    fits: Fits = everywhere,
    before: Change | None = None,
    truth: Callable[[type[Training]], Truth] | None = None,
) -> Callable[[Change], Change]:
    """Register a fault with its true causes."""

    def register(change: Change) -> Change:
        name = change.__name__
        KINDS[name] = Kind(name, change, False, truth or (lambda task: cause), fits, before)
        return change

    return register


def fine(fits: Fits = everywhere, before: Change | None = None) -> Callable[[Change], Change]:
    """Register a harmless change."""

    def register(change: Change) -> Change:
        name = change.__name__
        KINDS[name] = Kind(name, change, True, lambda task: (), fits, before)
        return change

    return register


def around(t: Training, name: str, new: Callable[..., object]) -> None:
    """Put something around a method of a training: it gets the old one first."""
    old = getattr(t, name)
    setattr(t, name, lambda *values: new(old, *values))


def scale_rate(t: Training, factor: float) -> None:
    for group in t.optimizer.param_groups:
        group["lr"] *= factor
    if t.scheduler is not None:
        t.scheduler.base_lrs = [rate * factor for rate in t.scheduler.base_lrs]


def set_groups(t: Training, **values: object) -> None:
    for group in t.optimizer.param_groups:
        group.update(values)


def rebuilt(t: Training, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return an optimizer of the same kind and settings over some parameters."""
    group = t.optimizer.param_groups[0]
    names = ("lr", "momentum", "weight_decay") if "momentum" in group else ("lr", "betas", "eps", "weight_decay")
    found: torch.optim.Optimizer = type(t.optimizer)(parameters, **{name: group[name] for name in names})
    return found


def sgd(t: Training) -> bool:
    return "momentum" in t.optimizer.param_groups[0]


def inputs(t: Training, new: Callable[[Tensor], Tensor]) -> None:
    """Change what the model gets from now on."""
    around(t, "prepare", lambda old, x, y: (new((pair := old(x, y))[0]), pair[1]))


def labels(t: Training, new: Callable[[Tensor], Tensor]) -> None:
    """Change what it should answer from now on."""
    around(t, "prepare", lambda old, x, y: ((pair := old(x, y))[0], new(pair[1])))


NUMBERS = of("classes", "values", "pictures")
ADAM = on("prices", "denoiser", "gpt", "rows", "vae")
SGD = on("customers", "convnet")
DROPOUT = on("customers", "prices", "convnet", "gpt", "rows")

# ---------------------------------------------------------------- optimisation


@fault("lr_too_high")
def rate_multiplied(t: Any) -> None:
    scale_rate(t, 40 if sgd(t) else 60)


@fault("schedule_error")
def growing_schedule(t: Any) -> None:
    t.scheduler = ExponentialLR(t.optimizer, gamma=1.02)


@fault("schedule_error", "lr_too_high")
def restart_far_too_high(t: Any) -> None:
    t.scheduler = None
    for group in t.optimizer.param_groups:
        group["lr"] = group["initial_lr"] = group["lr"] * 60
    t.scheduler = CosineAnnealingWarmRestarts(t.optimizer, T_0=400)


@fault("lr_too_low", "schedule_error")
def rate_zero(t: Any) -> None:
    scale_rate(t, 0.0)


@fault("lr_too_low")
def rate_almost_zero(t: Any) -> None:
    scale_rate(t, 1e-4)


@fault("momentum_too_high")
def momentum_raised(t: Any) -> None:
    set_groups(t, **({"momentum": 0.9995} if sgd(t) else {"betas": (0.9995, 0.999)}))


@fault("weight_decay_too_high")
def decay_raised(t: Any) -> None:
    set_groups(t, weight_decay=0.3 if sgd(t) else 20.0 if t.name == "gpt" else 0.3)


@fault("adam_epsilon", fits=ADAM)
def epsilon_raised(t: Any) -> None:
    set_groups(t, eps=10.0)


# ---------------------------------------------------------------- the loop


@fault("missing_zero_grad")
def zero_grad_skipped(t: Any) -> None:
    t.clear = lambda: None


@fault("optimizer_step_missing")
def step_skipped(t: Any) -> None:
    t.update = lambda: None


@fault("clip_too_tight")
def clipped_to_nothing(t: Any) -> None:
    t.clip = lambda: nn.utils.clip_grad_norm_(t.model.parameters(), 1e-4 if sgd(t) else 1e-9)


@fault("param_frozen")
def body_frozen(t: Any) -> None:
    for name, p in t.model.named_parameters():
        p.requires_grad_(name.startswith("head"))


@fault("param_frozen", fits=on("denoiser", "vae", "convnet", "customers", "prices"))
def first_layers_frozen(t: Any) -> None:
    names = ("enc", "mu", "logvar", "conv", "bn", "fc")
    for name, p in t.model.named_parameters():
        p.requires_grad_(not name.startswith(names))


@fault("eval_mode_left_on")
def eval_mode(t: Any) -> None:
    t.model.eval()


@fault("detached_graph")
def features_detached(t: Any) -> None:
    t.forward = lambda x: t.model.head(t.model.features(x).detach())


@fault("optimizer_stale_params", "param_not_in_optimizer")
def model_replaced(t: Any) -> None:
    t.model = copy.deepcopy(t.model)


@fault("optimizer_stale_params", "param_not_in_optimizer")
def head_replaced(t: Any) -> None:
    head = t.model.head
    t.model.head = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None)


@fault("param_not_in_optimizer")
def optimizer_of_the_head(t: Any) -> None:
    t.scheduler = None
    t.optimizer = rebuilt(t, t.model.head.parameters())


@fault("param_not_in_optimizer")
def optimizer_of_one_group(t: Any) -> None:
    t.scheduler = None
    t.optimizer = rebuilt(t, [p for p in t.model.parameters() if p.dim() == 1])  # "no decay", and nothing else


@fault("optimizer_state_lost")
def optimizer_rebuilt_each_step(t: Any) -> None:
    t.scheduler = None

    def clear(old: Callable[[], None]) -> None:
        t.optimizer = rebuilt(t, t.model.parameters())
        old()

    around(t, "clear", clear)


@fault("update_lost", "weights_overwritten")
def checkpoint_loaded_each_step(t: Any) -> None:
    best = copy.deepcopy(t.model.state_dict())
    around(t, "update", lambda old: (old(), t.model.load_state_dict(best)))


def keep_early(t: Any) -> None:
    def after(old: Callable[[], None]) -> None:
        old()
        if t.step == 50:
            t.early = copy.deepcopy(t.model.state_dict())

    around(t, "after", after)


@fault("update_lost", "weights_overwritten", before=keep_early)
def early_checkpoint_every_30(t: Any) -> None:
    around(t, "clear", lambda old: (old(), (t.step - t.at) % 30 == 0 and t.model.load_state_dict(t.early)))


@fault("accumulation_unscaled", fits=SGD)
def accumulated_undivided(t: Any) -> None:
    t.micro = 0

    def update(old: Callable[[], None]) -> None:
        t.micro += 1
        if t.micro % 64 == 0:
            old()
            t.optimizer.zero_grad()

    around(t, "update", update)
    t.clear = lambda: None


# ---------------------------------------------------------------- the loss


@fault("loss_sign_flip")
def sign_flipped(t: Any) -> None:
    around(t, "loss", lambda old, x, y: -old(x, y))


@fault("wrong_reduction", fits=on("customers", "convnet", "prices", "denoiser"))
def loss_summed(t: Any) -> None:
    around(t, "criterion", lambda old, out, y: old(out, y) * (len(y) if t.target == "classes" else y.numel()))


@fault("wrong_reduction", fits=SGD)
def loss_without_mean(t: Any) -> None:
    t.criterion = lambda out, y: F.cross_entropy(out, y, reduction="sum")


@fault("wrong_reduction", "lr_too_high", fits=SGD)
def loss_times_hundred(t: Any) -> None:
    around(t, "loss", lambda old, x, y: 100 * old(x, y))


@fault("unstable_op", fits=of("classes", "tokens"))
def entropy_with_log_of_zero(t: Any) -> None:
    def criterion(old: Callable[[Tensor, Tensor], Tensor], out: Tensor, y: Tensor) -> Tensor:
        p = out.softmax(-1)
        p = p * (p > 0.01)
        return old(out, y) + 0.01 * (p * p.log()).sum(-1).mean()

    around(t, "criterion", criterion)


@fault("double_softmax", fits=of("classes", "tokens"))
def softmax_before_loss(t: Any) -> None:
    around(t, "criterion", lambda old, out, y: old(out.softmax(-1), y))


@fault("target_broadcast", fits=of("values"))
def target_squeezed(t: Any) -> None:
    labels(t, lambda y: y.squeeze(1))


@fault("gradient_conflict", fits=on("vae"))
def beta_raised(t: Any) -> None:
    t.beta = 200.0


@fault("mask_error", fits=of("tokens"))
def causal_mask_lost(t: Any) -> None:
    for block in t.model.blocks:
        block.causal = False


@fault("mask_error", "target_misaligned", fits=of("tokens"))
def targets_not_shifted(t: Any) -> None:
    around(t, "prepare", lambda old, x, y: (x, x))


# ---------------------------------------------------------------- the data


@fault("unnormalised_inputs", fits=of("classes", "values"))
def shard_in_raw_units(t: Any) -> None:
    t.x = t.x * 100 + 50
    t.feed = t.batches()


@fault(
    fits=of("pictures"),
    truth=lambda task: (
        ("target_out_of_range", "unnormalised_inputs")
        if task.name == "vae"
        else ("unnormalised_inputs", "unnormalised_targets")
    ),
)
def pictures_in_bytes(t: Any) -> None:
    t.x = t.y = t.x * 255
    t.feed = t.batches()


@fault("input_ignored")
def inputs_all_zero(t: Any) -> None:
    inputs(t, torch.zeros_like)


@fault("double_normalisation", fits=of("classes", "values"))
def normalised_twice(t: Any) -> None:
    inputs(t, lambda x: (x - t.mean) / t.std)


@fault("bad_batch", fits=NUMBERS)
def absurd_batch(t: Any) -> None:
    inputs(t, lambda x: x * 1e5 if t.step == t.at else x)


@fault("nonfinite_input", fits=NUMBERS)
def nan_in_one_batch(t: Any) -> None:
    def spoil(x: Tensor) -> Tensor:
        if t.step == t.at:
            x = x.clone()
            x[0].view(-1)[3] = math.nan
        return x

    inputs(t, spoil)


@fault("target_misaligned", "label_noise")
def labels_shuffled(t: Any) -> None:
    labels(t, lambda y: y[torch.randperm(len(y))])


@fault("labels_degenerate", fits=of("classes", "values", "tokens"))
def labels_all_one(t: Any) -> None:
    labels(t, lambda y: torch.zeros_like(y) + (32 if t.target == "tokens" else 1))


@fault(fits=of("classes"))
def labels_off_by_one(t: Any) -> None:
    labels(t, lambda y: (y + 1) % t.classes)


@fault("unnormalised_targets", fits=of("values"))
def targets_in_other_units(t: Any) -> None:
    labels(t, lambda y: 40 * y + 250)


@fault("unshuffled_data", fits=of("classes", "values"))
def sorted_by_target(t: Any) -> None:
    t.order = lambda: t.y.flatten().argsort()
    t.feed = t.batches()


@fault("class_imbalance", fits=of("classes"))
def one_class_in_the_shard(t: Any) -> None:
    keep = (t.y == 2) | (torch.rand(len(t.y)) < 0.005)
    t.x, t.y = t.x[keep], t.y[keep]
    t.feed = t.batches()


@fault("batch_axis_mixup", fits=of("classes", "values", "pictures"))
def axes_mixed(t: Any) -> None:
    inputs(t, lambda x: x.transpose(0, -1).reshape(x.shape))


@fault(
    truth=lambda task: (
        ("batchnorm_small_batch", "degenerate_batch", "batch_too_small")
        if task.name == "convnet"
        else ("batch_too_small",)
    )
)
def batch_of_one(t: Any) -> None:
    t.size = 1
    t.feed = t.batches()


# ---------------------------------------------------------------- weights and numbers


@fault("dropout_too_high", fits=DROPOUT)
def dropout_raised(t: Any) -> None:
    for module in t.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.95


@fault("batchnorm_momentum", fits=on("convnet"))
def norm_momentum_one(t: Any) -> None:
    for module in t.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0


@fault("bf16_update_lost")
def weights_cast_each_step(t: Any) -> None:
    def update(old: Callable[[], None]) -> None:
        old()
        with torch.no_grad():
            for p in t.model.parameters():
                p.copy_(p.bfloat16())

    around(t, "update", update)


@fault("weights_overwritten")
def head_initialised_again(t: Any) -> None:
    t.model.head.reset_parameters()


@fault("weights_overwritten")
def model_initialised_again(t: Any) -> None:
    for module in t.model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


@fault("weights_overwritten", before=keep_early)
def early_checkpoint_loaded(t: Any) -> None:
    t.model.load_state_dict(t.early)


@fault("weights_overwritten")
def weights_multiplied(t: Any) -> None:
    with torch.no_grad():
        for p in t.model.parameters():
            p.mul_(6)


@fault("weights_overwritten")
def noise_on_weights(t: Any) -> None:
    def update(old: Callable[[], None]) -> None:
        old()
        with torch.no_grad():
            for p in t.model.parameters():
                p.add_(0.02 * torch.randn_like(p))

    around(t, "update", update)


# ---------------------------------------------------------------- harmless


@fine()
def nothing(t: Any) -> None:
    pass


@fine()
def decay_step(t: Any) -> None:
    scale_rate(t, 0.1)


@fine()
def sane_restart(t: Any) -> None:
    rate = t.optimizer.param_groups[0]["lr"]
    set_groups(t, lr=rate, initial_lr=rate)
    t.scheduler = CosineAnnealingWarmRestarts(t.optimizer, T_0=max(100, (t.steps - t.at) // 2))


@fine()
def decay_to_zero(t: Any) -> None:
    rate, left = t.optimizer.param_groups[0]["lr"], t.steps - t.at
    set_groups(t, lr=rate, initial_lr=rate)
    t.scheduler = LambdaLR(t.optimizer, lambda step: max(0.0, 1 - step / left))


def freeze_first(t: Any) -> None:
    next(iter(t.model.parameters())).requires_grad_(False)


@fine(before=freeze_first)
def unfreezing(t: Any) -> None:
    next(iter(t.model.parameters())).requires_grad_(True)


@fine()
def larger_batches(t: Any) -> None:
    t.size *= 2
    t.feed = t.batches()


@fine(of("classes", "tokens"))
def label_smoothing(t: Any) -> None:
    t.criterion = lambda out, y: F.cross_entropy(out.flatten(0, -2), y.flatten(), label_smoothing=0.1)


@fine(NUMBERS)
def mild_augmentation(t: Any) -> None:
    inputs(t, lambda x: x + 0.1 * torch.randn_like(x))


@fine(NUMBERS)
def harder_data(t: Any) -> None:
    inputs(t, lambda x: x * torch.empty(len(x), *[1] * (x.dim() - 1)).uniform_(0.8, 1.2))


@fine(DROPOUT)
def dropout_doubled(t: Any) -> None:
    for module in t.model.modules():
        if isinstance(module, nn.Dropout):
            module.p *= 2


@fine()
def decay_doubled(t: Any) -> None:
    set_groups(t, weight_decay=2 * t.optimizer.param_groups[0]["weight_decay"] or 1e-4)


@fine()
def validation(t: Any) -> None:
    def after(old: Callable[[], None]) -> None:
        old()
        if t.step % 50 == 0:
            t.quality()

    around(t, "after", after)


@fine()
def pause_with_checkpoint(t: Any) -> None:
    torch.save({"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}, io.BytesIO())
    time.sleep(0.5)


@fine()
def resumed_from_checkpoint(t: Any) -> None:
    file = io.BytesIO()
    torch.save({"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    t.model.load_state_dict(saved["model"])
    t.optimizer.load_state_dict(saved["optimizer"])


@fine()
def average_evaluated(t: Any) -> None:
    average = torch.optim.swa_utils.AveragedModel(
        t.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )

    def after(old: Callable[[], None]) -> None:
        old()
        average.update_parameters(t.model)
        if t.step % 100 == 0:
            own = copy.deepcopy(t.model.state_dict())
            t.model.load_state_dict(average.module.state_dict())
            t.quality()
            t.model.load_state_dict(own)

    around(t, "after", after)


@fine()
def accumulation(t: Any) -> None:
    t.micro = 0

    def update(old: Callable[[], None]) -> None:
        t.micro += 1
        if t.micro % 2 == 0:
            old()
            t.optimizer.zero_grad()

    around(t, "loss", lambda old, x, y: old(x, y) / 2)
    around(t, "update", update)
    t.clear = lambda: None


@fine()
def loss_weight(t: Any) -> None:
    around(t, "loss", lambda old, x, y: 1.2 * old(x, y))


@fine(on("vae"))
def beta_a_little_higher(t: Any) -> None:
    t.beta = 1.2


@fine(NUMBERS)
def mild_outliers(t: Any) -> None:
    def spoil(x: Tensor) -> Tensor:
        if t.step == t.at:
            x = x.clone()
            x[:2] *= 3
        return x

    inputs(t, spoil)


@fine()
def rate_doubled(t: Any) -> None:
    scale_rate(t, 2)


@fine()
def sane_clipping(t: Any) -> None:
    t.max_norm = 5.0


@fine()
def seeded_again(t: Any) -> None:
    torch.manual_seed(1234)


@fine(of("classes", "values"))
def new_shard(t: Any) -> None:
    chosen = torch.randperm(len(t.x))[: len(t.x) * 3 // 4]
    t.x, t.y = t.x[chosen], t.y[chosen]
    t.feed = t.batches()
