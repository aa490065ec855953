"""Contracts of torch's functions: each is broken in a real training, and kept in its sound twin."""

from __future__ import annotations

import ast
import contextlib
import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributions, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.capture.contracts import CONTRACTS
from neuraldbg.capture.contracts.contract import DOCS
from neuraldbg.capture.contracts.nodes import CHECKS, link
from neuraldbg.explain.evidence.contract_rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable

N, STEPS = 24, 12


def broken(loss: Any, width: int = 6, steps: int = STEPS) -> tuple[dict[str, Any], ...]:
    """Train a layer with a loss of its output, shape (N, width), and return the broken contracts."""
    torch.manual_seed(0)
    net = nn.Linear(5, width)
    opt = torch.optim.SGD(net.parameters(), 0.01)
    with NeuralDbg(net, probes=False) as dbg:
        for _ in range(steps):
            opt.zero_grad()
            loss(net(torch.randn(N, 5))).backward()
            opt.step()
    facts = dbg.record().facts_of("contracts")
    return tuple(facts[-1].value["broken"]) if facts else ()


def pairs(call: Callable[..., torch.Tensor], target: torch.Tensor) -> Any:
    return lambda x: call(x, x.roll(1, 0), target)


ZERO_ONE = (torch.arange(N) % 2).float()
SEGMENTS = (torch.arange(N) >= N // 2).long()
SIGNS = 2 * ZERO_ONE - 1
MASK = (torch.arange(6) < 4).float()


def ctc(x: torch.Tensor, *, normalised: bool = True, low: int = 1, long: int = 3) -> torch.Tensor:
    scores = x.view(8, 3, 6)
    scores = scores.log_softmax(-1) if normalised else scores
    targets = torch.arange(3 * long).view(3, long) % 5 + low
    lengths = torch.full((3,), 8), torch.full((3,), long)
    return F.ctc_loss(scores, targets, *lengths, zero_infinity=True)


def joined(x: torch.Tensor, low: int) -> torch.Tensor:
    lengths = torch.full((3,), 8), torch.full((3,), 3)
    return F.ctc_loss(x.view(8, 3, 6).log_softmax(-1), torch.arange(9) % 5 + low, *lengths, zero_infinity=True)


def grid(x: torch.Tensor, scale: float, shift: float) -> torch.Tensor:
    places = torch.linspace(0, 1, 2 * N).view(1, N, 1, 2) * scale + shift
    return F.grid_sample(x.view(1, 1, N, 6), places, align_corners=True).sum()


def attended(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    q = x.view(2, 12, 3, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, mask).sum()


def crossed(x: torch.Tensor, causal: bool) -> torch.Tensor:
    q = x.view(2, 12, 3, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q[:, :, 4:], q, q, is_causal=causal).sum()


def looked(x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    h = x.view(2, 12, 6)
    return ((h @ h.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ h).sum()


def no_masks(x: torch.Tensor) -> list[torch.Tensor]:
    """Scores that a condition changes, and does not exclude: a leaky ReLU, a cap, another score that is computed."""
    return [
        torch.where(MASK == 0, torch.tensor(-1e9), x), torch.where(x > 0, x, 0.2 * x), torch.where(x > 0, x, 0.0),
        x.masked_fill(x > 0.5, 0.5), torch.where(MASK > 0, x, x.mean()),
    ]  # fmt: skip


def averaged(x: torch.Tensor, dim: int) -> torch.Tensor:
    h = x.view(2, 12, 6)
    return (F.dropout((h @ h.mT).softmax(dim), 0.1) @ h.square()).sum()


TOKENS = torch.arange(300) % N
HALF = (torch.arange(300) % 2).long()
BOTH = torch.ones(12, 12).tril()
BROKEN: dict[str, tuple[str, Any, Any]] = {
    "cosine": ("signs", pairs(F.cosine_embedding_loss, ZERO_ONE), pairs(F.cosine_embedding_loss, SIGNS)),
    "ranking": (
        "signs",
        lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], ZERO_ONE),
        lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], SIGNS),
    ),
    "hinge": (
        "signs",
        lambda x: F.hinge_embedding_loss(x[:, 0], ZERO_ONE),
        lambda x: F.hinge_embedding_loss(x[:, 0], SIGNS),
    ),
    "soft margin": (
        "signs",
        lambda x: F.soft_margin_loss(x[:, 0], ZERO_ONE),
        lambda x: F.soft_margin_loss(x[:, 0], SIGNS),
    ),
    "multilabel": (
        "multi_hot",
        lambda x: F.multilabel_margin_loss(x, (torch.arange(6 * N) % 2).view(N, 6)),
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1, 1, 1]]).repeat(N, 1)),
    ),
    "triplet": (
        "same_pair",
        lambda x: F.triplet_margin_loss(x, x.clone(), x.roll(1, 0)),
        lambda x: F.triplet_margin_loss(x, x.roll(2, 0), x.roll(1, 0)),
    ),
    "ctc of scores": ("log_probabilities", lambda x: ctc(x, normalised=False), ctc),
    "ctc with blanks": ("blank_in_targets", lambda x: ctc(x, low=0), ctc),
    "ctc of long targets": ("target_longer", lambda x: ctc(x, long=9), lambda x: ctc(x, long=4)),
    "poisson": (
        "negative_counts",
        lambda x: F.poisson_nll_loss(x[:, 0], torch.arange(N) - 3.0),
        lambda x: F.poisson_nll_loss(x[:, 0], torch.arange(N) * 1.0),
    ),
    "poisson of a rate": (
        "rate_as_log",
        lambda x: F.poisson_nll_loss(F.softplus(x[:, 0]), torch.arange(N) * 1.0),
        lambda x: F.poisson_nll_loss(F.softplus(x[:, 0]), torch.arange(N) * 1.0, log_input=False),
    ),
    "ctc of joined targets with blanks": ("blank_in_targets", lambda x: joined(x, 0), lambda x: joined(x, 1)),
    "kl of logarithms": (
        "log_target",
        lambda x: F.kl_div(x.log_softmax(-1), x.detach().log_softmax(-1), reduction="batchmean"),
        lambda x: F.kl_div(x.log_softmax(-1), x.detach().roll(1, 0).softmax(-1), reduction="batchmean"),
    ),
    "kl of probabilities": (
        "plain_target",
        lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="sum", log_target=True),
        lambda x: F.kl_div(x.log_softmax(-1), x.detach().roll(2, 0).log_softmax(-1), reduction="sum", log_target=True),
    ),
    "kl of scores": (
        "no_probabilities",
        lambda x: F.kl_div(x.log_softmax(-1), x.detach() * 9, reduction="batchmean"),
        lambda x: F.kl_div(x.log_softmax(-1), (x.detach() * 9).softmax(-1), reduction="batchmean"),
    ),
    "squares": (
        "compared_with_itself",
        lambda x: F.mse_loss(x, x.detach()) + F.l1_loss(x, x.detach().clone()) + x.mean(),
        lambda x: F.mse_loss(x, x.detach().roll(1, 0)) + x.mean(),
    ),
    "mask of no key": (
        "row_without_key",
        lambda x: attended(x, ~BOTH.bool()).nan_to_num(),
        lambda x: attended(x, BOTH.bool()) + attended(x, torch.where(BOTH > 0, 0.0, -torch.inf)),
    ),
    "bounds": (
        "bounds_swapped",
        lambda x: (x.clamp(1.0, -1.0) + x).mean(),
        lambda x: (x.clamp(-1.0, 1.0) + x).mean(),
    ),
    "one-hot ids": (
        "one_hot_as_ids",
        lambda x: F.embedding(torch.eye(N).long(), x).sum(),
        lambda x: F.embedding(torch.arange(N), x).sum(),
    ),
    "ids of a mask": (
        "mask_as_ids",
        lambda x: F.embedding(HALF, x).sum(),
        lambda x: F.embedding(TOKENS, x).sum(),
    ),
    "grid of pixels": ("grid_units", lambda x: grid(x, 24, 0), lambda x: grid(x, 2, -1)),
    "grid from nought": ("grid_from_nought", lambda x: grid(x, 1, 0), lambda x: grid(x, 2, -1)),
    "scaled ids": (
        "ids_between",
        lambda x: x.sum() + F.interpolate((torch.arange(256) % 4).float().view(1, 1, 16, 16), 8, mode="bilinear").sum(),
        lambda x: x.sum() + F.interpolate(torch.rand(1, 1, 16, 16), 8, mode="bilinear").sum(),
    ),
    "layer norm": ("one_value", lambda x: F.layer_norm(x[..., None], [1]).sum(), lambda x: F.layer_norm(x, [6]).sum()),
    "group norm": ("one_value", lambda x: F.group_norm(x, 6).sum(), lambda x: F.group_norm(x, 2).sum()),
    "similarity": (
        "one_element",
        lambda x: F.cosine_similarity(x[:, None], x.roll(1, 0)[:, None], dim=1).sum(),
        lambda x: F.cosine_similarity(x, x.roll(1, 0), dim=1).sum(),
    ),
    "normalize": (
        "one_element",
        lambda x: F.normalize(x[:, None], dim=1).sum(),
        lambda x: F.normalize(x, dim=1).sum(),
    ),
    "softmax of one": (
        "one_score",
        lambda x: (x[..., None].softmax(-1) * x[..., None]).sum(),
        lambda x: (x.softmax(-1) * x).sum(),
    ),
    "attention": ("added_mask", lambda x: attended(x, BOTH), lambda x: attended(x, BOTH.bool())),
    "scores times a mask": (
        "scores_times_mask",
        lambda x: ((x * MASK).softmax(-1) * x).sum(),
        lambda x: (x.masked_fill(MASK == 0, float("-inf")).softmax(-1) * x).sum(),
    ),
    "mask as index": (
        "mask_as_index",
        lambda x: x[ZERO_ONE.long()].sum(),
        lambda x: x[ZERO_ONE.bool()].sum() + x[torch.arange(N) // 2].sum(),
    ),
    "policy": (
        "probabilities_as_logits",
        lambda x: distributions.Categorical(logits=x.softmax(-1)).entropy().mean(),
        lambda x: (
            distributions.Categorical(logits=x).entropy() + distributions.Categorical(x.softmax(-1)).entropy()
        ).mean(),
    ),
    "coin": (
        "probabilities_as_logits",
        lambda x: distributions.Bernoulli(logits=x.sigmoid()).entropy().mean(),
        lambda x: distributions.Bernoulli(logits=x).entropy().mean(),
    ),
    "density": (
        "outer_value",
        lambda x: distributions.Normal(x[:, :1], 1.0).log_prob(torch.zeros(N)).mean(),
        lambda x: distributions.Normal(x[:, 0], 1.0).log_prob(torch.zeros(N)).mean(),
    ),
    "code": (
        "drawn_without_gradient",
        lambda x: distributions.Normal(x, 1.0).sample().square().mean() + x.mean(),
        lambda x: distributions.Normal(x, 1.0).rsample().square().mean() + distributions.Normal(0.0, 1.0).sample(),
    ),
    "actions": (
        "drawn_without_gradient",
        lambda x: distributions.Independent(distributions.Normal(x, 1.0), 1).sample().square().mean() + x.mean(),
        lambda x: (law := distributions.Normal(x, 1.0)).log_prob(law.sample()).mean(),
    ),
    "other laws": (
        "drawn_without_gradient",
        lambda x: distributions.Laplace(x, 1.0).sample().square().mean() + x.mean(),
        lambda x: (law := distributions.Laplace(x, 1.0)).log_prob(law.sample()).mean() + law.rsample().mean(),
    ),
    "mask that hides nothing": (
        "masked_has_weight",
        lambda x: (x.masked_fill(MASK == 0, 1e-9).softmax(-1) * x).sum(),
        lambda x: (x.masked_fill(MASK == 0, -1e9).softmax(-1) * x).sum(),
    ),
    "where that hides nothing": (
        "masked_has_weight",
        lambda x: (torch.where(MASK > 0, x, torch.tensor(0.0)).softmax(-1) * x).sum(),
        lambda x: sum((each.softmax(-1) * x).sum() for each in no_masks(x)),
    ),
    "mask of the past": (
        "past_hidden",
        lambda x: looked(x, BOTH.tril(-1).bool()),
        lambda x: looked(x, BOTH.mT.triu(1).bool()),
    ),
    "fused mask of the past": (
        "past_hidden",
        lambda x: attended(x, BOTH.mT.bool()) + attended(x, torch.where(BOTH.mT > 0, 0.0, -torch.inf)),
        lambda x: attended(x, BOTH.bool()),
    ),
    "causal attention to more keys": (
        "causal_of_two_lengths",
        lambda x: crossed(x, causal=True),
        lambda x: crossed(x, causal=False) + attended(x, None),
    ),
    "heads": (
        "heads_as_length",
        lambda x: F.scaled_dot_product_attention(*[x.view(2, 12, 6).view(2, 12, 3, 2)] * 3).sum(),
        lambda x: F.scaled_dot_product_attention(*[x.view(2, 12, 6).view(2, 12, 3, 2).transpose(1, 2)] * 3).sum(),
    ),
    "softmax over queries": (
        "softmax_over_queries",
        lambda x: averaged(x, dim=1),
        lambda x: averaged(x, dim=-1) + (x.view(2, 12, 6).mT.softmax(1) @ x.view(2, 12, 6)).sum(),
    ),
    "spread": (
        "spread_of_one",
        lambda x: (x[:, None].var(1).nan_to_num() + x[:, None].std(1).nan_to_num()).sum() + x.sum(),
        lambda x: x.std(1).sum() + x.var(0).sum() + x.var() + x[:, None].var(1, correction=0).sum(),
    ),
    "mask as selection": (
        "mask_as_index",
        lambda x: (2 * x).index_select(0, ZERO_ONE.long()).sum(),
        lambda x: (2 * x).index_select(0, torch.arange(N) // 2).sum() + x.index_select(0, SEGMENTS).sum(),
    ),
    "difference": (
        "less_itself",
        lambda x: ((y := 2 * x) - y).square().sum() + x.sum(),
        lambda x: ((y := 2 * x) - y.roll(1, 0)).square().sum() + (z := 3 * x.sum()) - z,
    ),
    "advantages": (
        "outer_product",
        lambda x: (x[:, 0] * torch.ones(N, 1)).mean(),
        lambda x: (x[:, 0][:, None] * x[:, 0]).mean() + (x * torch.ones(N, 1)).mean(),
    ),
    "weight": (
        "times_nought",
        lambda x: (0.0 * x.square()).mean() + x.mean(),
        lambda x: (0.5 * x.square()).mean() + (x * torch.zeros(6)).mean(),
    ),
    "term": (
        "without_graph",
        lambda x: F.mse_loss(torch.zeros(3), torch.ones(3)) * x.square().mean(),
        lambda x: F.mse_loss(x, x.detach().roll(1, 0)) * x.square().mean(),
    ),
    "kl of a teacher with itself": (
        "compared_with_itself",
        lambda x: F.kl_div(x.log_softmax(-1), x.log_softmax(-1), reduction="sum", log_target=True) + x.mean(),
        lambda x: F.kl_div(x.log_softmax(-1), x.detach().roll(1, 0).log_softmax(-1), reduction="sum", log_target=True),
    ),
    "angles": (
        "all_clamped",
        lambda x: (x.repeat(8, 1) + 40).clamp(-1, 1).sum(),
        lambda x: x.repeat(8, 1).clamp(-1, 1).square().sum(),
    ),
    "cosines": (
        "bounded_scores",
        lambda x: F.cross_entropy(0.1 * F.normalize(x) @ F.normalize(x + 1).T, torch.arange(24)),
        lambda x: F.cross_entropy(F.normalize(x) @ F.normalize(x + 1).T / 0.1, torch.arange(24)),
    ),
    "summand": (
        "adds_constant",
        lambda x: x.square().mean() + torch.ones(()),
        lambda x: x.square().mean() + x.mean(),
    ),
    "view": (
        "view_moves_axis",
        lambda x: x.view(3, 8, 6).view(8, 3, 6)[0].sum(),
        lambda x: x.view(3, 8, 6).transpose(0, 1)[0].sum() + x.view(3, 48).view(3, 4, 12).sum(),
    ),
}
"""By name: the rule, a loss that breaks it and one that keeps it, of an output of shape (24, 6)."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contract_is_found_and_its_twin_is_not(name):
    rule, wrong, right = BROKEN[name]
    beside = {"adds_constant"} - {rule}  # some of the losses are sums, to have a gradient
    found = [one for one in broken(wrong) if one["rule"] not in beside]
    assert {one["rule"] for one in found} == {rule}, found
    one = found[0]
    assert one["broken"] == one["calls"] >= 4
    assert (one["first"], one["last"] > 0) == (0, True)
    assert [one for one in broken(right) if one["rule"] not in beside] == []


def test_each_rule_is_tried_and_has_words():
    tried = {rule for rule, _, _ in BROKEN.values()}
    alone = {"weights_of_classes", "nothing_loaded", "own_weights", "same_views", "view_moves_axis_perhaps"}  # below
    assert tried | alone == set(RULES)
    for rule in RULES.values():
        ast.parse(rule.code)
        assert rule.text.endswith(".")
        assert not rule.comes.endswith(".")


def test_the_line_that_makes_the_call_is_named():
    found = broken(BROKEN["cosine"][1])
    assert found[0]["place"][0] == __file__
    assert "call(x, x.roll(1, 0), target)" in found[0]["place"][2]


def test_a_rule_that_some_calls_keep_is_counted():
    turns = iter(range(STEPS))

    def loss(x):
        return F.hinge_embedding_loss(x[:, 0], ZERO_ONE if next(turns) < STEPS // 2 else SIGNS)

    (one,) = broken(loss)
    assert 0 < one["broken"] < one["calls"]


@pytest.mark.parametrize(("prefix", "fits"), [("module.", False), ("", True)])
def test_a_state_of_other_names_loads_nothing(prefix, fits):
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    state = {prefix + name: value.clone() for name, value in net.state_dict().items()}
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with NeuralDbg(net, probes=False) as dbg:
        net.load_state_dict(state, strict=False)
        for _ in range(STEPS):
            opt.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            opt.step()
    facts = dbg.record().facts_of("contracts")
    assert bool(facts) != fits
    if facts:
        (one,) = facts[-1].value["broken"]
        assert one["given"].endswith("none of the 4 weights of the model: its names have 'module.' too much in front")


@pytest.mark.parametrize("weights", ["of classes", "of samples"])
def test_a_sampler_has_a_weight_for_each_sample(weights):
    net = nn.Linear(5, 3)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(90, 5), torch.arange(90) % 3
    of = torch.tensor([1.0, 2.0, 3.0])
    sampler = torch.utils.data.WeightedRandomSampler(of if weights == "of classes" else of[y], 90)
    with NeuralDbg(net, probes=False) as dbg:
        for _ in range(4):
            for batch, target in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 30, sampler=sampler):
                opt.zero_grad()
                F.cross_entropy(net(batch), target).backward()
                opt.step()
    facts = dbg.record().facts_of("contracts")
    assert {one["rule"] for fact in facts for one in fact.value["broken"]} == (
        {"weights_of_classes"} if weights == "of classes" else set()
    )


def stacked(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    z = F.normalize(torch.cat([one, other]))
    scores = (z @ z.T / 0.1).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    return F.cross_entropy(scores, torch.arange(len(z)).roll(len(one)))


LIKENESS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "of two": lambda a, b: F.cross_entropy(F.normalize(a) @ F.normalize(b).T / 0.1, torch.arange(len(a))),
    "one below the other": stacked,
}


@pytest.mark.parametrize("how", LIKENESS)
@pytest.mark.parametrize("views", ["the same", "of one pass", "two"])
def test_two_views_that_are_the_same(how, views):
    net = nn.Linear(5, 8)
    opt = torch.optim.SGD(net.parameters(), 0.01)
    with NeuralDbg(net, probes=False) as dbg:
        for _ in range(STEPS):
            x = torch.randn(16, 5)
            one = net(x)
            other = net(x) if views == "the same" else one if views == "of one pass" else net(x + torch.randn(16, 5))
            opt.zero_grad()
            LIKENESS[how](one, other).backward()
            opt.step()
    facts = dbg.record().facts_of("contracts")
    assert {one["rule"] for fact in facts for one in fact.value["broken"]} == (
        {"same_views"} if views == "the same" else set()
    )


@pytest.mark.parametrize("kept", ["itself", "a copy", "a mixture", "its own, and nothing new"])
def test_a_state_that_is_no_copy_brings_nothing_back(kept):
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with NeuralDbg(net, probes=False) as dbg:
        for step in range(300):  # in light steps, too
            opt.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            opt.step()
            if step == 290:
                best = net.state_dict()
                best = copy.deepcopy(best) if kept == "a copy" else best
                best = best | {"0.bias": torch.ones(4)} if kept == "a mixture" else best
                best = dict(best) if kept.startswith("its own") else best
        net.load_state_dict(state_dict=best)
    facts = dbg.record().facts_of("contracts")
    rules = {one["rule"] for fact in facts for one in fact.value["broken"]}
    assert rules == ({"own_weights"} if kept.startswith("it") else set())


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ([3, 8, 6], [8, 3, 6], True),
        ([2, 7, 12], [2, 4, 7, 3], True),  # heads by view alone
        ([2, 5, 16], [5, 32], True),  # both directions of an LSTM
        ([3, 8, 6], [24, 6], False),
        ([24, 6], [3, 8, 6], False),
        ([2, 7, 12], [2, 7, 4, 3], False),
        ([4, 8, 6], [4, 4, 12], False),  # pairs of neighbours are joined
        ([4, 1, 6], [4, 6, 1], False),
        ([6, 6], [36], False),
        ([0, 3], [0, 5], False),  # an empty batch
        ([8, 32, 4, 8], [256, 32], False),  # (length, batch, heads, width) joined, of the same size as the batch
        ([5, 3, 32], [15, 4, 8], False),
    ],
)
def test_an_axis_that_a_view_would_have_to_move(before, after, moves):
    net = nn.Linear(5, torch.Size(before).numel())
    opt = torch.optim.SGD(net.parameters(), 0.01)
    with NeuralDbg(net, probes=False) as dbg:
        for _ in range(4):
            opt.zero_grad()
            net(torch.randn(5)).view(before).mul(1).view(after).square().sum().backward()
            opt.step()
    facts = dbg.record().facts_of("contracts")
    assert bool(facts) == moves
    if facts:
        (one,) = facts[-1].value["broken"]
        assert one["given"].startswith(f"a view of shape {before} as {after}")


def test_a_view_that_may_join_neighbours_is_a_hint():
    (one,) = broken(lambda x: x.view(3, 12, 4).view(3, 4, 12).square().sum())
    assert one["rule"] == "view_moves_axis_perhaps"


def test_results_and_random_numbers_are_the_programs_own():
    def trained(watched: bool) -> list[float]:
        torch.manual_seed(0)
        net = nn.Linear(5, 6)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        dbg = NeuralDbg(net, probes=False) if watched else None
        losses = []
        for _ in range(STEPS):
            x = net(torch.randn(N, 5))
            law = distributions.Categorical(logits=x.softmax(-1))
            loss = pairs(F.cosine_embedding_loss, ZERO_ONE)(x) - law.log_prob(law.sample()).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        if dbg is not None:
            dbg.stop()
        return losses

    assert trained(watched=True) == trained(watched=False)


def test_every_contract_names_a_function_of_torch_and_its_page():
    links = [one.link for one in CONTRACTS] + [link(function) for function, _ in CHECKS.values()]
    assert all(one.startswith(DOCS) and one.endswith(".html") for one in links)
    for one in CONTRACTS:
        found: Any = torch
        for part in one.function.split(".")[1:]:
            found = getattr(found, part, None) or getattr(nn, part)
        assert callable(found)


def test_the_functions_are_torchs_own_after_the_session():
    before = [getattr(one.owner, one.name) for one in CONTRACTS]
    broken(BROKEN["cosine"][1], steps=2)
    assert [getattr(one.owner, one.name) for one in CONTRACTS] == before


COMPILED = {
    "cosine_embedding_loss": lambda x: F.cosine_embedding_loss(x, x.roll(1, 0), SIGNS),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], SIGNS),
    "hinge_embedding_loss": lambda x: F.hinge_embedding_loss(x[:, 0], SIGNS),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x[:, 0], SIGNS),
    "triplet_margin_loss": lambda x: F.triplet_margin_loss(x, x.roll(1, 0), x.roll(2, 0)),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, x.detach().square()),
    "kl_div": lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean"),
    "mse_loss": lambda x: F.mse_loss(x, x.detach().roll(1, 0)) + F.l1_loss(x, x.detach().roll(2, 0)),
    "huber_loss": lambda x: F.huber_loss(x, x.detach().roll(1, 0)) + F.smooth_l1_loss(x, x.detach().roll(2, 0)),
    "interpolate": lambda x: F.interpolate(x.view(1, 1, N, 6), scale_factor=2, mode="bilinear").sum(),
    "grid_sample": lambda x: grid(x, 2, -1),
    "attention": lambda x: attended(x, BOTH.bool()),
    "similarity": lambda x: F.cosine_similarity(x, x.roll(1, 0)).sum() + F.pairwise_distance(x, x.roll(1, 0)).sum(),
    "Normal": lambda x: distributions.Normal(x, 1.0).log_prob(torch.zeros(())).mean(),
    "Categorical": lambda x: distributions.Categorical(logits=x).entropy().mean(),
}
"""Losses in which each function that has a contract is called, but for CTC, which breaks a graph by itself."""


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_loss_is_one_graph_and_the_same_as_without_us(name):
    def losses() -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = nn.Linear(5, 6)
        opt = torch.optim.SGD(net.parameters(), 0.01)
        loss, found = torch.compile(COMPILED[name], backend="eager", fullgraph=True), []
        with NeuralDbg(net, probes=False) if watched else contextlib.nullcontext():
            for _ in range(3):
                opt.zero_grad()
                value = loss(net(torch.randn(N, 5)))
                value.backward()
                opt.step()
                found.append(value.item())
        return found

    watched = False
    bare = losses()
    watched = True
    assert losses() == bare
