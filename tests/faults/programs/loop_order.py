"""The order of the training loop: accumulation, clipping, steps, schedules, optimizer state, gradient scalers.

Each fault stands beside uses of the same thing that are meant.
"""

from __future__ import annotations

import copy
import io
from collections import defaultdict

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    CharGpt,
    ConvNet,
    Mlp,
    RowLstm,
    adam,
    batches,
    char_batches,
    char_loss,
    diabetes,
    digits,
    fit,
    flat_digits,
    sgd,
)
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

EARLY = ("healthy", "inconclusive")


def loader(size: int = 64, flat: bool = True) -> DataLoader:
    return DataLoader(TensorDataset(*(flat_digits() if flat else digits())), size, shuffle=True)


# ---------------------------------------------------------------- accumulation


@program("mlp", "accumulation_wiped", step=0)
def zero_grad_before_each_micro_batch() -> None:
    model, parts = Mlp(), 4
    optimizer = sgd(model, 0.2)
    for i, (x, y) in enumerate(batches(flat_digits(), 320, 16)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) / parts
        loss.backward()
        if (i + 1) % parts == 0:
            optimizer.step()


@program("convnet", "accumulation_wiped", step=0)
def step_behind_the_batch_loop() -> None:
    model = ConvNet()
    optimizer = adam(model, 2e-3)
    for _ in range(12):
        for x, y in batches(digits(), 6):
            model.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("mlp", "accumulation_unscaled", step=0)
def sixteen_micro_batches_summed() -> None:
    model, parts = Mlp(10, 1), 16
    optimizer = sgd(model, 0.1)
    for i, (x, y) in enumerate(batches(diabetes(), 640, 16)):
        F.mse_loss(model(x), y).backward()
        if (i + 1) % parts == 0:
            optimizer.step()
            optimizer.zero_grad()


@program("convnet", "accumulation_unscaled", step=0)
def eight_micro_batches_summed_momentum() -> None:
    model, parts = ConvNet(norm=False), 8
    optimizer = torch.optim.SGD(model.parameters(), 0.15, momentum=0.9)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(batches(digits(), 480, 16)):
        F.cross_entropy(model(x), y).backward()
        if (i + 1) % parts == 0:
            optimizer.step()
            optimizer.zero_grad()


@program("mlp")
def micro_batches_averaged_and_clipped() -> None:
    model, parts = Mlp(), 4
    optimizer = sgd(model, 0.3)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=100)
    for i, (x, y) in enumerate(batches(flat_digits(), 400, 32)):
        (F.cross_entropy(model(x), y) / parts).backward()
        if (i + 1) % parts == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step() if i < 398 else None
            optimizer.zero_grad()


@program("transformer")
def micro_batches_summed_under_adam() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for i, (x, y) in enumerate(char_batches(240, 8)):
        char_loss(model(x), y).backward()
        if i % 4 == 3:
            optimizer.step()
            for p in model.parameters():
                p.grad = None


@program("gan")
def gan_halves_backwarded_apart() -> None:
    x, _ = flat_digits()
    generator, critic = Mlp(16, 64), Mlp(64, 1, act=nn.LeakyReLU)
    g, d = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(critic.parameters(), 2e-4)
    judge = F.binary_cross_entropy_with_logits
    one, nought = torch.ones(32, 1), torch.zeros(32, 1)
    for _ in range(120):
        critic.zero_grad()
        judge(critic(x[torch.randint(1797, (32,))]), one).backward()
        fake = generator(torch.randn(32, 16))
        judge(critic(fake.detach()), nought).backward()
        d.step()
        generator.zero_grad()
        judge(critic(fake), one).backward()
        g.step()


@program("multitask")
def tasks_backwarded_one_by_one() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=12)
    optimizer = sgd(model, 0.05)
    for xb, yb in batches((x, y), 200):
        optimizer.zero_grad()
        out = model(xb)
        F.cross_entropy(out[:, :10], yb).backward(retain_graph=True)
        F.cross_entropy(out[:, 10:], yb % 2).backward()
        optimizer.step()


@program("mlp")
def adversarial_training() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 150):
        delta = torch.zeros_like(x, requires_grad=True)
        F.cross_entropy(model(x + delta), y).backward()
        assert delta.grad is not None
        worse = (x + 0.02 * delta.grad.sign()).clamp(0, 1)
        optimizer.zero_grad()
        F.cross_entropy(model(worse), y).backward()
        optimizer.step()


