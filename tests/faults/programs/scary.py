"""Healthy trainings that look like failures. None of them may raise an alarm either."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    ConvNet,
    Mlp,
    adam,
    batches,
    diabetes,
    digits,
    fit,
    flat_digits,
    sgd,
)
from torch import Tensor, nn

EARLY = ("healthy", "inconclusive")


@program("gan")
def gan() -> None:
    x, _ = flat_digits()
    generator, critic = Mlp(16, 64), Mlp(64, 1, act=nn.LeakyReLU)
    g, d = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(critic.parameters(), 2e-4)
    judge = F.binary_cross_entropy_with_logits
    one, nought = torch.ones(64, 1), torch.zeros(64, 1)
    for _ in range(150):
        real, fake = x[torch.randint(1797, (64,))], generator(torch.randn(64, 16))
        d.zero_grad()
        (judge(critic(real), one) + judge(critic(fake.detach()), nought)).backward()
        d.step()
        g.zero_grad()
        judge(critic(fake), one).backward()
        g.step()


@program("gan")
def wgan_clipped() -> None:
    x, _ = flat_digits()
    generator, critic = Mlp(16, 64), Mlp(64, 1)
    g, c = torch.optim.RMSprop(generator.parameters(), 5e-5), torch.optim.RMSprop(critic.parameters(), 5e-5)
    for step in range(250):
        real, noise = x[torch.randint(1797, (64,))], torch.randn(64, 16)
        if step % 5 < 4:
            c.zero_grad()
            (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
            c.step()
            for p in critic.parameters():
                p.data.clamp_(-0.05, 0.05)
        else:
            g.zero_grad()
            (-critic(generator(noise)).mean()).backward()
            g.step()


@program("vae")
def vae_with_summed_loss() -> None:
    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.mu, self.logvar = nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 8)
            self.dec = Mlp(8, 64, depth=2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = F.relu(self.enc(x))
            mu, logvar = self.mu(h), self.logvar(h)
            return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar

    model = Vae()
    optimizer = adam(model, 1e-3)
    for x, _ in batches(flat_digits(), 200):
        out, mu, logvar = model(x)
        loss = F.binary_cross_entropy_with_logits(out, x, reduction="sum")
        loss = loss - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("reinforce", verdict=EARLY)
def reinforce_bandit() -> None:
    policy = Mlp(4, 3, depth=2)
    optimizer = adam(policy, 2e-3)
    for _ in range(250):
        state = torch.randn(32, 4)
        chosen = torch.distributions.Categorical(logits=policy(state))
        action = chosen.sample()
        reward = (action == state[:, :3].argmax(1)).float() + torch.randn(32) * 0.5
        loss = -(chosen.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("reinforce", verdict=EARLY)
def actor_critic_gridworld() -> None:
    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.policy, self.value = nn.Linear(10, 32), nn.Linear(32, 4), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(self.body(x))
            return self.policy(h), self.value(h).squeeze(-1)

    model = ActorCritic()
    optimizer = adam(model, 3e-3)
    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
    for _ in range(120):
        place, picked, values, rewards = torch.randint(0, 5, (16, 2)), [], [], []
        for _ in range(6):
            seen = torch.cat([F.one_hot(place[:, 0], 5), F.one_hot(place[:, 1], 5)], 1).float()
            logits, value = model(seen)
            chosen = torch.distributions.Categorical(logits=logits)
            action = chosen.sample()
            place = (place + moves[action]).clamp(0, 4)
            rewards.append((place == 4).all(1).float() - 0.05)
            picked.append(chosen.log_prob(action))
            values.append(value)
        total, returns = torch.zeros(16), []
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        target, value = torch.stack(returns), torch.stack(values)
        loss = -(torch.stack(picked) * (target - value.detach())).mean() + 0.5 * F.mse_loss(value, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("dqn")
def dqn_with_target_network() -> None:
    online = Mlp(4, 2)
    target = copy.deepcopy(online)
    optimizer = adam(online, 1e-3)
    for step in range(250):
        state, action = torch.randn(64, 4), torch.randint(2, (64,))
        reward = state[:, 0] * (action * 2 - 1)
        with torch.no_grad():
            wanted = reward + 0.5 * target(torch.randn(64, 4)).max(1)[0]
        loss = F.smooth_l1_loss(online(state).gather(1, action[:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            target.load_state_dict(online.state_dict())


@program("mlp")
def ema_copy() -> None:
    model = Mlp()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150), after=lambda _: average.update_parameters(model))


@program("convnet", verdict=EARLY)
def frozen_backbone_and_head() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = ConvNet(), nn.Linear(10, 10)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                h = self.backbone(x)
            out: Tensor = self.head(h)
            return out

    model = Classifier()
    model.backbone.requires_grad_(requires_grad=False).eval()
    fit(model, torch.optim.Adam(model.head.parameters(), 3e-2), batches(digits(), 150))


@program("mlp")
def pretrain_then_fine_tune() -> None:
    x, y = flat_digits()
    body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    first = nn.Sequential(body, nn.Linear(32, 2))
    fit(first, adam(first, 2e-3), batches((x, y % 2), 150))
    body.requires_grad_(requires_grad=False)
    second = nn.Sequential(body, nn.Linear(32, 10))
    fit(second, torch.optim.Adam(second[1].parameters(), 1e-2), batches((x, y), 150))


@program("convnet")
def pretrain_then_fine_tune_all() -> None:
    x, y = digits()
    model = ConvNet()
    fit(model, adam(model, 2e-3), batches((x, y), 80))
    model.fc = nn.Linear(24 * 16, 2)
    fit(model, adam(model, 3e-4), batches((x, y % 2), 80))


@program("autoencoder")
def layerwise_pretraining() -> None:
    x, y = flat_digits()
    encoder, decoder = nn.Sequential(nn.Linear(64, 24), nn.ReLU()), nn.Linear(24, 64)
    both = nn.Sequential(encoder, decoder)
    fit(both, adam(both, 3e-3), batches((x, x), 120), F.mse_loss)
    classifier = nn.Sequential(encoder, nn.Linear(24, 10))
    fit(classifier, adam(classifier, 3e-3), batches((x, y), 120))


@program("mlp")
def sparse_relus() -> None:
    model = Mlp(width=256, depth=2)
    nn.init.constant_(model.get_parameter("fc1.bias"), -0.35)  # most outputs are zero for most samples
    fit(model, adam(model, 2e-3), batches(flat_digits(), 200))


@program("mlp")
def bayes_plateau() -> None:
    torch.manual_seed(7)
    x = torch.randn(4000, 8)
    y = (x[:, 0] > 0).long()
    flip = torch.rand(4000) < 0.3  # three in ten labels are random: the loss rests at 0.42 and no lower
    y = torch.where(flip, torch.randint(2, (4000,)), y)
    model = Mlp(8, 2, width=16, depth=2)
    fit(model, adam(model, 1e-2), batches((x, y), 300, 128))


@program("mlp")
def class_imbalance() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=2)
    fit(model, adam(model, 2e-3), batches((x, (y == 8).long()), 250))


@program("mlp")
def raw_columns_behind_batch_norm() -> None:
    x, y = diabetes()
    scale = torch.tensor([1, 100, 1e4, 0.01, 1, 50, 1e3, 1, 1, 10])
    model = nn.Sequential(nn.BatchNorm1d(10), Mlp(10, 1))
    fit(model, adam(model, 3e-3), batches((x * scale + 5 * scale, y), 250), F.mse_loss)


@program("mlp")
def pixels_0_to_16() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, adam(model, 1e-3), batches((x * 16, y), 200))


@program("contrastive")
def contrastive() -> None:
    model = Mlp(outputs=16)
    optimizer = adam(model, 1e-3)
    for x, _ in batches(flat_digits(), 150):
        a, b = (F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        loss = F.cross_entropy(a @ b.T / 0.2, torch.arange(len(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp", verdict=EARLY)
def few_steps() -> None:
    model = Mlp()
    fit(model, adam(model, 1e-3), batches(flat_digits(), 6))


@program("mlp")
def grad_scaler() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for x, y in batches(flat_digits(), 200):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@program("mlp", verdict=EARLY)
def noisy_small_batches() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.02), batches(flat_digits(), 300, 4))


@program("mlp")
def pairs_on_purpose() -> None:
    model = Mlp(10, 1)
    optimizer = adam(model, 3e-3)
    for x, y in batches(diabetes(), 250):
        p, t = model(x)[:, 0], y[:, 0]
        loss = ((p[:, None] - p[None, :]) - (t[:, None] - t[None, :])).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def gaussian_likelihood() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.mean, self.logvar = Mlp(10, 32, depth=2), nn.Linear(32, 1), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.body(x))
            return self.mean(h), self.logvar(h)

    model = Net()
    optimizer = adam(model, 2e-3)
    for x, y in batches(diabetes(), 250):
        mean, logvar = model(x)
        loss = F.gaussian_nll_loss(mean, y, logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def continual_tasks() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for task in range(3):  # the loss jumps up with each new task and comes down again
        fit(model, optimizer, batches((x, (y + 3 * task) % 10), 100))


@program("lora")
def adapters() -> None:
    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base.requires_grad_(requires_grad=False)
            self.down = nn.Linear(base.in_features, 4, bias=False)
            self.up = nn.Linear(4, base.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.base(x) + self.up(self.down(x))
            return out

    x, y = flat_digits()
    trained = Mlp(width=96)
    fit(trained, adam(trained, 2e-3), batches((x, y), 120))
    trained.fc1 = Adapter(trained.fc1)  # type: ignore[arg-type]
    trained.fc2 = Adapter(trained.fc2)  # type: ignore[arg-type]
    chosen = [p for p in trained.parameters() if p.requires_grad]
    fit(trained, torch.optim.Adam(chosen, 2e-3), batches((x, (y + 1) % 10), 150))


@program("mlp")
def two_models_side_by_side() -> None:
    first, second = Mlp(), Mlp(act=nn.Tanh)
    one, two = adam(first, 1e-3), sgd(second, 0.1)
    for x, y in batches(flat_digits(), 120):
        for model, optimizer in ((first, one), (second, two)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@program("mlp")
def distillation() -> None:
    teacher, student = Mlp(width=96), Mlp(width=24, depth=2)
    fit(teacher, adam(teacher, 3e-3), batches(flat_digits(), 120))
    teacher.eval()

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(out / 2, 1), F.softmax(wanted / 2, 1), reduction="batchmean") * 4

    optimizer = adam(student, 3e-3)
    for x, _ in batches(flat_digits(), 150):
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        loss(student(x), wanted).backward()
        optimizer.step()
