"""What the batches reader learns: fingerprints, overlaps, sizes, grids, equal batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.faults.kit import ConvNet, Mlp, adam, batches, digits, fit, flat_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg
from neuraldbg.capture.readers.data.input_levels import grid as grid_of
from neuraldbg.capture.statistics.sample_hashes import KEPT, Chance, Sketch, excerpt, hashes


def learnt(program: Any) -> dict[str, Any]:
    with NeuralDbg(discover=True) as dbg:
        program()
    fact = dbg.record().fact("batches")
    assert fact is not None
    return fact


def test_a_sample_has_one_fingerprint_in_any_batch():
    x = torch.randn(64, 3, 20, 20)
    one = hashes(excerpt(x).numpy())
    order = torch.randperm(64)
    other = hashes(excerpt(x[order]).numpy())
    assert np.array_equal(one[order.numpy()], other)
    assert len(np.unique(one)) == 64
    assert np.array_equal(hashes(excerpt(x[5:6]).numpy()), one[5:6])


def test_an_excerpt_is_a_copy_and_its_rows_take_turns():
    x = torch.randn(200, 70)
    taken = excerpt(x)
    x.zero_()
    assert taken.abs().sum() > 0
    rows = torch.arange(256.0)[:, None].expand(256, 4)
    seen = torch.cat([excerpt(rows, turn)[:, 0] for turn in range(4)])
    assert seen.unique().numel() == 256


def test_a_full_sketch_still_tells_shares():
    rng = np.random.default_rng(0)
    train = rng.integers(0, 2**64, 40_000, dtype=np.uint64)
    sketch = Sketch()
    for part in np.split(train, 100):
        sketch.add(part)
    assert len(sketch.seen) <= KEPT
    fresh = rng.integers(0, 2**64, 6_000, dtype=np.uint64)
    shared, possible = sketch.share(np.concatenate([train[:4_000], fresh]))
    assert shared / possible == pytest.approx(0.4, abs=0.06)


def epochs(model: nn.Module, x: Tensor, y: Tensor, count: int, checks: tuple[tuple[Tensor, Tensor], ...] = ()) -> None:
    optimizer = adam(model, 1e-3)
    for _ in range(count):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for held, _ in checks:
                for part in held.split(50):
                    model(part)
        model.train()


def test_shared_samples_are_counted_pass_by_pass():
    x, y = flat_digits()
    held = torch.cat([x[600:675], x[:25]])[torch.randperm(100)]
    fact = learnt(lambda: epochs(Mlp(), x[:600], y[:600], 4, ((x[:600], y), (held, y))))
    overlap = fact["overlap"]
    assert overlap["pure"] == 4 * 12
    assert overlap["mixed"] == 4 * 2
    assert overlap["mixed_shared"] / overlap["mixed_samples"] == pytest.approx(0.25, abs=0.02)
    assert overlap["seen_before"] > 0.95
    assert overlap["twice"] == 0
    assert (fact["usual"], fact["odd"]) == (32, [[18, 24]])
    assert fact["bursts"] == 4


def test_levels_in_both_modes():
    x, y = flat_digits()
    fact = learnt(lambda: epochs(Mlp(), (x[:600] - x.mean()) / x.std(), y[:600], 3, ((x[600:900], y),)))
    assert fact["train"]["std"] == pytest.approx(1, abs=0.1)
    assert fact["eval"]["std"] == pytest.approx(float(x.std()), abs=0.05)
    assert fact["skewed"] == 1.0
    same = learnt(lambda: epochs(Mlp(), x[:600], y[:600], 3, ((x[600:900], y),)))
    assert same["skewed"] == 0.0


@pytest.mark.parametrize(
    ("change", "grid"),
    [
        (lambda k: k, "bytes"),
        (lambda k: k / 255, "unit"),
        (lambda k: k / 255 / 255, "twice"),
        (lambda k: (k / 255 - 127.5) / 127.5, "shrunk"),
        (lambda k: (k / 255 - 0.5) / 0.5, ""),
        (lambda k: k / 255 * 0.0039, ""),
        (torch.randn_like, ""),
        (lambda k: torch.rand_like(k) / 300, ""),
    ],
)
def test_the_grid_tells_what_was_done_to_pixels(change: Any, grid: str):
    pixels = torch.randint(0, 256, (64, 64)).float()
    assert grid_of(change(pixels).numpy().ravel()) == grid


def test_a_batch_used_twice_is_told_from_one_delivered_twice():
    x, y = digits()

    def again() -> None:
        model = ConvNet()
        optimizer = adam(model, 1e-3)
        for xb, yb in batches((x, y), 20):
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()

    runs = learnt(again)["runs"]
    assert runs["lengths"] == {"2": 19}
    assert runs["reused"] == 20

    def delivered() -> None:
        for xb, yb in batches((x, y), 20):
            fit(model, optimizer, iter([(xb.clone(), yb), (xb.clone(), yb)]))

    model = ConvNet()
    optimizer = adam(model, 1e-3)
    runs = learnt(delivered)["runs"]
    assert runs["lengths"] == {"2": 19}
    assert runs["reused"] == 0
    assert runs["workers"] is None


def test_a_teacher_or_a_rollout_is_no_validation():
    x, y = flat_digits()

    def program() -> None:
        model = Mlp()
        optimizer = adam(model, 1e-3)
        for xb, yb in batches((x, y), 40):
            with torch.no_grad():
                model(xb)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()

    fact = learnt(program)
    assert fact["evals"] == 0
    assert fact["overlap"] is None


def test_equal_samples_by_chance_are_told_from_samples_that_return():
    rng = np.random.default_rng(0)

    def share(rows: Any, order: Any) -> float:
        sketch, chance = Sketch(), Chance()
        for at in range(0, len(order), 16):
            batch = rows[order[at : at + 16]]
            numbers = np.unique(hashes(batch))
            chance.add(batch, sketch.add(numbers), len(numbers))
        return chance.share(sketch.size)

    small = rng.integers(0, 6, (1000, 5)).astype(np.float32)  # about one in eight equals another one
    epochs = np.concatenate([rng.permutation(1000) for _ in range(3)])
    assert 0.08 < share(small, epochs) < 0.3
    assert share(small + np.float32(0.5), epochs) == 0.0  # no whole numbers
    wide = rng.integers(0, 256, (1000, 60)).astype(np.float32)
    assert share(wide, epochs) == 0.0
    assert share(wide, rng.integers(0, 1000, 3000)) == 0.0  # drawn with replacement: nothing is known
