"""What programs of strangers showed: the smallest training of each kind, beside a twin that only looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg import Diagnosis


def told(run: Callable[[], None]) -> Diagnosis:
    """Return the diagnosis of a training whose steps are all read, so that the load of the machine does not matter."""
    program = Program(run.__name__, run, "strangers", Golden(), "strangers")
    return record(program, capture={"allowance_s": 60.0})[1]


def causes(found: Diagnosis) -> list[str]:
    return [one.cause for one in found.hypotheses if one.confidence >= 0.5]


def steps(model: nn.Module, opt: Any, losses: Any) -> None:
    for loss in losses:
        opt.zero_grad()
        loss.backward()
        opt.step()


def test_a_model_that_returns_its_mean_loss_does_not_ignore_its_input():
    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Embedding(50, 8, sparse=True), nn.Embedding(50, 8, sparse=True)
            nn.init.zeros_(self.outer.weight)

        def forward(self, c: Tensor, o: Tensor, n: Tensor) -> Tensor:
            v = self.inner(c)
            near, far = (v * self.outer(o)).sum(1), torch.bmm(self.outer(n), v[..., None])[..., 0]
            return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(1)).mean()

    def train() -> None:
        net = SkipGram()
        words = (torch.randint(0, 5, (64,)) for _ in range(150))
        pairs = ((c, c + 5 * torch.randint(0, 9, (64,)), torch.randint(0, 50, (64, 3))) for c in words)
        steps(net, torch.optim.SparseAdam(net.parameters(), 1e-2), (net(*pair) for pair in pairs))

    assert "input_ignored" not in causes(told(train))


def test_a_model_that_averages_and_drops_its_input_is_still_found():
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(torch.ones_like(x)) - 1).square().mean()

    def train() -> None:
        net = Drops()
        data = (torch.randn(32, 6) for _ in range(60))
        steps(net, torch.optim.Adam(net.parameters(), 1e-2), (net(x) for x in data))

    assert causes(told(train))[0] == "input_ignored"


@pytest.mark.parametrize("follow", [True, False])
def test_targets_that_follow_the_predictions_are_not_in_other_units(follow):
    """A value that is learnt from itself grows by and by; units that change surprise the model."""

    def train() -> None:
        net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        for step in range(900):
            x = torch.rand(64, 4)
            with torch.no_grad():
                grown = 1.0 + 1.02 * net(x) if follow else x.sum(1, keepdim=True) * (1000.0 if step > 600 else 1.0)
            loss = F.smooth_l1_loss(net(x), grown)
            opt.zero_grad()
            loss.backward()
            opt.step()

    assert ("unnormalised_targets" in causes(told(train))) != follow


def test_a_curriculum_of_longer_samples_is_no_collapse():
    def train(lengths: tuple[int, ...] = (2, 4, 6)) -> None:
        net = nn.GRU(8, 48, batch_first=True)
        head = nn.Linear(48, 8)
        model = nn.ModuleDict({"net": net, "head": head})
        opt = torch.optim.Adam(model.parameters(), 5e-3)
        for length in lengths:
            for _ in range(250):
                ids = torch.randint(0, 8, (64, length))
                out = head(net(F.one_hot(ids, 8).float())[0][:, -1])
                loss = length * F.cross_entropy(out, ids[:, 0])
                opt.zero_grad()
                loss.backward()
                opt.step()

    assert told(train).verdict in ("healthy", "inconclusive")


@pytest.mark.parametrize("held", [False, True])
def test_a_part_first_used_in_a_later_training_is_held_by_its_optimizer(held):
    def train() -> None:
        body, words, head = nn.Linear(6, 16), nn.Linear(16, 6), nn.Linear(16, 3)
        model = nn.ModuleDict({"body": body, "words": words, "head": head})
        first = torch.optim.Adam([*body.parameters(), *words.parameters()], 3e-3)
        data = [torch.randn(32, 6) for _ in range(150)]
        steps(model, first, (F.mse_loss(words(torch.tanh(body(x))), x) for x in data))
        mine = [*body.parameters(), *(head.parameters() if held else ())]
        second = torch.optim.AdamW(mine, 1e-2)
        steps(model, second, (F.cross_entropy(head(torch.tanh(body(x))), x[:, :3].argmax(1)) for x in data))

    assert ("param_not_in_optimizer" in causes(told(train))) != held


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_second_training_that_does_not_move_is_seen(beta):
    def train() -> None:
        net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        data = [torch.randn(32, 6) for _ in range(200)]
        good = (F.cross_entropy(net(x), x[:, :4].argmax(1)) for x in data)
        steps(net, torch.optim.Adam(net.parameters(), 3e-3), good)
        gain = (beta * (net(x)[:, 0] - net(x)[:, 1]) for x in data)
        steps(net, torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.0), (-F.logsigmoid(g).mean() for g in gain))

    found = told(train)
    if beta:
        assert found.verdict == "healthy"
    else:
        assert (found.verdict, causes(found)[0]) == ("failing", "function_misused")
        assert "0.693 at each of 200 steps" in found.summary


def learns_digits(weight: Tensor) -> None:
    rule = torch.randn(8, 2, generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    data = []
    for _ in range(150):
        x = torch.randn(400, 8)
        y = ((x @ rule)[:, 0] > 2.5).long()
        few = torch.cat([torch.where(y == 0)[0][:48], torch.where(y == 1)[0][:8]])
        data.append((x[few], y[few]))
    steps(net, torch.optim.Adam(net.parameters(), 3e-3), (F.cross_entropy(net(x), y, weight=weight) for x, y in data))


@pytest.mark.parametrize("turned", [True, False])
def test_weights_of_classes_that_grow_with_their_frequency(turned):
    def train() -> None:
        learns_digits(torch.tensor([1.8, 0.3] if turned else [0.3, 1.8]))

    found = told(train)
    if turned:
        assert (found.verdict, causes(found)) == ("suspect", ["class_imbalance"])
        assert "wrong way round" in found.hypotheses[0].sentence
    else:
        assert found.verdict == "healthy", found.summary


@pytest.mark.parametrize("side", ["both", "training", "none"])
def test_columns_that_are_standardised_on_one_side(side):
    def train() -> None:
        means, spreads = torch.arange(1.0, 9.0), torch.linspace(0.3, 0.5, 8)
        x = means + spreads * torch.randn(1200, 8)
        y = ((x - means) / spreads)[:, :3].argmax(1)
        fit = (lambda given: (given - x[:800].mean(0)) / x[:800].std(0)) if side != "none" else (lambda given: given)
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(12):
            net.train()
            steps(net, opt, (F.cross_entropy(net(fit(x[i : i + 32])), y[i : i + 32]) for i in range(0, 800, 32)))
            net.eval()
            with torch.no_grad():
                for i in range(800, 1200, 50):
                    net(fit(x[i : i + 50]) if side != "training" else x[i : i + 50])

    assert ("split_skew" in causes(told(train))) == (side == "training")


class Encoder(nn.Module):
    """Adds codes of places along the batch, or along time."""

    def __init__(self, *, along_batch: bool, noisy: bool = False) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(12, 32), nn.Linear(32, 2)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.along_batch, self.noisy = along_batch, noisy
        self.register_buffer("codes", torch.randn(512, 32, generator=torch.Generator().manual_seed(2)))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x = x + (self.codes[: x.size(0), None] if self.along_batch else self.codes[: x.size(1)])
        x = x + torch.randn_like(x) if self.noisy else x
        return self.head(self.layer(x).mean(1))


@pytest.mark.parametrize(("along_batch", "noisy"), [(True, False), (False, False), (False, True)])
def test_codes_of_places_that_are_added_along_the_batch(along_batch, noisy):
    def train() -> None:
        net = Encoder(along_batch=along_batch, noisy=noisy)
        data = (torch.randint(0, 12, (32, 10)) for _ in range(80))
        steps(
            net,
            torch.optim.Adam(net.parameters(), 1e-3),
            (F.cross_entropy(net(ids), (ids[:, 0] < ids[:, 5]).long()) for ids in data),
        )

    found = told(train)
    assert ("batch_axis_mixup" in causes(found)) == along_batch, found.summary
    if along_batch:
        assert "place in the batch" in found.hypotheses[0].sentence
        assert "test_strangers.py line" in found.hypotheses[0].sentence


@pytest.mark.parametrize("members", ["alike", "apart", "clients"])
def test_members_of_an_ensemble_that_are_trained_alike(members):
    def train() -> None:
        nets = []
        for number in range(3):
            torch.manual_seed(7 if members != "apart" else number)
            nets.append(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
        optimizers = [torch.optim.Adam(net.parameters(), 3e-3) for net in nets]
        data = [torch.randn(32, 6) for _ in range(160)]
        for step, x in enumerate(data):
            for number, (net, opt) in enumerate(zip(nets, optimizers, strict=True)):
                mine = data[(step + 50 * number) % len(data)] if members == "clients" else x
                steps(net, opt, [F.cross_entropy(net(mine), mine[:, :3].argmax(1))])
            if members == "clients" and step % 10 == 9:  # the mean of all is given to each
                with torch.no_grad():
                    for group in zip(*(net.parameters() for net in nets), strict=True):
                        mean = torch.stack(group).mean(0)
                        for p in group:
                            p.copy_(mean)

    found = told(train)
    assert ("members_alike" in causes(found)) == (members == "alike"), found.summary
    if members == "alike":
        assert found.verdict == "suspect"


@pytest.mark.parametrize("kind", ["detached", "whole", "one backward for both"])
def test_a_term_that_reaches_another_optimizer_alone(kind):
    def train() -> None:
        maker, judge = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
        first, second = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
        one = torch.ones(32, 1)
        for _ in range(80):
            x = torch.randn(32, 4)
            true = torch.cat([x, x[:, :2]], 1)
            made = maker(x)
            if kind == "one backward for both":
                fit = F.mse_loss(made, true)
                score = F.mse_loss(judge(true), one)
                first.zero_grad()
                second.zero_grad()
                loss = fit + score
                loss.backward()
                first.step()
                second.step()
                continue
            second.zero_grad()
            told_apart = F.binary_cross_entropy_with_logits(judge(true), one)
            told_apart = told_apart + F.binary_cross_entropy_with_logits(judge(made.detach()), 0 * one)
            told_apart.backward()
            second.step()
            first.zero_grad()
            fooled = F.binary_cross_entropy_with_logits(judge(made.detach() if kind == "detached" else made), one)
            fit = F.l1_loss(made, true)
            loss = fooled + 10 * fit
            loss.backward()
            first.step()

    found = told(train)
    assert ("term_without_gradient" in causes(found)) == (kind == "detached"), found.summary
    if kind == "detached":
        assert "fooled has no gradient" in found.hypotheses[0].sentence


@pytest.mark.parametrize("how", ["plain", "normal", "clipped"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_a_policy_gradient(how, sign):
    def train() -> None:
        policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
        opt = torch.optim.Adam(policy.parameters(), 3e-3)
        right = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
        for _ in range(120):
            seen = torch.randn(64, 4)
            out = policy(seen)
            if how == "normal":
                chosen = torch.distributions.Normal(out, torch.ones_like(out))
                action = chosen.sample()
                reward = -(action - seen @ right).square().mean(1)
                log_prob = chosen.log_prob(action).sum(1)
            else:
                chosen = torch.distributions.Categorical(logits=out)
                action = chosen.sample()
                reward = ((seen @ right).argmax(1) == action).float()
                log_prob = chosen.log_prob(action)
            advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
            if how == "clipped":
                ratio = (log_prob - log_prob.detach()).exp()
                loss = sign * torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            else:
                loss = sign * (log_prob * advantage).mean() - 0.001 * chosen.entropy().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()

    found = told(train)
    assert ("loss_sign_flip" in causes(found)) == (sign == 1), found.summary


class Attends(nn.Module):
    """Reads rows of words through scaled_dot_product_attention, with a mask of what takes part or of what does not."""

    def __init__(self, *, inverted: bool) -> None:
        super().__init__()
        self.words, self.asks = nn.Embedding(30, 16, padding_idx=0), nn.Parameter(torch.randn(1, 2, 16))
        self.keys, self.values, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(32, 2)
        self.inverted = inverted

    def forward(self, ids: Tensor) -> Tensor:
        x, kept = self.words(ids), (ids == 0) == self.inverted
        asks = self.asks.expand(len(ids), -1, -1)
        seen = F.scaled_dot_product_attention(asks, self.keys(x), self.values(x), attn_mask=kept[:, None])
        return self.head(seen.flatten(1))


@pytest.mark.parametrize("inverted", [True, False])
def test_a_mask_that_shows_nothing_but_padding(inverted):
    def train() -> None:
        net = Attends(inverted=inverted)
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(80):
            lengths = torch.randint(2, 9, (32, 1))
            ids = torch.randint(1, 30, (32, 10)) * (torch.arange(10) < lengths)
            steps(net, opt, [F.cross_entropy(net(ids), (ids[:, 0] > 15).long())])

    found = told(train)
    assert ("mask_error" in causes(found)) == inverted, found.summary


def test_the_rounds_of_a_federated_training_are_no_trainings_that_break():
    def train() -> None:
        rule = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
        server = nn.Linear(6, 3)
        clients = [nn.Linear(6, 3) for _ in range(3)]
        for _ in range(8):
            for client in clients:
                client.load_state_dict(server.state_dict())
                opt = torch.optim.SGD(client.parameters(), 0.5)
                data = [torch.randn(4, 6) for _ in range(12)]
                steps(client, opt, (F.cross_entropy(client(x), (x @ rule).argmax(1)) for x in data))
            with torch.no_grad():
                for p, *mine in zip(server.parameters(), *(one.parameters() for one in clients), strict=True):
                    p.copy_(torch.stack(list(mine)).mean(0))

    found = told(train)
    assert found.verdict in ("healthy", "inconclusive"), found.summary


@pytest.mark.parametrize("kind", ["shape", "annealed", "minus on the weight", "loaded in place", "critic steps twice"])
def test_ordinary_code_that_only_looks_like_a_fault(kind):
    """What a reviewer found that the first version of these rules called faults."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            b, t, d = x.shape
            out, attn_weights = self.attn(x, x, x)
            return self.head(out.mean(1)).view(b, -1) + 0 * t

    def train() -> None:
        net = Net() if kind == "shape" else nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        value = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        opt, second = torch.optim.Adam(net.parameters(), 3e-3), torch.optim.Adam(value.parameters(), 3e-3)
        rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
        for step in range(120):
            x = torch.randn(32, 5, 8) if kind == "shape" else torch.randn(32, 8)
            y = ((x.mean(1) if kind == "shape" else x) @ rule).argmax(1)
            opt.zero_grad()
            if kind == "annealed":
                out = net(x)
                fit, size = F.cross_entropy(out, y, reduction="none"), out.square().mean(1)
                beta = torch.tensor(min(1.0, step / 100))
                loss = (fit + 0.001 * (beta * size)).mean()
                loss = fit.mean() + loss * 0.1
            elif kind == "minus on the weight":
                chosen = torch.distributions.Categorical(logits=net(x))
                action = chosen.sample()
                reward = (action == y).float()
                adv = (reward - reward.mean()) / (reward.std() + 1e-6)
                loss = (-adv * chosen.log_prob(action)).mean()
            elif kind == "critic steps twice":
                second.zero_grad()
                first_loss = F.mse_loss(value(x), x @ rule[:, :1])
                first_loss.backward()
                second.step()
                second.zero_grad()
                fit, worth = F.cross_entropy(net(x), y), F.mse_loss(value(x), x @ rule[:, :1])
                loss = fit + 0.5 * worth
            else:
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            if kind == "critic steps twice":
                second.step()
            if kind == "loaded in place" and step % 40 == 39:
                state = net.state_dict()
                for each in state.values():
                    each.mul_(0.99)
                net.load_state_dict(state)

    found = told(train)
    assert causes(found) == [], found.summary


