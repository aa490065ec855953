"""What the readers of norms, units, dropout, attention, outputs, tokens and operations say of real trainings."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from torch import nn


def train(model, make, loss_fn=F.cross_entropy, steps=5, lr=1e-2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr)
    for _ in range(steps):
        x, y = make()
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()


def vectors(n=16, width=8, classes=4):
    return lambda: (torch.randn(n, width), torch.randint(classes, (n,)))


def seen(model, make, key, **more):
    return capture_run(lambda: train(model, make, **more), model).facts(key)


# --- norms -----------------------------------------------------------------------------------------------------------


def images():
    return 2 + 3 * torch.randn(6, 3, 5, 5), torch.randint(4, (6,))


def bn_net(momentum=0.1):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)
    )


@pytest.mark.parametrize("momentum", [0.1, 0.99, None])
def test_statistics_of_a_batch_follow_from_the_buffers(momentum):
    torch.manual_seed(0)
    model = bn_net(momentum)
    told: list[tuple[float, float]] = []

    def look(module, args):
        x, old_mean, old_var = args[0], module.running_mean, module.running_var
        gap = ((x.mean((0, 2, 3)) - old_mean).abs() / old_var.sqrt()).median()
        told.append((float(gap.detach()), float((x.detach().var((0, 2, 3)) / old_var).log().abs().median())))

    handle = model[1].register_forward_pre_hook(look)
    facts = seen(model, images, "norms")
    handle.remove()
    for fact in facts:
        entry = fact["layers"][0]
        assert (entry["layer"], entry["momentum"], entry["batch"], entry["elements"]) == ("1", momentum, 6, 54)
        assert entry["mean_gap"] == pytest.approx(told[fact["step"]][0], rel=1e-2, abs=1e-3)
        assert entry["var_gap"] == pytest.approx(told[fact["step"]][1], rel=1e-2, abs=1e-2)
    assert facts[0]["layers"][0]["fresh"]
    assert facts[-1]["layers"][0]["moved"]


def test_a_frozen_part_is_told_from_a_trained_one():
    model = bn_net()
    model[:2].requires_grad_(False)
    frozen = seen(model, images, "norms")[-1]["layers"][0]
    assert (frozen["frozen"], frozen["still"], frozen["training"], frozen["moved"]) == (True, True, True, True)
    trained = seen(bn_net(), images, "norms")[-1]["layers"][0]
    assert (trained["frozen"], trained["still"]) == (False, False)


def test_freezing_after_training_begins_anew():
    model = bn_net()

    def program():
        train(model, images, steps=3)
        model[:2].requires_grad_(False)
        train(model, images, steps=6)

    entry = capture_run(program, model).facts("norms")[-1]["layers"][0]
    assert (entry["frozen"], entry["still"], entry["fresh"]) == (True, True, False)


def test_hooks_are_there_only_during_a_pass():
    model = bn_net()
    counts = []

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(4):
            x, y = images()
            counts.append(len(model[1]._forward_pre_hooks))
            F.cross_entropy(model(x), y).backward()
            counts.append(len(model[1]._forward_pre_hooks))
            copy.deepcopy(model)
            optimizer.step()

    capture_run(program, model)
    assert counts == [0] * 8


def test_a_pass_that_raises_leaves_no_hook():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.broken = bn_net(), False

        def forward(self, x):
            out = self.net(x)
            if self.broken:
                raise ValueError("user error")
            return out

    model = Breaks()

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(3):
            x, y = images()
            model.broken = step == 1
            try:
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            except ValueError:
                pass

    capture_run(program, model)
    assert not model.net[1]._forward_pre_hooks
    assert not model.net[1]._forward_hooks


# --- symmetry --------------------------------------------------------------------------------------------------------


def test_copies_are_followed_and_random_weights_are_not_listed():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    assert seen(model, vectors(), "symmetry") == []
    for p in model.parameters():
        nn.init.constant_(p, 0.1)
    facts = seen(model, vectors(), "symmetry")
    first, last = facts[0]["layers"], facts[-1]["layers"]
    assert [(e["name"], e["spread"] < 1e-5, e["gradient"] < 1e-4) for e in first] == [
        ("0.weight", True, True),
        ("2.weight", True, False),
    ]
    assert last[0]["spread"] < 1e-5
    assert last[1]["spread"] > 1e-3


def test_zeros_that_get_no_gradient():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for p in model.parameters():
        nn.init.zeros_(p)
    entries = seen(model, vectors(), "symmetry")[-1]["layers"]
    assert [(e["zero"], e["gradient_zero"]) for e in entries] == [(True, True), (True, True)]


# --- dropout ---------------------------------------------------------------------------------------------------------


class Dropped(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.a, self.b, self.p = nn.Linear(8, 64), nn.Linear(64, 4), p

    def forward(self, x):
        gate = torch.sigmoid(self.a(x))
        return self.b(F.dropout(F.relu(self.a(x)) * gate, self.p, self.training))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_functional_dropout_is_read_from_its_mask(p):
    facts = seen(Dropped(p), vectors(), "dropout")
    assert facts[0]["places"] == [{"before": "b", "p": pytest.approx(p, abs=1e-3)}]


def test_products_that_are_no_dropout():
    class Products(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 64)
            self.b = nn.Linear(64, 4)

        def forward(self, x):
            h = self.a(x)
            h = h * (torch.rand_like(h) > 0.5)  # a mask that is not scaled
            h = h * (torch.rand(len(x), 1) > 0.2).float() / 0.8  # stochastic depth
            return self.b(h * 2.0)

    assert seen(Products(), vectors(), "dropout") == []


# --- attention and tokens --------------------------------------------------------------------------------------------


class Attends(nn.Module):
    def __init__(self, how, scale=1.0):
        super().__init__()
        self.qkv, self.out, self.how, self.scale = nn.Linear(16, 48), nn.Linear(16, 4), how, scale
        self.weights = None

    def forward(self, x):
        q, k, v = (part.view(len(x), -1, 2, 8).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        q = q * self.scale
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(~causal, -torch.inf)
        self.weights = scores.softmax(-1)
        fused = self.how == "fused"
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True) if fused else self.weights @ v
        return self.out(mixed.transpose(1, 2).flatten(2).mean(1))


def sequences():
    return torch.randn(4, 12, 16), torch.randint(4, (4,))


@pytest.mark.parametrize("how", ["fused", "plain"])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_entropy_of_attention_is_that_of_its_weights(how, scale):
    torch.manual_seed(1)
    model = Attends(how, scale)
    place = seen(model, sequences, "attention", steps=1)[0]["places"][0]
    weights = model.weights[0].detach()  # of the only step, first sample: (heads, queries, keys)
    entropy = -(weights * weights.clamp_min(1e-38).log()).sum(-1)
    allowed = torch.arange(1, 13)
    expected = (entropy[:, 3:] / allowed[3:].log()).mean()
    assert place["entropy"] == pytest.approx(float(expected), abs=1e-3)
    assert (place["layer"], place["heads"], place["keys"]) == ("out", 2, 12)
    assert (place["logit"] is None) == (how == "plain")
    assert (place["low"] > 0.4) == (scale > 1)


def test_a_softmax_over_classes_is_no_attention():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 9)

        def forward(self, x):
            return self.fc(x).softmax(-1).mean(1)[:, :4]

    assert seen(Tagger(), sequences, "attention") == []


def test_multihead_attention_of_torch_is_seen():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mha, self.fc = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 4)

        def forward(self, x):
            return self.fc(self.mha(x, x, x)[0].mean(1))

    assert seen(Net(), sequences, "attention")[0]["places"][0]["keys"] == 12


def test_cosine_between_positions_block_by_block():
    class Block(nn.Module):
        def __init__(self, same):
            super().__init__()
            self.fc, self.same = nn.Linear(16, 16), same

        def forward(self, x):
            x = self.fc(x)
            return x.mean(1, keepdim=True).expand_as(x) if self.same else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.fc = nn.ModuleList([Block(False), Block(True)]), nn.Linear(16, 4)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.fc(x[:, 0])

    layers = seen(Net(), sequences, "tokens")[0]["layers"]
    assert [entry["layer"] for entry in layers] == ["", "blocks.0", "blocks.1"]
    assert abs(layers[0]["cosine"]) < 0.2
    assert layers[2]["cosine"] == pytest.approx(1.0, abs=1e-4)


# --- outputs and operations ------------------------------------------------------------------------------------------


def test_variety_of_outputs_and_log_z():
    model = nn.Linear(8, 4)
    batches = []

    def make():
        x, y = vectors()()
        batches.append(x)
        return x, y

    with torch.no_grad():
        model.bias += 30
    before = copy.deepcopy(model)
    fact = seen(model, make, "outputs")[0]
    out, given = fact["outputs"][0], fact["inputs"][0]
    with torch.no_grad():
        logits = before(batches[0])
    assert out["log_z"] == pytest.approx(float(logits.logsumexp(-1).mean()), rel=1e-3)
    assert out["across"] == pytest.approx(float(logits.var(0, unbiased=False).mean().sqrt()), rel=1e-3)
    assert given["scale"] == pytest.approx(float(batches[0].square().mean().sqrt()), rel=1e-3)
    assert out["alike"] > 0.99 > given["alike"]


def test_what_goes_into_a_critic_of_flat_scores_is_read():
    class Critic(nn.Linear):
        def forward(self, x):
            return super().forward(x).view(-1)

    model = Critic(8, 1)

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        F.binary_cross_entropy_with_logits(model(torch.randn(32, 8)), torch.ones(32)).backward()
        optimizer.step()

    fact = capture_run(program, model).facts("outputs")[0]
    assert (fact["outputs"], fact["batch"], fact["inputs"][0]["shape"]) == ([], 32, [32, 8])


@pytest.mark.parametrize("penalty", [False, True])
def test_the_pull_on_scores_is_that_of_their_gradients(penalty):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    heard: list[list[torch.Tensor]] = []

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            x, mixed = torch.randn(32, 8, requires_grad=penalty), torch.randint(2, (32, 1)).float()
            scores = [model(x), model(torch.randn(32, 8))]
            heard.append(scores)
            loss = F.binary_cross_entropy_with_logits(scores[0], mixed)
            loss = loss + F.binary_cross_entropy_with_logits(scores[1], torch.zeros(32, 1))
            if penalty:
                (slope,) = torch.autograd.grad(scores[0].sum(), x, create_graph=True)
                loss = loss + slope.square().sum()
            for score in scores:
                score.retain_grad()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    facts = capture_run(program, model).facts("outputs")
    expected = [float(-s.grad.sum() / s.grad.abs().sum()) for pair in heard for s in pair]
    assert [fact["pull"] for fact in facts] == pytest.approx(expected, abs=1e-3)
    assert [fact["pull"] for fact in facts[1::2]] == pytest.approx([-1.0] * 3)


def test_a_model_of_several_scores_has_no_pull():
    assert "pull" not in seen(nn.Linear(8, 4), vectors(), "outputs")[0]


def test_an_agent_that_calls_its_policy_often_is_read_a_few_times():
    model = nn.Linear(8, 4)

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(2):
            loss = sum(model(torch.randn(8, 8)).square().mean() for _ in range(50))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert len(capture_run(program, model).facts("outputs")) <= 8


def test_every_path_between_layers_is_told():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            h = self.a(x)
            return self.b(h + F.gelu(h))

    into = seen(Net(), vectors(), "operations")[-1]["into"]
    assert into == {"a": ["addmm"], "b": ["add", "addmm", "gelu"]} or "gelu" in into["b"]


def test_training_is_the_same_bit_for_bit():
    def program(model):
        torch.manual_seed(3)
        train(model, sequences, steps=6)
        return [p.detach().clone() for p in model.parameters()], torch.rand(1)

    torch.manual_seed(0)
    bare = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Flatten(), nn.BatchNorm1d(192),
                         nn.Dropout(0.3), nn.Linear(192, 4))  # fmt: skip
    watched = copy.deepcopy(bare)
    weights, draw = program(bare)
    kept = []
    capture_run(lambda: kept.append(program(watched)), watched)
    assert all(torch.equal(a, b) for a, b in zip(weights, kept[0][0], strict=True))
    assert torch.equal(draw, kept[0][1])
    assert torch.equal(bare[2].running_mean, watched[2].running_mean)
