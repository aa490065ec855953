"""How the loss is optimised is wrong."""

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


@program("convnet", "lr_too_high", step=0, verdict="failing")
def lr_100_convnet() -> None:
    model = ConvNet(norm=False)
    fit(model, sgd(model, 100.0), batches(digits(), 60))


@program("mlp", "lr_too_high", step=0, verdict="failing")
def lr_10_mlp() -> None:
    model = Mlp(depth=4)
    fit(model, sgd(model, 10.0), batches(flat_digits(), 120))


@program("mlp", "lr_too_high", step=0, verdict="failing")
def adam_lr_1_regression() -> None:
    model = Mlp(10, 1)
    fit(model, adam(model, 1.0), batches(diabetes(), 120), F.mse_loss)


@program("transformer", "lr_too_high", step=0)  # the loss falls from 5.1 to 3.4 and stays there
def adam_lr_half_transformer() -> None:
    model = CharGpt()
    fit(model, adam(model, 0.5), char_batches(100), char_loss)


@program("lstm", "lr_too_high", step=0, verdict="failing")
def adam_lr_1_lstm() -> None:
    model = RowLstm()
    fit(model, adam(model, 1.0), batches(digits(), 120))


@program("autoencoder", "lr_too_high", step=0, verdict="failing")
def lr_500_autoencoder() -> None:
    model = AutoEncoder()
    fit(model, sgd(model, 500.0), batches(pictures(), 100), F.mse_loss)


@program("mlp", "lr_too_low", step=0, verdict="failing")
def sgd_lr_1e_6_mlp() -> None:
    model = Mlp()
    fit(model, sgd(model, 1e-6), batches(flat_digits(), 200))


@program("transformer", "lr_too_low", step=0, verdict="failing")
def adam_lr_1e_8_transformer() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(model.parameters(), 1e-8), char_batches(100), char_loss)


@program("convnet", "lr_too_low", step=0, verdict="failing")
def sgd_lr_1e_6_convnet() -> None:
    model = ConvNet()
    fit(model, sgd(model, 1e-6, momentum=0.9), batches(digits(), 120))
