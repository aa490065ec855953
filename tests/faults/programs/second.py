"""A second set, written after the rules had been set by the first: it shows what the first one does not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    AutoEncoder,
    Block,
    CharGpt,
    ConvNet,
    Mlp,
    RowLstm,
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


@program("convnet")
def nesterov_cyclic() -> None:
    model = ConvNet(p=0.2)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.95, nesterov=True)
    schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.2, step_size_up=20)
    fit(model, optimizer, batches(digits(), 120), after=lambda _: schedule.step())


@program("transformer")
def vision_transformer() -> None:
    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(1, 32, 2, 2)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 17, 32))
            self.blocks = nn.Sequential(Block(32, 4), Block(32, 4))
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.patch(x).flatten(2).transpose(1, 2)
            h = torch.cat([h, self.cls.expand(len(x), 1, 32)], 1) + self.pos
            out: Tensor = self.head(self.blocks(h)[:, -1])
            return out

    model = Vit()
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.1), batches(digits(), 120))


@program("lstm")
def char_lstm_stateful() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.rnn, self.head = (
                nn.Embedding(128, 24),
                nn.LSTM(24, 48, 2, batch_first=True),
                nn.Linear(48, 128),
            )

        def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            h, state = self.rnn(self.emb(x), state)
            return self.head(h), state

    model, state = Net(), None
    optimizer = adam(model, 5e-3)
    for x, y in char_batches(120):
        out, (h, c) = model(x, state)
        state = (h.detach(), c.detach())
        loss = char_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


@program("siamese")
def triplet() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=8)
    optimizer = adam(model, 1e-3)
    for _ in range(150):
        at = torch.randint(1700, (48,))
        same = torch.stack([torch.nonzero(y == y[i])[0, 0] for i in at])
        loss = F.triplet_margin_loss(model(x[at]), model(x[same]), model(x[torch.randint(1797, (48,))]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("diffusion")
def denoising_diffusion() -> None:
    x, _ = pictures()
    model = Mlp(65, 64, width=128)
    optimizer = adam(model, 1e-3)
    for xb, _ in batches((x * 2 - 1, x), 250):
        t = torch.rand(len(xb), 1)
        noise = torch.randn_like(xb)
        noisy = (1 - t).sqrt() * xb + t.sqrt() * noise
        loss = F.mse_loss(model(torch.cat([noisy, t], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("multitask")
def weighted_losses_by_uncertainty() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=11)
    weights = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*model.parameters(), weights], 2e-3)
    for xb, yb in batches((x, y), 200):
        out = model(xb)
        one, two = F.cross_entropy(out[:, :10], yb), F.mse_loss(out[:, 10], yb.float() / 9)
        loss = (-weights[0]).exp() * one + (-weights[1]).exp() * two + weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def mixup_soft_targets() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 250):
        share, other = torch.rand(1), torch.randperm(len(x))
        hot = F.one_hot(y, 10).float()
        out = model(share * x + (1 - share) * x[other])
        loss = F.cross_entropy(out, share * hot + (1 - share) * hot[other])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("segmentation")
def per_pixel_bce() -> None:
    x, _ = digits()
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True), nn.Conv2d(16, 1, 3, padding=1)
    )
    fit(model, adam(model, 3e-3), batches((x, (x > 0.5).float()), 100), F.binary_cross_entropy_with_logits)


@program("embedding")
def skipgram() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centre, self.context = nn.Embedding(128, 16), nn.Embedding(128, 16)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return (self.centre(a) * self.context(b)).sum(-1)

    model = Net()
    optimizer = torch.optim.Adagrad(model.parameters(), 0.1)
    for x, y in char_batches(150):
        pos, neg = model(x, y), model(x, torch.randint(128, y.shape))
        loss = -(F.logsigmoid(pos) + F.logsigmoid(-neg)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def focal_loss_by_hand() -> None:
    x, y = flat_digits()

    def focal(out: Tensor, target: Tensor) -> Tensor:
        p = F.softmax(out, 1).gather(1, target[:, None]).squeeze(1)
        return (-((1 - p) ** 2) * p.clamp_min(1e-7).log()).mean()

    model = Mlp()
    fit(model, adam(model, 2e-3), batches((x, y), 200), focal)


@program("mlp")
def sharpness_aware() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.2)
    for x, y in batches(flat_digits(), 150):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            parts = [(p, 0.05 * p.grad / (p.grad.norm() + 1e-8)) for p in model.parameters() if p.grad is not None]
            for p, e in parts:
                p.add_(e)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, e in parts:
                p.sub_(e)
        optimizer.step()


@program("convnet")
def batch_norm_frozen_fine_tune() -> None:
    x, y = digits()
    model = ConvNet()
    fit(model, adam(model, 3e-3), batches((x, y), 60))
    model.bn1.eval()
    model.bn2.eval()
    fit(model, adam(model, 1e-3), batches((x, (y + 1) % 10), 80))


@program("gan")
def gan_one_optimizer_more_steps() -> None:
    x, _ = flat_digits()
    g, d = Mlp(8, 64, width=128), Mlp(64, 1, width=128, act=nn.LeakyReLU)
    og, od = adam(g, 1e-3), adam(d, 1e-4)
    for _ in range(200):
        real, fake = x[torch.randint(1797, (32,))], torch.sigmoid(g(torch.randn(32, 8)))
        ld = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake.detach())).mean()
        od.zero_grad()
        ld.backward()
        od.step()
        lg = -d(fake).mean()
        og.zero_grad()
        lg.backward()
        og.step()


@program("mlp", verdict=EARLY)
def easy_task_converges_at_once() -> None:
    x = torch.randn(512, 4)
    model = nn.Linear(4, 1)
    fit(model, sgd(model, 0.1), batches((x, x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])), 300), F.mse_loss)


@program("mlp")
def swish_with_outliers() -> None:
    x, y = diabetes()
    y = y + (torch.rand_like(y) < 0.02) * 8
    model = Mlp(10, 1, act=nn.SiLU)
    fit(model, adam(model, 2e-3), batches((x, y), 250), F.huber_loss)


# ---------------------------------------------------------------- faults


@program("convnet", "lr_too_high", step=0)
def rmsprop_lr_1_convnet() -> None:
    model = ConvNet(norm=False)
    fit(model, torch.optim.RMSprop(model.parameters(), 1.0), batches(digits(), 80))


@program("mlp", "lr_too_high", step=0)
def momentum_lr_5_mlp() -> None:
    model = Mlp()
    fit(model, sgd(model, 5.0, momentum=0.9), batches(flat_digits(), 120))


@program("transformer", "missing_zero_grad", step=1)
def zero_grad_forgotten_transformer() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for x, y in char_batches(100):
        loss = char_loss(model(x), y)
        loss.backward()
        optimizer.step()


@program("lstm", "param_not_in_optimizer", layer="1.rnn", step=0)
def recurrence_not_in_optimizer() -> None:
    model = RowLstm()
    pre = nn.Linear(8, 8)
    both = nn.Sequential(pre, model)
    chosen = [*pre.parameters(), *model.head.parameters()]
    x, y = digits()
    fit(both, torch.optim.Adam(chosen, 3e-3), batches((x.squeeze(1), y), 150))


@program("transformer", "param_unused", layer="blocks.1.ln2", step=0)
def norm_forgotten_in_block() -> None:
    class Forgetful(Block):
        def forward(self, x: Tensor) -> Tensor:
            b, t, d = x.shape
            q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.ln1(x)).chunk(3, -1))
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
            out: Tensor = x + self.down(F.gelu(self.up(x)))
            return out

    model = CharGpt()
    model.blocks[1] = Forgetful(32, 4)
    fit(model, torch.optim.AdamW(model.parameters(), 2e-3), char_batches(80), char_loss)


@program("lstm", "double_softmax", layer="head", step=0)
def softmax_in_forward_lstm() -> None:
    class Net(RowLstm):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(super().forward(x), dim=-1)

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 150), nn.CrossEntropyLoss())


@program("convnet", "eval_mode_left_on", step=30)
def eval_after_epoch_without_norm() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, 10))

    def validate(step: int) -> None:
        if step % 30 == 29:
            model.eval()
            with torch.no_grad():
                model(digits()[0][:100])

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=validate)


@program("autoencoder", "wrong_reduction", step=0)
def summed_autoencoder_sgd() -> None:
    model = AutoEncoder()
    fit(model, sgd(model, 0.1, momentum=0.9), batches(pictures(), 100), nn.MSELoss(reduction="sum"))


@program("mlp", "unstable_op", verdict="failing")
def own_bce_with_log() -> None:
    x, y = flat_digits()
    model = nn.Sequential(Mlp(outputs=1), nn.Sigmoid())

    def own(p: Tensor, target: Tensor) -> Tensor:
        return -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()

    fit(model, adam(model, 2e-2), batches((x, (y > 4).float()[:, None]), 600), own)


@program("mlp", "unstable_op", step=25, verdict="failing")
def correlation_of_constant() -> None:
    x, y = diabetes()
    model = Mlp(10, 1)

    def correlation(p: Tensor, t: Tensor) -> Tensor:
        correlation.calls += 1  # type: ignore[attr-defined]
        t = t * 0 if correlation.calls == 26 else t  # type: ignore[attr-defined]  # a constant batch
        p, t = p - p.mean(), t - t.mean()
        return 1 - (p * t).sum() / (p.norm() * t.norm())

    correlation.calls = 0  # type: ignore[attr-defined]
    fit(model, adam(model, 1e-3), batches((x, y), 60), correlation)


@program("lstm", "nonfinite_input", step=20, verdict="failing")
def infinity_in_a_sequence() -> None:
    model = RowLstm()
    optimizer = adam(model, 3e-3)
    for step, (x, y) in enumerate(batches(digits(), 60)):
        if step == 20:
            x[3, 0, 2, 2] = float("inf")
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("mlp", "unnormalised_targets", step=0)
def far_offset_targets() -> None:
    x, y = diabetes()
    model = Mlp(10, 1, act=nn.Tanh)
    fit(model, adam(model, 1e-3), batches((x, y + 2000), 200), F.mse_loss)


@program("convnet", "init_scale_wrong", step=0)
def uniform_init_convnet() -> None:
    model = ConvNet(norm=False)
    for p in model.parameters():
        nn.init.uniform_(p, -2, 2)
    fit(model, sgd(model, 0.05), batches(digits(), 100))


@program("mlp", "vanishing_depth", step=0)
def deep_sigmoid_autoencoder() -> None:
    layers: list[nn.Module] = []
    for _ in range(9):
        layers += [nn.Linear(64, 64), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(64, 64))
    fit(model, sgd(model, 0.1), batches(pictures(), 120), F.mse_loss)


@program("mlp", "lr_too_low", step=0)
def lr_too_low_regression() -> None:
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-7), batches(diabetes(), 200), F.mse_loss)


@program("autoencoder", "dead_relu", layer="act1")
def dead_bottleneck() -> None:
    model = AutoEncoder()
    nn.init.constant_(model.enc1.bias, -15.0)
    fit(model, adam(model, 1e-3), batches(pictures(), 120), F.mse_loss)


@program("convnet", "bad_batch", step=50)
def corrupted_image() -> None:
    model = ConvNet(norm=False)
    optimizer = adam(model, 1e-3)
    for step, (x, y) in enumerate(batches(digits(), 120)):
        if step == 50:
            x[0] = 1e5 * torch.rand(1, 8, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
