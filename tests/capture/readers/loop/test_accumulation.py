"""Losses of accumulated micro-batches are shown as the program prints them: before their division."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable

TIGHT = {"capture": {"overhead": 1e-6, "allowance_s": 0.0}}
"""Most steps are light ones."""
COUNT = 4
Losses = tuple[list[float], list[float]]
"""(losses of the record, losses that the program prints, averaged over each step)."""


def train(
    divide: Callable[[Tensor], Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss,
    *,
    micro: int = 240,
    count: int = COUNT,
    settings: dict[str, dict[str, float]] | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> Losses:
    """Train with ``count`` micro-batches a step, the last step with what is left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    printed: list[float] = []
    dbg = NeuralDbg(model, settings=settings)
    with dbg:
        for i in range(micro):
            x = torch.randn(16, 8)
            loss = loss_of(model(x), x.sum(1, keepdim=True))
            printed.append(loss.item())
            loss = divide(loss)
            (loss if scaler is None else scaler.scale(loss)).backward()
            if (i + 1) % count == 0 or i + 1 == micro:
                if scaler is None:
                    opt.step()
                else:
                    scaler.step(opt)
                    scaler.update()
                opt.zero_grad()
    steps = [printed[i : i + count] for i in range(0, micro, count)]
    return dbg.record().scalar("loss").values.tolist(), [sum(step) / len(step) for step in steps]


@pytest.mark.parametrize("settings", [None, TIGHT])
@pytest.mark.parametrize("divide", [lambda loss: loss / COUNT, lambda loss: (1 / COUNT) * loss])
def test_the_loss_is_the_printed_one(divide, settings):
    recorded, printed = train(divide, settings=settings)
    assert recorded == pytest.approx(printed, rel=1e-6)


def test_three_micro_batches():
    recorded, printed = train(lambda loss: loss * (1 / 3), count=3)
    assert recorded == pytest.approx(printed, rel=1e-5)


def test_the_last_step_has_fewer_micro_batches():
    recorded, printed = train(lambda loss: loss / COUNT, micro=34)
    assert recorded == pytest.approx(printed, rel=1e-6)


def test_the_loss_is_scaled_for_half_precision_as_well():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    recorded, printed = train(lambda loss: loss / COUNT, scaler=scaler)
    assert recorded == pytest.approx(printed, rel=1e-6)


def mean_by_hand(prediction: Tensor, target: Tensor) -> Tensor:
    return (prediction - target).square().sum() / 16


def test_a_mean_by_hand_stays_divided_by_its_elements():
    recorded, printed = train(lambda loss: loss / COUNT, mean_by_hand)
    assert recorded == pytest.approx(printed, rel=1e-6)


def test_a_sum_over_as_many_elements_as_micro_batches_stays_a_mean():
    recorded, printed = train(lambda loss: loss, lambda p, y: (p - y).square().sum() / COUNT)
    assert recorded == pytest.approx(printed, rel=1e-6)


@pytest.mark.parametrize("divide", [lambda loss: loss, lambda loss: loss / 2])
def test_another_divisor_is_the_weight_of_the_loss(divide):
    recorded, printed = train(divide)
    assert recorded == pytest.approx([divide(loss) for loss in printed], rel=1e-6)