@program("multitask")
def gradient_surgery() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=12)
    optimizer = sgd(model, 0.1)
    params = list(model.parameters())
    for xb, yb in batches((x, y), 150):
        found = []
        for task in range(2):
            optimizer.zero_grad()
            out = model(xb)
            loss = F.cross_entropy(out[:, :10], yb) if task == 0 else F.cross_entropy(out[:, 10:], yb % 2)
            loss.backward()
            found.append([p.grad.clone() for p in params if p.grad is not None])
        first, second = found
        dot = sum((a * b).sum() for a, b in zip(first, second, strict=True))
        norm = sum((b * b).sum() for b in second)
        for p, a, b in zip(params, first, second, strict=True):
            p.grad = a + b - (dot / norm * b if dot < 0 else 0)
        optimizer.step()


# ---------------------------------------------------------------- steps


@program("mlp", "optimizer_step_missing", step=0, verdict="failing")
def step_without_parentheses() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    for x, y in batches(flat_digits(), 120):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step  # noqa: B018 (the fault)


@program("lstm", "optimizer_step_missing", step=0, verdict="failing")
def learning_rate_of_nought() -> None:
    model = RowLstm()
    fit(model, torch.optim.Adam(model.parameters(), 0.0), batches(digits(), 100))


@program("mlp", "optimizer_step_missing", step=0, layer="head")
def second_optimizer_never_steps() -> None:
    model = Mlp()
    body = torch.optim.SGD([p for n, p in model.named_parameters() if "head" not in n], 0.1)
    head = torch.optim.SGD(model.head.parameters(), 0.1)
    for x, y in batches(flat_digits(), 150):
        body.zero_grad()
        head.zero_grad()
        F.cross_entropy(model(x), y).backward()
        body.step()


@program("mlp", verdict=EARLY)
def updates_by_hand() -> None:
    model = Mlp()
    for x, y in batches(flat_digits(), 120):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p.sub_(0.1 * p.grad)


@program("gan")
def critic_steps_more_often() -> None:
    x, _ = flat_digits()
    generator, critic = Mlp(16, 64), Mlp(64, 1)
    g, c = torch.optim.RMSprop(generator.parameters(), 5e-5), torch.optim.RMSprop(critic.parameters(), 5e-5)
    for step in range(200):
        g.zero_grad()
        c.zero_grad()
        (
            critic(generator(torch.randn(64, 16)).detach()).mean() - critic(x[torch.randint(1797, (64,))]).mean()
        ).backward()
        c.step()
        for p in critic.parameters():
            p.data.clamp_(-0.05, 0.05)
        if step % 40 == 39:
            g.zero_grad()
            (-critic(generator(torch.randn(64, 16))).mean()).backward()
            g.step()


@program("mlp", "update_lost", layer="fc2", step=0)
def optimizer_that_skips_square_matrices() -> None:
    class Picky(torch.optim.Optimizer):
        """Like a kernel that fails silently for tensors of one kind."""

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            assert closure is None
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and (p.dim() < 2 or p.shape[0] != p.shape[1]):
                        p.data.add_(p.grad, alpha=-group["lr"])

    model = Mlp(width=48)
    fit(model, Picky(model.parameters(), {"lr": 0.2}), batches(flat_digits(), 120))


@program("mlp", "update_lost", step=0, verdict="failing")
def old_weights_loaded_after_each_step() -> None:
    model = Mlp()
    old = copy.deepcopy(model.state_dict())
    fit(model, adam(model, 1e-3), batches(flat_digits(), 120), after=lambda _: model.load_state_dict(old))


# ---------------------------------------------------------------- clipping


@program("lstm", "clip_misplaced", step=0)
def clip_before_backward() -> None:
    model = RowLstm()
    optimizer = sgd(model, 0.5, momentum=0.9)
    for x, y in batches(digits(), 120):
        loss = F.cross_entropy(10 * model(x), y)
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        loss.backward()
        optimizer.step()


@program("mlp", "clip_misplaced", step=1)
def clip_after_step() -> None:
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.05)
    for x, y in batches(diabetes(), 150):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)


