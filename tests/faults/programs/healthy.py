"""Trainings as they should be. None of them may raise an alarm."""

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
from torch import nn


@program("mlp")
def mlp_sgd() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.1), batches(flat_digits(), 250))


@program("mlp")
def mlp_regression_adam() -> None:
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-3), batches(diabetes(), 300), F.mse_loss)


@program("convnet")
def convnet_adam_with_validation() -> None:
    model = ConvNet(p=0.3)
    x, y = digits()

    def validate(step: int) -> None:
        if step % 40 == 39:
            model.eval()
            with torch.no_grad():
                (model(x[:200]).argmax(1) == y[:200]).float().mean()
            model.train()

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=validate)


@program("convnet")
def convnet_sgd_momentum() -> None:
    model = ConvNet(norm=False)
    fit(model, sgd(model, 0.05, momentum=0.9, weight_decay=1e-4), batches(digits(), 120))


@program("lstm")
def lstm_adam() -> None:
    model = RowLstm()
    fit(model, adam(model, 3e-3), batches(digits(), 200))


@program("autoencoder")
def autoencoder_adam() -> None:
    model = AutoEncoder()
    fit(model, adam(model, 2e-3), batches(pictures(), 250), F.mse_loss)


@program("transformer")
def transformer_warmup_high_peak() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 30)
    fit(model, optimizer, char_batches(120), char_loss, after=lambda _: schedule.step())


@program("transformer")
def transformer_tied_weights() -> None:
    model = CharGpt(tied=True)
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), char_batches(120), char_loss)


@program("mlp")
def gradient_accumulation() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.2)
    data = batches(flat_digits(), 400, 16)
    for i, (x, y) in enumerate(data):
        (F.cross_entropy(model(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@program("mlp")
def lbfgs() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    for _ in range(15):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[:500]), y[:500])
            loss.backward()
            return loss

        optimizer.step(closure)


@program("mlp")
def two_optimizers() -> None:
    model = Mlp()
    body = torch.optim.Adam([*model.fc1.parameters(), *model.fc2.parameters()], 1e-3)  # type: ignore[union-attr, operator]
    head = torch.optim.SGD(model.head.parameters(), 0.1)
    for x, y in batches(flat_digits(), 150):
        body.zero_grad()
        head.zero_grad()
        F.cross_entropy(model(x), y).backward()
        body.step()
        head.step()


@program("mlp")
def label_smoothing() -> None:
    model = Mlp()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 250), nn.CrossEntropyLoss(label_smoothing=0.2))


@program("mlp")
def heavy_dropout() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    fit(model, adam(model, 2e-3), batches(flat_digits(), 250))


@program("mlp")
def cosine_to_zero() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 250)
    fit(model, optimizer, batches(flat_digits(), 250), after=lambda _: schedule.step())


@program("convnet")
def one_cycle() -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=121)
    fit(model, optimizer, batches(digits(), 120), after=lambda _: schedule.step())


@program("mlp")
def converged() -> None:
    model = Mlp(width=48)
    fit(model, adam(model, 1e-2), batches(flat_digits(), 300, 128))


@program("mlp")
def bf16_autocast() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 150):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("transformer")
def layer_norm_gelu_tower() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
            return out

    model = nn.Sequential(*[Residual() for _ in range(8)], nn.Linear(64, 10))
    fit(model, torch.optim.AdamW(model.parameters(), 1e-3), batches(flat_digits(), 120))


@program("mlp")
def binary_with_sigmoid() -> None:
    x, y = flat_digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    fit(model, adam(model, 3e-3), batches((x, (y > 4).float()[:, None]), 250), F.binary_cross_entropy)


@program("mlp")
def log_softmax_with_nll() -> None:
    model = nn.Sequential(Mlp(), nn.LogSoftmax(1))
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200), F.nll_loss)


@program("mlp")
def tanh_net() -> None:
    model = Mlp(depth=4, act=nn.Tanh)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


@program("mlp")
def linear_softmax_regression() -> None:
    model = nn.Linear(64, 10)
    fit(model, sgd(model, 0.5), batches(flat_digits(), 250))


@program("lstm")
def gru_clipped() -> None:
    model = RowLstm(nn.GRU)
    optimizer = sgd(model, 0.3, momentum=0.9)
    for x, y in batches(digits(), 200):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
