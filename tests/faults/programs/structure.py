"""Models built wrongly, or built in the same way rightly: symmetry, activations, dropout, norms, attention, variety."""

from __future__ import annotations

import copy
import math

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
    pictures,
    sgd,
)
from torch import Tensor, nn

EARLY = ("healthy", "inconclusive")


def fill(model: nn.Module, value: float) -> nn.Module:
    for p in model.parameters():
        nn.init.constant_(p, value)
    return model


def with_validation(model: nn.Module, every: int = 20) -> object:
    x, y = digits()

    def validate(step: int) -> None:
        if step % every == every - 1:
            model.eval()
            with torch.no_grad():
                (model(x[:200]).argmax(1) == y[:200]).float().mean()
            model.train()

    return validate


# --- symmetric_init --------------------------------------------------------------------------------------------------


@program("mlp", "symmetric_init", layer="fc1", step=0)
def constant_weights() -> None:
    model = fill(Mlp(), 0.05)
    fit(model, sgd(model, 0.05), batches(flat_digits(), 150))


@program("mlp", "symmetric_init", layer="fc1", step=0, verdict="failing")
def zero_weights() -> None:
    model = fill(Mlp(), 0.0)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 120))


@program("lstm", "symmetric_init", layer="rnn", step=0)
def lstm_of_equal_gates() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(8, 32, batch_first=True)
            self.head = nn.Linear(32, 10)
            fill(self.rnn, 0.1)
            fill(self.head, 0.0)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(x.squeeze(1))[0][:, -1])
            return out

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 100))


@program("mlp")
def zero_head() -> None:
    model = Mlp()
    fill(model.head, 0.0)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a, self.lora_b = (
            nn.Linear(base.in_features, r, bias=False),
            nn.Linear(r, base.out_features, bias=False),
        )
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.lora_b(self.lora_a(x))
        return out


@program("mlp")
def lora_begins_at_zero() -> None:
    net = Mlp()
    fit(net, adam(net, 1e-3), batches(flat_digits(), 60))
    model = nn.Sequential(LoraLinear(net.fc1), nn.ReLU(), LoraLinear(net.fc2), nn.ReLU(), net.head)  # type: ignore[arg-type]
    fit(model, adam(model, 3e-3), batches(flat_digits(), 150))


@program("mlp")
def residual_branches_begin_at_zero() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(64, 64), fill(nn.Linear(64, 64), 0.0)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x + self.down(F.gelu(self.up(x)))
            return out

    model = nn.Sequential(Branch(), Branch(), nn.Linear(64, 10))
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


# --- missing_activation ----------------------------------------------------------------------------------------------


@program("mlp", "missing_activation", layer="fc1", step=0, verdict="suspect")
def stack_of_linears() -> None:
    model = Mlp(act=nn.Identity, depth=4)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


@program("convnet", "missing_activation", layer="conv1", step=0)
def relu_made_and_not_called() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12)
            self.conv2, self.relu = nn.Conv2d(12, 24, 3, padding=1), nn.ReLU()
            self.drop, self.fc = nn.Dropout(0.1), nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.avg_pool2d(self.bn1(self.conv1(x)), 2)
            out: Tensor = self.fc(self.drop(self.conv2(x).mean((2, 3))))
            return out

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 120))


@program("mlp", "missing_activation", step=0)
def regression_without_activation() -> None:
    x = torch.randn(512, 8)
    y = (x[:, :1] * x[:, 1:2]).sign() + 0.1 * torch.randn(512, 1)
    model = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 1))
    fit(model, adam(model, 1e-3), batches((x, y), 200), F.mse_loss)


@program("autoencoder")
def linear_autoencoder() -> None:
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 64))
    fit(model, adam(model, 3e-3), batches(pictures(), 250), F.mse_loss)


@program("mlp")
def functional_activations() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h = h + F.elu(h)
            h = self.b(h)
            out: Tensor = self.c(h * torch.sigmoid(h))
            return out

    model = Net()
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


@program("mlp")
def activation_inside_a_block() -> None:
    class Block(nn.Module):
        def __init__(self, wide: int, out: int) -> None:
            super().__init__()
            self.fc = nn.Linear(wide, out)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.fc(x))

    model = nn.Sequential(Block(64, 48), Block(48, 48), nn.Linear(48, 10))
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200))


