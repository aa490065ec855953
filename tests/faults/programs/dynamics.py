"""How the optimizer moves: its momentum, decay and memory, the noise of small batches, and the format of numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    AutoEncoder,
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
    pictures,
    sgd,
)
from torch import Tensor, nn

# --- weight decay ------------------------------------------------------------------------------------------------


@program("mlp", "weight_decay_too_high", step=0, verdict="failing")
def sgd_decay_one_mlp() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.1, weight_decay=1.0), batches(flat_digits(), 200))


@program("transformer", "weight_decay_too_high", step=0, verdict="failing")
def adamw_decay_hundred_transformer() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=300.0)
    fit(model, optimizer, char_batches(150), char_loss)


@program("lstm", "weight_decay_too_high", step=0, verdict="failing")
def adam_l2_of_one_lstm() -> None:
    model = RowLstm()
    fit(model, torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1.0), batches(digits(), 200))


@program("convnet", "weight_decay_too_high", step=0, verdict="failing")
def sgd_decay_half_convnet() -> None:
    model = ConvNet(norm=False)
    fit(model, sgd(model, 0.05, momentum=0.9, weight_decay=0.5), batches(digits(), 150))


def decay_norms(model: nn.Module, decay: float, **settings: float) -> list[dict[str, object]]:
    """Parameter groups that have it the wrong way round: norms and biases decay, matrices do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [
        {"params": others, "weight_decay": decay, **settings},
        {"params": matrices, "weight_decay": 0.0, **settings},
    ]


@program("transformer", "decay_on_norms", step=0, verdict="failing")
def decay_on_the_norms_alone_transformer() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(decay_norms(model, 300.0), 1e-3), char_batches(120), char_loss)


@program("convnet", "decay_on_norms", step=0, verdict="failing")
def decay_on_the_norms_alone_convnet() -> None:
    model = ConvNet()
    fit(model, torch.optim.SGD(decay_norms(model, 40.0), 0.02), batches(digits(), 150))


@program("transformer")
def usual_decay_on_the_norms() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(decay_norms(model, 0.1), 2e-3), char_batches(120), char_loss)


@program("transformer")
def adamw_decay_of_papers() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.3), char_batches(150), char_loss)


@program("convnet")
def sgd_decay_on_everything_convnet() -> None:
    model = ConvNet()
    fit(model, sgd(model, 0.05, momentum=0.9, weight_decay=5e-3), batches(digits(), 150))


@program("mlp")
def strong_decay_that_regularises() -> None:
    model = Mlp()
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=3.0), batches(flat_digits(), 250))


# --- momentum ----------------------------------------------------------------------------------------------------


@program("mlp", "momentum_too_high", step=0, verdict="failing")
def momentum_999_regression() -> None:
    model = Mlp(10, 1)
    fit(model, sgd(model, 0.05, momentum=0.999), batches(diabetes(), 300), F.mse_loss)


@program("mlp", "momentum_too_high", step=0, verdict="failing")
def momentum_one_mlp() -> None:
    model = Mlp()
    # Rounding, which differs between processors, decides in which of the first 250 steps it loses what it had learnt.
    fit(model, sgd(model, 0.05, momentum=1.0), batches(flat_digits(), 300))


@program("convnet", ("momentum_too_high", "lr_too_high"), verdict="failing")
def momentum_995_convnet() -> None:
    model = ConvNet(norm=False)
    fit(model, sgd(model, 0.1, momentum=0.995), batches(digits(), 150))


@program("mlp")
def momentum_99_with_a_fitting_lr() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.005, momentum=0.99), batches(flat_digits(), 250))


@program("convnet")
def nesterov_99_convnet() -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), 2e-3, momentum=0.99, nesterov=True, weight_decay=3e-5)
    fit(model, optimizer, batches(digits(), 150))


# --- Adam --------------------------------------------------------------------------------------------------------


@program("autoencoder", "adam_epsilon", step=0, verdict="failing")
def adam_epsilon_of_one_autoencoder() -> None:
    model = AutoEncoder()
    fit(model, torch.optim.Adam(model.parameters(), 1e-3, eps=1.0), batches(pictures(), 200), F.mse_loss)


@program("transformer", "adam_epsilon", step=0, verdict="failing")
def adamw_epsilon_of_ten_transformer() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(model.parameters(), 3e-4, eps=10.0), char_batches(100), char_loss)


@program("mlp", "adam_epsilon", step=0, verdict="failing")
def gradients_below_epsilon() -> None:
    model = Mlp()
    fit(
        model, adam(model, 1e-3), batches(flat_digits(), 200),
        lambda out, y: F.cross_entropy(out, y, reduction="sum") / 1e11,
    )  # fmt: skip


@program("mlp", "adam_epsilon", verdict="failing")
def adam_in_half_precision() -> None:
    model = Mlp().half()
    x, y = flat_digits()
    fit(model, adam(model, 1e-3), batches((x.half(), y), 60))


@program("mlp")
def rmsprop_epsilon_of_a_paper() -> None:
    model = Mlp()
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3, alpha=0.9, eps=1e-3)
    fit(model, optimizer, batches(flat_digits(), 200))


@program("mlp")
def adam_epsilon_1e_3_and_learning() -> None:
    model = Mlp()
    fit(model, torch.optim.Adam(model.parameters(), 3e-3, eps=1e-3), batches(flat_digits(), 200))


