"""What is optimised is not what is meant."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    CharGpt,
    ConvNet,
    Mlp,
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


@program("transformer", "double_softmax", layer="head", step=0)
def softmax_before_cross_entropy_transformer() -> None:
    model = CharGpt()
    fit(
        model,
        torch.optim.AdamW(model.parameters(), 3e-3),
        char_batches(100),
        lambda out, y: char_loss(F.softmax(out, -1), y),
    )


@program("convnet", "double_softmax", layer="1", step=0)
def softmax_module_convnet() -> None:
    model = nn.Sequential(ConvNet(), nn.Softmax(dim=1))
    fit(model, sgd(model, 0.1, momentum=0.9), batches(digits(), 150))


@program("mlp", "target_broadcast", layer="head", step=0)
def column_against_row_mse() -> None:
    x, y = diabetes()
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-3), batches((x, y[:, 0]), 250), F.mse_loss)


@program("mlp", "target_broadcast", layer="head", step=0)
def column_against_row_by_hand() -> None:
    x, y = diabetes()
    model = Mlp(10, 1, depth=2)
    fit(model, sgd(model, 0.05), batches((x, y[:, 0]), 250), lambda out, y: ((out - y) ** 2).mean())


@program("mlp", "target_broadcast", layer="head", step=0)
def column_against_row_l1() -> None:
    x, y = diabetes()
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-3), batches((x, y[:, 0]), 250), F.l1_loss)


@program("mlp", "wrong_reduction", step=0, verdict="failing")
def summed_cross_entropy() -> None:
    model = Mlp()
    loss = nn.CrossEntropyLoss(reduction="sum")
    fit(model, sgd(model, 0.2), batches(flat_digits(), 150, 128), loss)


@program("mlp", "wrong_reduction", step=0, verdict="failing")
def summed_squared_error() -> None:
    model = Mlp(10, 1)
    fit(model, sgd(model, 0.05), batches(diabetes(), 150, 128), lambda out, y: ((out - y) ** 2).sum())


@program("mlp", "unstable_op", verdict="failing")
def log_of_softmax() -> None:
    x, y = flat_digits()
    model, scale = Mlp(), 1.0
    optimizer = sgd(model, 0.2)
    for xb, yb in batches((x, y), 300):
        scale *= 1.05  # a temperature that is annealed, as in a gumbel softmax
        p = torch.softmax(model(xb) * scale, 1)
        loss = -torch.log(p[torch.arange(len(yb)), yb]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("autoencoder", "unstable_op", step=50, verdict="failing")
def root_at_zero() -> None:
    x, _ = flat_digits()
    model = Mlp(64, 16, depth=2)
    optimizer = sgd(model, 0.05)
    for step in range(100):
        a, b = x[torch.randperm(len(x))[:128]].split(64)
        if step == 50:
            b[7] = a[7]  # a pair of the same picture
        distance = (model(a) - model(b)).pow(2).sum(1).sqrt()
        wanted = (a - b).pow(2).sum(1).sqrt()
        loss = F.mse_loss(distance, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("convnet", "unstable_op", step=40, verdict="failing")
def division_by_empty_mask() -> None:
    model = ConvNet()

    def masked(out: Tensor, y: Tensor) -> Tensor:
        masked.calls += 1  # type: ignore[attr-defined]
        mask = (torch.rand(len(y)) < 0.5).float()
        if masked.calls == 41:  # type: ignore[attr-defined]
            mask = mask * 0
        return (F.cross_entropy(out, y, reduction="none") * mask).sum() / mask.sum()

    masked.calls = 0  # type: ignore[attr-defined]
    fit(model, adam(model, 1e-3), batches(digits(), 90), masked)
