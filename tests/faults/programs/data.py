"""What the model is given is not what it needs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    AutoEncoder,
    ConvNet,
    Mlp,
    adam,
    batches,
    diabetes,
    digits,
    fit,
    flat_digits,
    pictures,
    raw_diabetes,
    sgd,
)


@program("mlp", "nonfinite_input", step=30, verdict="failing")
def missing_value_in_a_table() -> None:
    x, y = diabetes()
    model = Mlp(10, 1)
    optimizer = adam(model, 1e-3)
    for step, (xb, yb) in enumerate(batches((x, y), 80)):
        if step == 30:
            xb[5, 3] = float("nan")
        optimizer.zero_grad()
        F.mse_loss(model(xb), yb).backward()
        optimizer.step()


@program("convnet", "nonfinite_input", step=0, verdict="failing")
def standardised_by_zero() -> None:
    x, y = digits()
    x = (x - x.mean(0)) / x.std(0)  # corner pixels are always empty: 0 / 0
    model = ConvNet()
    fit(model, adam(model, 1e-3), batches((x, y), 50))


@program("mlp", "nonfinite_input", step=40, verdict="failing")
def missing_target() -> None:
    x, y = diabetes()
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.02)
    for step, (xb, yb) in enumerate(batches((x, y), 90)):
        if step == 40:
            yb[0] = float("nan")
        optimizer.zero_grad()
        F.mse_loss(model(xb), yb).backward()
        optimizer.step()


@program("convnet", "bad_batch", step=80, verdict="failing")
def one_batch_of_raw_pixels() -> None:
    model = ConvNet(norm=False)
    optimizer = sgd(model, 0.1)
    for step, (x, y) in enumerate(batches(digits(), 150)):
        xb = x * 4000 if step == 80 else x
        optimizer.zero_grad()
        F.cross_entropy(model(xb), y).backward()
        optimizer.step()


@program("mlp", "bad_batch", step=60, verdict=("failing", "suspect"))
def one_outlier_row() -> None:
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.05)
    for step, (x, y) in enumerate(batches(diabetes(), 150)):
        if step == 60:
            x[3] = 9999.0  # the code for "unknown"
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


@program("mlp", "unnormalised_inputs", layer="fc1", step=0)
def raw_pixels() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, sgd(model, 0.1), batches((x * 255, y), 200))


@program("mlp", "unnormalised_inputs", layer="fc1", step=0)
def a_column_of_years() -> None:
    x, y = diabetes()
    years = 1950 + torch.randint(0, 70, (len(x), 1)).float()
    model = Mlp(11, 1)
    fit(model, sgd(model, 0.01), batches((torch.cat([x, years], 1), y), 200), F.mse_loss)


@program("mlp", "unnormalised_inputs", layer="fc1", step=0)
def a_column_of_prices() -> None:
    x, y = flat_digits()
    x = x.clone()
    x[:, 20] *= 2e5
    model = Mlp()
    fit(model, adam(model, 1e-3), batches((x, y), 60))


@program("mlp", "unnormalised_targets", layer="head", step=0)
def house_prices_sgd() -> None:
    x, y = raw_diabetes()
    model = Mlp(10, 1)
    fit(model, sgd(model, 0.05), batches((x, y * 1000), 150), F.mse_loss)


@program("mlp", "unnormalised_targets", layer="head", step=0)
def house_prices_adam() -> None:
    x, y = raw_diabetes()
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-3), batches((x, y * 1000), 200), F.mse_loss)


@program("autoencoder", ("unnormalised_inputs", "unnormalised_targets"), step=0)
def raw_pixels_autoencoder() -> None:
    x, _ = pictures()
    model = AutoEncoder()
    fit(model, sgd(model, 0.1), batches((x * 255, x * 255), 150), F.mse_loss)
