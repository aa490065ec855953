"""What is optimised, and how data flows, read from the autograd graph of real losses."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from torch import nn
from torch.utils.checkpoint import checkpoint


def watch(model: nn.Module, x: torch.Tensor, loss_of: Any, steps: int = 1) -> CapturedRun:
    opt = torch.optim.SGD(model.parameters(), lr=0.01)

    def program() -> None:
        for _ in range(steps):
            opt.zero_grad()
            loss_of(model(x)).backward()
            opt.step()

    return capture_run(program, model)


def term(model: nn.Module, x: torch.Tensor, loss_of: Any) -> dict[str, Any]:
    (fact,) = watch(model, x, loss_of).facts("loss")
    assert len(fact["terms"]) == 1, fact
    return fact["terms"][0]


def head(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes))


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 2, 1, 1, 0, 1])


def test_cross_entropy_and_what_feeds_it() -> None:
    plain = term(head(), X, lambda out: F.cross_entropy(out, LABELS))
    assert (plain["kind"], plain["reduction"], plain["fed_by"], plain["layer"]) == ("cross_entropy", "mean", [], "2")
    assert plain["target_histogram"] == {"0": 2, "1": 3, "2": 1}
    assert (plain["classes"], plain["target_dtype"], plain["normalised"]) == (3, "int64", False)
    assert term(head(), X, lambda out: F.cross_entropy(out.softmax(-1), LABELS))["fed_by"] == ["softmax"]
    inside = nn.Sequential(head(), nn.Softmax(dim=-1))
    assert term(inside, X, lambda out: F.cross_entropy(out, LABELS))["normalised"] is True


SEQUENCES = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
TAGS = torch.randint(3, (6, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("order", "cut"),
    [
        (lambda out: out.view(6, 3, 5), [6, 5, 3]),
        (lambda out: out.transpose(0, 1).reshape(6, 3, 5), [5, 6, 3]),
        (lambda out: (out / 2.0).reshape(6, 3, 5), [6, 5, 3]),
        (lambda out: out.transpose(1, 2), None),
        (lambda out: out.permute(0, 2, 1).contiguous(), None),
        (lambda out: out.unflatten(0, (2, 3)).flatten(0, 1).mT, None),
    ],
)
def test_scores_of_several_positions_in_one_prediction(order: Any, cut: list[int] | None) -> None:
    """A view where a transpose is meant; the loss is a cross entropy of scores (N, C, T) all the same."""
    found = term(head(), SEQUENCES, lambda out: F.cross_entropy(order(out), TAGS))
    assert (found["kind"], found["input_shape"], found["target_shape"]) == ("cross_entropy", [6, 3, 5], [6, 5])
    assert found.get("scattered") == cut


def test_one_softmax_over_positions_and_classes_is_meant() -> None:
    everything = term(head(), SEQUENCES, lambda out: F.cross_entropy(out.flatten(1), torch.arange(6)))
    pointer = term(head(1), SEQUENCES, lambda out: F.cross_entropy(out.squeeze(-1), torch.arange(6) % 5))
    groups = term(
        head(6), SEQUENCES, lambda out: F.cross_entropy(out.view(30, 2, 3).flatten(0, 1), torch.ones(60).long())
    )
    assert not [one for one in (everything, pointer, groups) if "scattered" in one]


@pytest.mark.parametrize(
    ("loss", "kind", "reduction"),
    [
        (lambda out: F.cross_entropy(out, LABELS, reduction="sum"), "cross_entropy", "sum"),
        (lambda out: F.cross_entropy(out, LABELS, reduction="none").sum(), "cross_entropy", "sum"),
        (lambda out: F.cross_entropy(out, F.one_hot(LABELS, 3).float()), "cross_entropy", "sum"),
        (lambda out: F.nll_loss(F.log_softmax(out, -1), LABELS), "cross_entropy", "mean"),
        (lambda out: F.nll_loss(out, LABELS), "nll", "mean"),
        (lambda out: F.mse_loss(out[:, 0], X[:, 0]), "mse", "mean"),
        (lambda out: F.mse_loss(out[:, 0], X[:, 0], reduction="sum"), "mse", "sum"),
        (lambda out: F.mse_loss(out, X[:, :3], reduction="none").sum(1).mean(), "mse", "mixed"),
        (lambda out: ((out - X[:, :3]) ** 2).mean(1).sum(), "squared_error", "mixed"),
        (lambda out: ((out[:, 0] - X[:, 0]) ** 2).mean(), "squared_error", "mean"),
        (lambda out: (out[:, 0] - X[:, 0]).abs().mean(), "l1", "mean"),
        (lambda out: F.smooth_l1_loss(out[:, 0], X[:, 0]), "smooth_l1", "mean"),
        (lambda out: F.huber_loss(out[:, 0], X[:, 0]), "huber", "mean"),
        (lambda out: F.binary_cross_entropy_with_logits(out[:, 0], (LABELS > 0).float()), "bce_with_logits", "mean"),
        (lambda out: F.binary_cross_entropy(out[:, 0].sigmoid(), (LABELS > 0).float()), "bce", "mean"),
    ],
)
def test_kinds_and_reductions(loss: Any, kind: str, reduction: str) -> None:
    found = term(head(), X, loss)
    assert (found["kind"], found["reduction"]) == (kind, reduction)


@pytest.mark.parametrize("written", ["F.mse_loss", "by hand"])
def test_a_broadcast_target_is_seen_and_a_fitting_one_is_not(written: str) -> None:
    target = X[:, 0]

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(out, y) if written == "F.mse_loss" else ((out - y) ** 2).mean()

    warned = pytest.warns(UserWarning, match="target size") if written == "F.mse_loss" else contextlib.nullcontext()
    with warned:
        wrong = term(head(1), X, lambda out: loss(out, target))
    assert wrong["broadcast"] is True
    assert wrong["operand_shapes"] == [[6, 1], [6]]
    right = term(head(1), X, lambda out: loss(out, target[:, None]))
    assert right["broadcast"] is False
    scalar = term(head(1), X, lambda out: ((out - torch.tensor(0.5)) ** 2).mean())
    assert scalar["broadcast"] is False


def test_target_statistics() -> None:
    target = torch.tensor([100.0, 300.0, 500.0, 700.0, 900.0, 1100.0])
    found = term(head(1), X, lambda out: F.mse_loss(out[:, 0], target))["target"]
    assert found["mean"] == pytest.approx(600)
    assert found["std"] == pytest.approx(float(target.std(unbiased=False)))
    assert (found["min"], found["max"], found["nonfinite"]) == (100, 1100, 0)


def test_edges_follow_the_data_and_not_the_order_of_calls() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late, self.early, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            side = self.late(x)  # called first, and yet it also feeds only the end
            h = F.relu(self.early(x))
            return self.out(h + torch.tanh(side))

    seen = watch(Branches(), X, lambda out: out.square().mean())
    flows = {(e.source, e.target): e.ops for e in seen.layout.edges}
    assert set(flows) == {("late", "out"), ("early", "out"), ("out", "loss")}
    assert seen.layout.following_ops["early"] == {"relu"}
    assert seen.layout.following_ops["late"] == {"tanh"}
    assert seen.layout.depth["out"] > max(seen.layout.depth["early"], seen.layout.depth["late"])


def test_residual_and_checkpointed_models_keep_their_edges() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.fc(self.norm(x))

    model = nn.Sequential(nn.Linear(4, 4), Block(), Block(), nn.Linear(4, 2))
    depth = watch(model, X, lambda out: out.square().mean()).layout.depth
    assert depth["0"] < depth["1.norm"] < depth["1.fc"] < depth["1"] < depth["2.norm"] < depth["2.fc"] < depth["3"]


@pytest.mark.parametrize(
    ("op", "site", "stat", "value"),
    [
        (lambda out: torch.log(F.relu(out)).mean(), "log.input", "min", 0.0),
        (lambda out: torch.sqrt(F.relu(out)).sum(), "sqrt.result", "min", 0.0),
        (lambda out: (1 / F.relu(out)).mean(), "reciprocal.result", "nonfinite", None),
        (lambda out: (out / F.relu(out)).mean(), "div.divisor", "min", 0.0),
        (lambda out: torch.exp(out * 1e4).mean(), "exp.result", "nonfinite", None),
    ],
)
def test_operands_of_risky_operations_are_read(op: Any, site: str, stat: str, value: float | None) -> None:
    seen = watch(head(), X, op)
    assert seen.seen("op", "", name=site)
    found = seen.stat("op", "", stat, name=site)
    assert found == value if value is not None else found > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_operands_inside_a_checkpoint_are_left_alone(reentrant: bool) -> None:
    """To look at a packed tensor would run the forward again."""
    runs = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def inner(self, x: torch.Tensor) -> torch.Tensor:
            runs.append(1)
            return torch.log(self.b(x).square() + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, self.a(x), use_reentrant=reentrant)

    seen = watch(Model(), X, lambda out: out.mean())
    assert len(runs) == 2
    assert seen.scalars("loss")[0] > 0
    assert seen.capture.coverage()["errors"] == 0
    if not reentrant:
        assert any("packed" in note for note in seen.capture.coverage()["notes"])


def test_a_square_is_no_risk() -> None:
    seen = watch(head(), X, lambda out: (out**2).mean())
    assert [site.name for site in seen.layout.sites if site.kind == "op"] == []


@pytest.mark.parametrize(("factor", "scale"), [(1024.0, 1024.0), (64.0, 1.0), (1000.0, 1.0), (0.5, 1.0)])
def test_a_scale_for_half_precision_by_hand_is_no_part_of_the_loss(factor: float, scale: float) -> None:
    model = head()
    with torch.no_grad():
        value = float(F.cross_entropy(model(X), LABELS))
    seen = watch(model, X, lambda out: F.cross_entropy(out, LABELS) * factor).scalars("loss")[0]
    assert seen == pytest.approx(value * factor / scale, rel=1e-5)