@program("convnet")
def separable_convolutions() -> None:
    def separable(into: int, out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(into, into, 3, padding=1, groups=into), nn.Conv2d(into, out, 1), nn.BatchNorm2d(out), nn.ReLU()
        )

    model = nn.Sequential(nn.Conv2d(1, 8, 3), separable(8, 16), separable(16, 16), nn.Flatten(), nn.Linear(576, 10))
    fit(model, adam(model, 2e-3), batches(digits(), 100))


@program("mlp")
def factorised_softmax_regression() -> None:
    model = nn.Sequential(nn.Linear(64, 6), nn.Linear(6, 10))
    fit(model, adam(model, 1e-2), batches(flat_digits(), 250))


# --- dropout_too_high ------------------------------------------------------------------------------------------------


@program("mlp", "dropout_too_high", step=0)
def keep_probability_for_dropout() -> None:
    drop = 0.95
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(drop),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(drop),
        nn.Linear(64, 10),
    )
    fit(model, adam(model, 1e-3), batches(flat_digits(), 250))


@program("convnet", "dropout_too_high", step=0, verdict=("failing", "suspect"))
def functional_dropout_of_nine_tenths() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 8, 3), nn.Linear(288, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.dropout(F.relu(self.conv(x)).flatten(1), 0.9, self.training)
            out: Tensor = self.fc2(F.dropout(F.relu(self.fc1(x)), 0.9, self.training))
            return out

    model = Net()
    fit(model, adam(model, 5e-4), batches(digits(), 150))


@program("mlp", "dropout_too_high", layer="2", step=0, verdict="failing")
def dropout_of_everything() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(1.0), nn.Linear(64, 10))
    fit(model, adam(model, 1e-3), batches(flat_digits(), 120))


@program("mlp")
def strong_dropout_of_a_wide_layer() -> None:
    model = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 1024), nn.ReLU(), nn.Dropout(0.7), nn.Linear(1024, 10))
    fit(model, adam(model, 2e-3), batches(flat_digits(), 200))


# --- batch norm ------------------------------------------------------------------------------------------------------


class BnMlp(nn.Module):
    def __init__(self, momentum: float | None = 0.1, width: int = 64) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(64, width), nn.BatchNorm1d(width, momentum=momentum)
        self.fc2, self.bn2 = nn.Linear(width, width), nn.BatchNorm1d(width, momentum=momentum)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.fc1(x.flatten(1))))
        out: Tensor = self.head(F.relu(self.bn2(self.fc2(x))))
        return out


@program("mlp", "batchnorm_small_batch", layer="bn1", step=0)
def batch_norm_of_pairs() -> None:
    model = BnMlp()
    fit(model, sgd(model, 0.05), batches(flat_digits(), 250, 2))


@program("convnet", "batchnorm_small_batch", step=0)
def batch_norm_after_global_pooling() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool, self.bn = nn.Conv2d(1, 32, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(32)
            self.fc = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(F.relu(self.bn(self.pool(F.relu(self.conv(x))))).flatten(1))
            return out

    model = Net()
    fit(model, adam(model, 1e-3), batches(digits(), 250, 2))


@program("convnet")
def batch_norm_of_few_large_images() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10)
    )
    x, y = digits()
    fit(model, adam(model, 3e-3), batches((F.interpolate(x, scale_factor=3), y), 300, 8))


@program("convnet", "batchnorm_momentum", layer="bn1", step=0, verdict="suspect")
def momentum_of_another_library() -> None:
    model = ConvNet()
    model.bn1.momentum = model.bn2.momentum = 0.99  # type: ignore[assignment]
    fit(model, adam(model, 2e-3), batches(digits(), 100, 16), after=with_validation(model))  # type: ignore[arg-type]


@program("mlp", "batchnorm_momentum", layer="bn1", step=0, verdict="suspect")
def momentum_of_zero() -> None:
    model = BnMlp(momentum=0.0)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 150), after=with_validation(model))  # type: ignore[arg-type]