@program("transformer")
def post_norm_transformer_that_needs_no_warmup() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(128, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(64, 128)

        def forward(self, x: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            out: Tensor = self.head(self.encoder(self.embed(x), mask=mask, is_causal=True))
            return out

    model = Net()
    fit(model, torch.optim.Adam(model.parameters(), 1e-3), char_batches(100, 8), char_loss)


@program("transformer")
def warmup_with_a_high_peak() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 6e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=50)
    fit(model, optimizer, char_batches(150), char_loss, after=lambda _: warmup.step())


# --- noise and conflict ------------------------------------------------------------------------------------------


@program("mlp", ("batch_too_small", "lr_too_high"), step=0)  # with batches of 32 the same falls to 0.1
def single_samples_mlp() -> None:
    model = Mlp(act=nn.Tanh)
    fit(model, sgd(model, 0.5), batches(flat_digits(), 500, size=1))


@program("lstm")
def single_samples_lstm() -> None:
    model = RowLstm()
    fit(model, adam(model, 0.01), batches(digits(), 400, size=1))


@program("mlp")
def online_learning_from_single_samples() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.01), batches(flat_digits(), 1500, size=1))


class TwoHeads(nn.Module):
    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.trunk = nn.Linear(10, 32)
        self.first, self.second = nn.Linear(32, outputs), nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.trunk(x))
        return self.first(h), self.second(h)


@program("multitask", "gradient_conflict", verdict="failing")
def two_targets_that_cancel() -> None:
    model = Mlp(10, 1)
    optimizer = adam(model, 1e-3)
    for x, y in batches(diabetes(), 200):
        out = model(x)
        loss = F.mse_loss(out, y) + F.mse_loss(out, -y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("multitask")
def two_tasks_that_get_on() -> None:
    model = TwoHeads()
    optimizer = adam(model, 3e-3)
    for x, y in batches(diabetes(), 300):
        first, second = model(x)
        loss = F.mse_loss(first, y) + 0.5 * F.mse_loss(second, -(y**2) + 0.5 * y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("multitask")
def two_losses_backwarded_in_turn() -> None:
    model = TwoHeads()
    optimizer = adam(model, 3e-3)
    for x, y in batches(diabetes(), 300):
        first, second = model(x)
        optimizer.zero_grad()
        F.mse_loss(first, y).backward(retain_graph=True)
        F.l1_loss(second, x[:, :1]).backward()
        optimizer.step()


@program("autoencoder")
def reconstruction_against_a_penalty() -> None:
    model = AutoEncoder()
    optimizer = adam(model, 3e-3)
    for x, _ in batches(pictures(), 250):
        code = model.enc2(model.act1(model.enc1(x)))
        out = model.dec2(model.act2(model.dec1(code)))
        loss = F.mse_loss(out, x) + 1e-3 * code.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- number formats ----------------------------------------------------------------------------------------------


def autocast_fit(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, dtype: torch.dtype, *, size: int = 64,
    scaled: bool = False,
) -> None:  # fmt: skip
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    for x, y in batches(flat_digits(), steps, size):
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def half_weighted(model: nn.Module, optimizer: torch.optim.Optimizer, weight: float, *, scaled: bool) -> None:
    """Reconstruction in float16 autocast, its loss with a small weight, as it has beside others."""
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    for x, y in batches(pictures(), 120):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = weight * F.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@program("autoencoder", "fp16_underflow", step=0)
def half_reconstruction_without_scaler() -> None:
    model = AutoEncoder(nn.Tanh)
    half_weighted(model, sgd(model, 10.0), 1e-4, scaled=False)


@program("mlp", "fp16_underflow", step=0)
def half_weights_and_a_long_mean() -> None:
    x, y = flat_digits()
    model = Mlp(act=nn.Tanh).half()
    optimizer = sgd(model, 10.0)
    for a, b in batches((x.half(), y), 150):
        loss = F.cross_entropy(model(a).float(), b, reduction="sum") / 5e6
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("autoencoder")
def the_same_reconstruction_with_a_scaler() -> None:
    model = AutoEncoder(nn.Tanh)
    half_weighted(model, adam(model, 3e-3), 1e-5, scaled=True)


@program("mlp")
def half_autocast_with_scaler() -> None:
    model = Mlp(depth=4)
    autocast_fit(model, adam(model, 1e-3), 150, torch.float16, scaled=True)


@program("mlp")
def brain_autocast() -> None:
    model = Mlp(depth=4)
    autocast_fit(model, adam(model, 1e-3), 150, torch.bfloat16)


@program("mlp", "bf16_update_lost", step=0, verdict="failing")
def brain_weights_with_small_steps() -> None:
    model = Mlp().bfloat16()
    x, y = flat_digits()
    fit(model, sgd(model, 1e-3), batches((x.bfloat16(), y), 200))


@program("transformer", "bf16_update_lost", step=0, verdict="failing")
def brain_weights_fine_tuned() -> None:
    model = CharGpt().bfloat16()
    fit(model, torch.optim.AdamW(model.parameters(), 2e-6), char_batches(120), char_loss)


@program("mlp")
def brain_weights_that_learn() -> None:
    model = Mlp().bfloat16()
    x, y = flat_digits()
    fit(model, adam(model, 1e-3), batches((x.bfloat16(), y), 250))