@program("mlp", "clip_misplaced", step=0)
def clip_before_unscale() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for x, y in batches(flat_digits(), 150):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@program("mlp")
def unscale_then_clip() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for x, y in batches(flat_digits(), 150):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@program("mlp")
def norm_measured_after_the_step() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    for x, y in batches(flat_digits(), 150):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), float("inf"))


@program("lstm", "clip_too_tight", step=0)
def clipped_to_a_thousandth() -> None:
    model = RowLstm()
    optimizer = sgd(model, 0.1)
    for x, y in batches(digits(), 200):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()


@program("mlp", "clip_too_tight", step=0)
def every_element_clipped() -> None:
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.05)
    for x, y in batches(diabetes(), 200):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 1e-6)
        optimizer.step()


@program("lstm")
def always_clipped_and_well() -> None:
    model = RowLstm()
    optimizer = adam(model, 5e-3)
    for x, y in batches(digits(), 200):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()


# ---------------------------------------------------------------- schedules


@program("convnet", "schedule_error", step=1)
def epochs_of_decay_in_batches() -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.05)
    schedule = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
    for _ in range(4):
        for x, y in loader(flat=False):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()


@program("mlp", "schedule_error")
def exponential_decay_in_batches() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    fit(model, optimizer, batches(flat_digits(), 250), after=lambda _: schedule.step())


@program("mlp", "schedule_error")
def cosine_of_ten_batches() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for _ in range(10):
        for x, y in loader():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()


@program("transformer", "schedule_error", step=0)
def warmup_in_batches_stepped_per_epoch() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 500))
    for _ in range(4):
        fit(model, optimizer, char_batches(30), char_loss)
        schedule.step()


@program("mlp", "schedule_error", step=100)
def line_below_nought() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.2)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 100)
    fit(model, optimizer, batches(flat_digits(), 200), after=lambda _: schedule.step())


@program("mlp", "schedule_error", step=0)
def scheduler_forgotten_in_warmup() -> None:
    model = Mlp()
    optimizer = adam(model, 1e-3)
    lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 50))
    fit(model, optimizer, batches(flat_digits(), 150))


@program("mlp")
def line_to_nought_at_the_end() -> None:
    model, steps = Mlp(), 200
    optimizer = adam(model, 3e-3)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 20) * max(0.0, 1 - step / steps))
    fit(model, optimizer, batches(flat_digits(), steps + 2), after=lambda _: schedule.step())


@program("convnet")
def warm_restarts() -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=20, T_mult=2)
    fit(model, optimizer, batches(digits(), 140), after=lambda _: schedule.step())


@program("mlp")
def sequential_schedule() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    parts = [lr_scheduler.LinearLR(optimizer, 0.01, total_iters=20), lr_scheduler.CosineAnnealingLR(optimizer, 200)]
    schedule = lr_scheduler.SequentialLR(optimizer, parts, milestones=[20])
    fit(model, optimizer, batches(flat_digits(), 150), after=lambda _: schedule.step())


@program("mlp")
def per_epoch_schedules() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    decay, plateau = lr_scheduler.StepLR(optimizer, 3, 0.3), lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    for _ in range(6):
        total = 0.0
        for x, y in loader():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        decay.step()
        plateau.step(total)


@program("mlp", verdict=EARLY)
def schedule_that_waits_for_its_epoch() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    lr_scheduler.StepLR(optimizer, 10)
    fit(model, optimizer, batches(flat_digits(), 60))  # stopped before the first epoch was over


# ---------------------------------------------------------------- optimizer state


@program("mlp", "optimizer_state_lost", step=1)
def optimizer_made_in_the_loop() -> None:
    model = Mlp()
    for x, y in batches(flat_digits(), 150):
        optimizer = adam(model, 1e-3)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("convnet", "optimizer_state_lost", step=10)
def state_emptied_every_ten_steps() -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for step, (x, y) in enumerate(batches(digits(), 100)):
        if step % 10 == 0:
            optimizer.state = defaultdict(dict)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("mlp", "optimizer_state_lost", step=250)