@program("convnet")
def cautious_momentum() -> None:
    model = ConvNet()
    model.bn1.momentum = model.bn2.momentum = 0.01  # type: ignore[assignment]
    fit(model, adam(model, 2e-3), batches(digits(), 120), after=with_validation(model))  # type: ignore[arg-type]


@program("mlp")
def cumulative_average() -> None:
    model = BnMlp(momentum=None)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 200), after=with_validation(model))  # type: ignore[arg-type]


def pretrained() -> ConvNet:
    """A network whose statistics are those of other pictures: darker ones."""
    model = ConvNet()
    x, y = digits()
    optimizer = adam(model, 3e-3)
    with torch.enable_grad():
        for a, b in batches((1 - x, y), 40):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
    return model


class Finetuned(nn.Module):
    def __init__(self, body: ConvNet) -> None:
        super().__init__()
        self.backbone = nn.Sequential(body.conv1, body.bn1, body.relu1, body.conv2, body.bn2, body.relu2, body.pool)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(24 * 16, 48), nn.ReLU(), nn.Linear(48, 10))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x))
        return out


def other_weights() -> ConvNet:
    """Statistics as a checkpoint brings them."""
    model = ConvNet()
    for bn in (model.bn1, model.bn2):
        nn.init.uniform_(bn.running_mean, -1.0, 1.0)  # type: ignore[arg-type]
        nn.init.uniform_(bn.running_var, 0.2, 0.6)  # type: ignore[arg-type]
    return model


@program("convnet", "frozen_norm_drift", layer="backbone.1", verdict="suspect")
def frozen_backbone_in_train_mode() -> None:
    model = Finetuned(other_weights())
    model.backbone.requires_grad_(False)
    fit(model, adam(model.head, 2e-3), batches(digits(), 150), after=with_validation(model))  # type: ignore[arg-type]


@program("convnet", "frozen_norm_drift", verdict="suspect")
def backbone_frozen_after_pretraining() -> None:
    model = Finetuned(pretrained())
    for p in model.backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05, momentum=0.9)
    model.train()
    fit(model, optimizer, batches(digits(), 150), after=with_validation(model))  # type: ignore[arg-type]


@program("convnet")
def frozen_backbone_in_eval_mode() -> None:
    model = Finetuned(pretrained())
    model.backbone.requires_grad_(False)
    model.backbone.eval()
    fit(model, adam(model.head, 2e-3), batches(digits(), 150))


@program("convnet")
def finetuning_of_everything() -> None:
    model = Finetuned(other_weights())
    optimizer = torch.optim.Adam(
        [{"params": model.backbone.parameters(), "lr": 1e-4}, {"params": model.head.parameters()}]
    )
    fit(model, optimizer, batches(digits(), 150), after=with_validation(model))  # type: ignore[arg-type]


@program("convnet", verdict=EARLY)
def momentum_teacher_in_train_mode() -> None:
    student = ConvNet()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = adam(student, 1e-3)
    for x, _ in batches(digits(), 120):
        noisy = x + 0.1 * torch.randn_like(x)
        loss = 2 - 2 * F.cosine_similarity(student(x), teacher(noisy), dim=-1).mean()
        loss = loss + F.cross_entropy(student(x), teacher(noisy).softmax(-1).argmax(-1)) * 0.0
        optimizer.zero_grad()
        (loss + 0.1 * (1 - student(x).std(0)).relu().mean()).backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
                q.lerp_(p, 0.05)


# --- attention and tokens --------------------------------------------------------------------------------------------