def test_reading_images_leaves_their_memory_as_it_is():
    x = torch.rand(8, 3, 16, 16)

    def train() -> None:
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 2))
        opt = torch.optim.SGD(net.parameters(), 0.01)
        steps(net, opt, (F.cross_entropy(net(x), torch.arange(8) % 2) for _ in range(20)))

    told(train)
    x.resize_(16, 3, 16, 16)
    assert x.untyped_storage().resizable()


class Kept(torch.utils.data.Dataset):
    """Samples that are changed where they lie, or in a copy."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, way: str) -> None:
        self.x, self.y, self.way = x, y, way

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.x[i]
        if self.way == "noise in place":
            x += 0.3 * torch.randn(6)
        elif self.way == "scaled in place":
            x *= 0.9
        elif self.way == "noise":
            x = x + 0.3 * torch.randn(6)
        elif self.way == "masked in place":
            x[torch.randint(0, 6, (1,))] = 0
        elif self.way == "flipped in place":  # the same samples, to and fro
            x *= -1
        return x, self.y[i]


@pytest.mark.parametrize(
    "way", ["noise in place", "scaled in place", "masked in place", "noise", "flipped in place", "new data"]
)
def test_a_dataset_that_is_written_to_in_place(way):
    def train() -> None:
        torch.manual_seed(0)
        x = torch.randn(160, 6)
        data = Kept(x, (x[:, :1] > 0).float(), way)
        net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(12):
            for batch, target in torch.utils.data.DataLoader(data, 16, shuffle=True):
                steps(net, opt, [F.binary_cross_entropy_with_logits(net(batch), target)])
            if way == "new data":
                data.x.copy_(1.1 * torch.randn_like(data.x) * data.x.std())
                data.y.copy_((data.x[:, :1] > 0).float())

    found = told(train)
    assert ("dataset_overwritten" in causes(found)) == (
        way in ("noise in place", "scaled in place", "masked in place")
    ), found.summary