def resumed_without_the_optimizer() -> None:
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, betas=(0.9, 0.99))
    data = flat_digits()
    fit(model, optimizer, batches(data, 250))
    file = io.BytesIO()
    torch.save({"epoch": 5, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    checkpoint = torch.load(file)
    model = Mlp()
    model.load_state_dict(checkpoint["model"])
    fit(model, torch.optim.Adam(model.parameters(), 1e-2, betas=(0.9, 0.99)), batches(data, 80))


@program("mlp")
def resumed_as_it_should_be() -> None:
    model = Mlp()
    optimizer = adam(model, 3e-3)
    fit(model, optimizer, batches(flat_digits(), 120))
    file = io.BytesIO()
    torch.save({"epoch": 5, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    checkpoint = torch.load(file)
    model = Mlp()
    model.load_state_dict(checkpoint["model"])
    optimizer = adam(model, 3e-3)
    optimizer.load_state_dict(checkpoint["optimizer"])
    fit(model, optimizer, batches(flat_digits(), 80))


@program("convnet")
def fine_tuned_from_a_full_checkpoint() -> None:
    x, y = digits()
    model = ConvNet()
    optimizer = adam(model, 2e-3)
    fit(model, optimizer, batches((x, (y + 3) % 10), 80))
    file = io.BytesIO()
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, file)
    file.seek(0)
    weights = torch.load(file)["state_dict"]
    second = ConvNet()
    second.load_state_dict({k: v for k, v in weights.items() if not k.startswith("fc")}, strict=False)
    fit(second, adam(second, 1e-3), batches((x, y), 100))


@program("mlp")
def unfrozen_in_two_phases() -> None:
    model = Mlp()
    model.get_submodule("fc1").requires_grad_(requires_grad=False)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 80))
    model.requires_grad_(requires_grad=True)
    fit(model, adam(model, 5e-4), batches(flat_digits(), 120))


@program("mlp")
def federated_rounds() -> None:
    x, y = flat_digits()
    server, client = Mlp(), Mlp()
    for turn in range(8):
        client.load_state_dict(server.state_dict())
        fit(client, torch.optim.SGD(client.parameters(), 0.1, momentum=0.9), batches((x, y), 20))
        server.load_state_dict(client.state_dict())
        assert turn >= 0


@program("mlp")
def plain_sgd_made_anew() -> None:
    model = Mlp()
    for epoch in range(6):
        fit(model, sgd(model, 0.2 / (1 + epoch)), batches(flat_digits(), 30))


# ---------------------------------------------------------------- gradient scalers


@program("mlp", "loss_scale_misuse", step=0)
def optimizer_stepped_past_the_scaler() -> None:
    model = Mlp()
    optimizer = adam(model, 1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches(flat_digits(), 120):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        optimizer.step()


@program("mlp", "loss_scale_misuse", step=0)
def stepped_by_the_scaler_and_again() -> None:
    model = Mlp()
    optimizer = adam(model, 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches(flat_digits(), 120):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        optimizer.step()
        scaler.update()


@program("mlp")
def two_optimizers_after_one_scaled_backward() -> None:
    model = Mlp(depth=2)
    body, head = torch.optim.Adam(model.fc1.parameters(), 1e-3), torch.optim.SGD(model.head.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches(flat_digits(), 120):
        body.zero_grad()
        head.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(body)
        scaler.step(head)
        scaler.update()


@program("mlp")
def a_closure_and_then_a_scaler() -> None:
    first, model = Mlp(), Mlp()
    optimizer = sgd(first, 0.1)
    for x, y in batches(flat_digits(), 40):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(first(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    second = adam(model, 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches(flat_digits(), 120):
        second.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(second)
        scaler.update()


@program("convnet", "loss_scale_misuse", step=0)
def scaled_loss_thrown_away() -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.05)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches(digits(), 100):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()


@program("mlp", "loss_scale_misuse", verdict=("failing", "suspect"))
def scaler_never_updated() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches(flat_digits(), 50):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)


@program("multitask")
def two_scaled_losses_accumulated() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=12)
    optimizer = sgd(model, 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

    def losses(out: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return F.cross_entropy(out[:, :10], target), F.cross_entropy(out[:, 10:], target % 2)

    for i, (xb, yb) in enumerate(batches((x, y), 300)):
        one, two = losses(model(xb), yb)
        ((scaler.scale(one) + scaler.scale(two)) / 2).backward()
        if i % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