class Attend(nn.Module):
    """A block with its parts to choose."""

    def __init__(self, width: int, *, residual: bool, scale: float, mlp: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.ln, self.residual, self.scale = nn.LayerNorm(width), residual, scale
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(x)
        scores = self.q(h) @ self.k(h).transpose(-2, -1) * self.scale
        mixed = scores.softmax(-1) @ self.v(h)
        x = x + mixed if self.residual else mixed
        more = self.down(F.gelu(self.up(x)))
        out: Tensor = x + more if self.residual else more
        return out


class Tagger(nn.Module):
    """Names the class of each token from its neighbours."""

    def __init__(self, layers: int = 3, width: int = 32, *, residual: bool = True, scale: float = 0.0) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(12, width), nn.Parameter(torch.randn(16, width) * 0.5)
        scale = scale or 1 / math.sqrt(width)
        self.blocks = nn.ModuleList(Attend(width, residual=residual, scale=scale) for _ in range(layers))
        self.head = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tok(x) + self.pos
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(h)
        return out


def reversals(steps: int, size: int = 32) -> object:
    for _ in range(steps):
        x = torch.randint(12, (size, 16))
        yield x, x.flip(1)


def token_loss(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@program("transformer", "rank_collapse", step=0)
def attention_without_residuals() -> None:
    model = Tagger(6, residual=False)
    fit(model, adam(model, 1e-3), reversals(120), token_loss)  # type: ignore[arg-type]


@program("transformer", "attention_collapse", step=0)
def scores_without_scale() -> None:
    model = Tagger(3, scale=60.0)
    fit(model, sgd(model, 0.02), reversals(150), token_loss)  # type: ignore[arg-type]


@program("transformer")
def attention_that_copies() -> None:
    model = Tagger(2)
    fit(model, adam(model, 3e-3), reversals(400), token_loss)  # type: ignore[arg-type]


# --- logit_drift -----------------------------------------------------------------------------------------------------


@program("mlp", "logit_drift", layer="head", verdict=("failing", "suspect"))
def bias_that_runs_away() -> None:
    model = Mlp().to(torch.bfloat16)
    optimizer = adam(model, 1e-3)
    for x, y in batches(flat_digits(), 300):
        logits = model(x.to(torch.bfloat16))
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.head.bias += 2.0


@program("mlp")
def margins_that_grow() -> None:
    model = Mlp()
    fit(model, adam(model, 1e-2), batches(flat_digits(), 400, 128))


# --- plasticity_loss and capacity ------------------------------------------------------------------------------------


def tasks(count: int, steps: int) -> object:
    x, y = flat_digits()
    for task in range(count):
        g = torch.Generator().manual_seed(task)
        order, names = torch.randperm(64, generator=g), torch.randperm(10, generator=g)
        for _ in range(steps):
            chosen = torch.randint(1797, (64,))
            yield x[chosen][:, order], names[y[chosen]]


# The units are worn out by writing to their biases, which is as true a cause.
@program("mlp", ("plasticity_loss", "dead_relu", "weights_overwritten"), verdict=("failing", "suspect"))
def units_that_die_from_task_to_task() -> None:
    model = Mlp(width=48)

    def wear(step: int) -> None:
        if step % 60 == 59:
            with torch.no_grad():
                begin = (step // 60) * 7
                for fc in (model.fc1, model.fc2):
                    fc.bias[begin : begin + 7] -= 30.0  # type: ignore[index, operator]

    fit(model, adam(model, 2e-3), tasks(6, 60), after=wear)  # type: ignore[arg-type]


@program("mlp", verdict=EARLY)
def tasks_that_follow_each_other() -> None:
    model = Mlp(width=64)
    fit(model, adam(model, 2e-3), tasks(5, 60))  # type: ignore[arg-type]


@program("mlp", "capacity_too_small", layer="2", step=0, verdict="suspect")
def one_unit_for_ten_classes() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh(), nn.Linear(1, 10))
    fit(model, adam(model, 1e-2), batches(flat_digits(), 400))


@program("mlp")
def gate_of_one_unit() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.gate, self.head = nn.Linear(64, 32), nn.Linear(64, 1), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(F.relu(self.body(x)) * torch.sigmoid(self.gate(x)))
            return out

    model = Gated()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 200))


# --- mode_collapse ---------------------------------------------------------------------------------------------------


