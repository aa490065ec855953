"""Two tasks on one trunk of which one drowns the other, and the remedy: trained with, it lets both be learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import Tensor, nn

if TYPE_CHECKING:
    from neuraldbg import Diagnosis

STEPS = 400
PLAIN = "loss = loss_1 + loss_2"


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.age, self.member = nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(x)
        return self.age(h).squeeze(1), self.member(h).squeeze(1)


def train(*, scale: float = 15.0, centre: float = 55.0, chance: bool = False, code: str = PLAIN, weight: float = 1.0):
    """Train both heads. Return the diagnosis and the accuracy of the second."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 20, generator=rng)
    first, second = torch.randn(20, generator=rng), torch.randn(20, generator=rng)
    age = centre + scale * (torch.tanh(x @ first / 4) + 0.2 * torch.randn(3000, generator=rng))
    member = ((torch.randn(3000, generator=rng) if chance else x @ second) > 0).float()
    made: list[Heads] = []

    def run() -> None:
        torch.manual_seed(0)
        model = Heads()
        made.append(model)
        optimizer = torch.optim.Adam(model.parameters(), 2e-3)
        pasted = compile(code, "<remedy>", "exec")
        for _ in range(STEPS):
            rows = torch.randint(0, 2400, (32,))
            years, scores = model(x[rows])
            names = {"target": age[rows]}
            if "target" in code:
                exec(pasted, names)  # noqa: S102 (the code of the remedy, as a person would paste it)
            terms = [
                weight * F.mse_loss(years, names["target"]),
                F.binary_cross_entropy_with_logits(scores, member[rows]),
            ]
            turned = "loss_1: binarycrossentropy" in code
            names["loss_1"], names["loss_2"] = reversed(terms) if turned else terms
            exec(PLAIN if "target" in code else pasted, names)  # noqa: S102
            optimizer.zero_grad()
            names["loss"].backward()
            optimizer.step()

    found = record(Program("heads", run, "heads", Golden(), "structure"), capture={"allowance_s": 60.0})[1]
    with torch.no_grad():
        right = (made[0](x[2400:])[1] > 0) == (member[2400:] > 0)
    return found, float(right.float().mean())


def causes(found: Diagnosis) -> list[str]:
    return [h.cause for h in found.hypotheses]


@pytest.mark.parametrize(
    ("made", "part"),
    [({}, "target = (target - "), ({"scale": 1.0, "centre": 0.0, "weight": 3000.0}, "* loss_1 + ")],
    ids=["by the units of its targets", "by its weight"],
)
def test_a_drowned_task_is_named_and_its_remedy_lets_it_be_learnt(made, part):
    before, accuracy = train(**made)
    assert accuracy < 0.65
    assert before.verdict == "suspect"
    assert causes(before)[0] == "gradient_conflict", before.summary
    remedy = before.hypotheses[0].remedy
    assert part in remedy.code
    after, cured = train(**made, code=remedy.code)
    assert cured > 0.8
    assert "gradient_conflict" not in causes(after), after.summary


@pytest.mark.parametrize(
    "made",
    [{"scale": 1.0, "centre": 0.0}, {"chance": True}, {"weight": 0.02}],
    ids=["targets of one size", "labels that nothing predicts", "weighed"],
)
def test_other_pairs_of_tasks_are_not_named(made):
    found, _ = train(**made)
    assert "gradient_conflict" not in causes(found), found.summary