@program("gan", "mode_collapse", layer=None, verdict="suspect")
def generator_of_one_picture() -> None:
    x, _ = flat_digits()
    generator, critic = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid()), Mlp(64, 1)
    g, d = torch.optim.Adam(generator.parameters(), 1e-2), torch.optim.Adam(critic.parameters(), 1e-3)
    judge = F.binary_cross_entropy_with_logits
    for step in range(300):
        real, fake = x[torch.randint(1797, (64,))], generator(torch.randn(64, 16))
        d.zero_grad()
        (judge(critic(real), torch.ones(64, 1)) + judge(critic(fake.detach()), torch.zeros(64, 1))).backward()
        if step < 20 or step % 100 == 0:
            d.step()
        g.zero_grad()
        judge(critic(fake), torch.ones(64, 1)).backward()
        g.step()


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.dec = Mlp(8, 64, depth=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar


def train_vae(weight: float, steps: int) -> None:
    model = Vae()
    optimizer = adam(model, 3e-3)
    for x, _ in batches(flat_digits(), steps):
        out, mu, logvar = model(x)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        loss = F.mse_loss(out, x) + weight * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("vae", "mode_collapse", verdict="suspect")
def vae_without_code() -> None:
    train_vae(1.0, 400)


@program("vae")
def vae_with_a_code() -> None:
    train_vae(1e-4, 300)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Mlp(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


@program("siamese", "mode_collapse", verdict="suspect")
def two_views_without_stop_gradient() -> None:
    model = Encoder()
    optimizer = sgd(model, 0.3, momentum=0.9)
    for x, _ in batches(flat_digits(), 300):
        one, two = (model(x + 0.2 * torch.randn_like(x)) for _ in range(2))
        loss = 1 - F.cosine_similarity(one, two, dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("siamese", verdict=EARLY)
def two_views_that_keep_their_variance() -> None:
    model = Encoder()
    optimizer = adam(model, 1e-3)
    for x, _ in batches(flat_digits(), 200):
        one, two = (model(x + 0.2 * torch.randn_like(x)) for _ in range(2))
        spread = (F.relu(1 - one.std(0)) + F.relu(1 - two.std(0))).mean()
        loss = 1 - F.cosine_similarity(one, two, dim=-1).mean() + spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def constant_regression_target_scale() -> None:
    model = Mlp(10, 1, act=nn.Tanh)
    fit(model, adam(model, 2e-3), batches(diabetes(), 250), F.mse_loss)


@program("transformer")
def transformer_with_dropout() -> None:
    class Dropped(CharGpt):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = F.dropout(super().forward(x), 0.05, self.training)
            return out

    model = Dropped()
    fit(model, adam(model, 3e-3), char_batches(100), char_loss)


# --- the scale and the bounds of what is meant so --------------------------------------------------------------------


@program("transformer")
def branches_and_head_that_begin_small() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)
            nn.init.normal_(self.down.weight, 0, 1e-3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
            return out

    head = nn.Linear(64, 10)
    nn.init.orthogonal_(head.weight, gain=0.01)
    model = nn.Sequential(*[Branch() for _ in range(4)], head)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 150))


@program("mlp")
def gates_that_shut() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.gate, self.head = nn.Linear(64, 32), nn.Linear(64, 32), nn.Linear(32, 10)
            nn.init.uniform_(self.gate.bias, -12.0, 12.0)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.body(x)) * torch.sigmoid(self.gate(x)))
            return out

    model = Gated()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 200))


@program("mlp")
def tasks_under_a_transform() -> None:
    """MAML: the model is only called inside of ``vmap`` and ``grad``, and the optimizer's tensors get gradients."""
    model = Mlp(1, 1, width=32)
    optimizer = adam(model, 3e-3)

    def error(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(torch.func.functional_call(model, params, (x,)), y)

    def adapted(params: dict[str, Tensor], x: Tensor, y: Tensor, more: Tensor, wanted: Tensor) -> Tensor:
        slope = torch.func.grad(error)(params, x, y)
        return error({name: p - 0.05 * slope[name] for name, p in params.items()}, more, wanted)

    for _ in range(150):
        size, shift = torch.rand(12, 1, 1) + 0.5, torch.rand(12, 1, 1)
        x, more = torch.rand(12, 10, 1) * 3, torch.rand(12, 10, 1) * 3
        y, wanted = size * torch.sin(x + shift), size * torch.sin(more + shift)
        params = dict(model.named_parameters())
        loss = torch.func.vmap(adapted, in_dims=(None, 0, 0, 0, 0))(params, x, y, more, wanted).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
