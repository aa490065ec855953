"""The graph, the parameters or the modes are wired wrongly; and programs that do the same things rightly."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    AutoEncoder,
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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

# ---------------------------------------------------------------- unregistered_params


@program("mlp", "unregistered_params", layer="layers[0]", step=0)
def layers_in_a_plain_list() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(64, 48)
            self.layers = [nn.Linear(48, 48) for _ in range(3)]
            self.head = nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.enter(x))
            for layer in self.layers:
                x = F.relu(layer(x))
            out: Tensor = self.head(x)
            return out

    model = Net()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("convnet", "unregistered_params", layer="heads['fine']", step=0)
def heads_in_a_dictionary() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU())
            self.heads = {"fine": nn.Linear(32, 10), "coarse": nn.Linear(32, 2)}

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.trunk(x)
            return self.heads["fine"](h), self.heads["coarse"](h)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for x, y in batches(digits(), 100):
        fine, coarse = model(x)
        optimizer.zero_grad()
        (F.cross_entropy(fine, y) + F.cross_entropy(coarse, y % 2)).backward()
        optimizer.step()


@program("mlp", "unregistered_params", layer="mix", step=0)
def weight_as_a_plain_tensor() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(64, 48), nn.Linear(48, 10)
            self.mix = torch.randn(48, 48, requires_grad=True)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc2(F.relu(F.relu(self.fc1(x)) @ self.mix * 0.2))
            return out

    model = Net()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp", "unregistered_params", layer="block.inner", step=0)
def layer_in_a_plain_object() -> None:
    class Block:
        def __init__(self) -> None:
            self.inner = nn.Linear(48, 48)

        def __call__(self, x: Tensor) -> Tensor:
            return F.gelu(self.inner(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.block, self.fc2 = nn.Linear(64, 48), Block(), nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc2(self.block(F.gelu(self.fc1(x))))
            return out

    model = Net()
    fit(model, sgd(model, 0.2), batches(flat_digits(), 120))


@program("mlp", "unregistered_params", layer="scale", step=0)
def parameter_that_was_transposed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(64, 48), nn.Linear(48, 10)
            self.scale = nn.Parameter(torch.randn(48, 48) * 0.1).t()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc2(F.relu(self.fc1(x)) @ self.scale)
            return out

    model = Net()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 120):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def list_of_layers_given_to_the_optimizer() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(64, 48), nn.Linear(48, 48)]
            self.head = nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = F.relu(layer(x))
            out: Tensor = self.head(x)
            return out

    model = Net()
    chosen = [*model.parameters(), *(p for layer in model.layers for p in layer.parameters())]
    fit(model, torch.optim.Adam(chosen, 2e-3), batches(flat_digits(), 120))


@program("autoencoder")
def perceptual_network_hidden_in_a_list() -> None:
    class Net(AutoEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.judge = [nn.Sequential(nn.Linear(64, 32), nn.Tanh())]

        def loss(self, x: Tensor) -> Tensor:
            made = self(x)
            return F.mse_loss(made, x) + 0.1 * F.mse_loss(self.judge[0](made), self.judge[0](x).detach())

    model = Net()
    optimizer = adam(model, 2e-3)
    for x, _ in batches(pictures(), 120):
        loss = model.loss(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def coordinates_with_gradients() -> None:
    """A physics-informed network: its fixed points require gradients, and are no weights."""

    class Pinn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
            self.points = torch.linspace(0, 3, 64)[:, None].requires_grad_()
            self.zero = torch.zeros(1, 1, requires_grad=True)

        def loss(self) -> Tensor:
            u = self.net(self.points)
            (slope,) = torch.autograd.grad(u.sum(), self.points, create_graph=True)
            return (slope - torch.cos(2 * self.points)).square().mean() + (self.net(self.zero) - 0.5).square().mean()

    model = Pinn()
    optimizer = adam(model, 5e-3)
    for _ in range(150):
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()


@program("mlp")
def adversarial_examples() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 120):
        attack = torch.zeros_like(x, requires_grad=True)
        F.cross_entropy(model(x + attack), y).backward()
        assert attack.grad is not None
        bad = (x + 0.05 * attack.grad.sign()).detach()
        loss = F.cross_entropy(model(bad), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---------------------------------------------------------------- detached_graph


def _cut_encoder(*, trained: bool) -> None:
    """A part with the name of a fixed one; it is meant to be fixed only where it comes trained."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(F.relu(self.encoder(x).detach()))
            return out

    model = Parts()
    if trained:
        earlier = torch.randn(32, 64, generator=torch.Generator().manual_seed(3)) * 0.1
        model.load_state_dict({"encoder.weight": earlier}, strict=False)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp", "detached_graph", layer="encoder", step=0)
def encoder_cut_off_as_it_was_drawn() -> None:
    _cut_encoder(trained=False)


@program("mlp")
def encoder_that_came_trained_and_stays() -> None:
    _cut_encoder(trained=True)


@program("mlp", "detached_graph", layer="fc2", step=0)
def detach_between_layers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3, self.fc4 = (
                nn.Linear(64, 48), nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 10),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.fc2(F.relu(self.fc1(x))))
            x = F.relu(self.fc3(x.detach()))
            out: Tensor = self.fc4(x)
            return out

    model = Net()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("lstm", "detached_graph", layer="rnn", step=0)
def new_tensor_from_an_output() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.mid, self.head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x.squeeze(1))[0]
            h = torch.tensor(h.tolist())
            out: Tensor = self.head(F.relu(self.mid(h)).mean(1))
            return out

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 100, 32))


@program("convnet", "detached_graph", layer="bn2", step=0)
def no_grad_around_the_convolutions() -> None:
    class Net(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.relu1(self.bn1(self.conv1(x)))
                x = self.pool(self.relu2(self.bn2(self.conv2(x))))
            out: Tensor = self.fc(x.flatten(1))
            return out

    model = Net()
    fit(model, adam(model, 2e-3), batches(digits(), 100))


@program("mlp", "detached_graph", step=0)
def loss_made_to_require_gradients() -> None:
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 100):
        guess = model(x).argmax(1).float()
        loss = F.mse_loss(guess, y.float())
        loss.requires_grad_(True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp", "detached_graph", step=0)
def prediction_wrapped_anew() -> None:
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.05)
    for x, y in batches(diabetes(), 100):
        guess = torch.tensor(model(x).detach().numpy(), requires_grad=True)
        loss = F.mse_loss(guess, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def stop_gradient_of_siamese_networks() -> None:
    class SimSiam(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24))
            self.predictor = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            za, zb = self.trunk(a), self.trunk(b)
            pa, pb = self.predictor(za), self.predictor(zb)
            return -(F.cosine_similarity(pa, zb.detach()).mean() + F.cosine_similarity(pb, za.detach()).mean()) / 2

    model = SimSiam()
    optimizer = adam(model, 1e-3)
    for x, _ in batches(flat_digits(), 120):
        loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("lstm")
def truncated_backpropagation() -> None:
    rnn, head = nn.GRU(16, 48, batch_first=True), nn.Linear(48, 128)
    table = nn.Embedding(128, 16)
    model = nn.ModuleDict({"table": table, "rnn": rnn, "head": head})
    optimizer = adam(model, 5e-3)
    hidden = torch.zeros(1, 16, 48)
    for x, y in char_batches(120):
        out, hidden = rnn(table(x), hidden.detach())
        loss = char_loss(head(out), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("convnet")
def fixed_backbone_without_gradients() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten())
            nn.init.normal_(self.backbone[0].weight, std=0.3)  # trained weights have tails, drawn ones have none
            self.head = nn.Linear(16 * 36, 10)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                h = self.backbone(x)
            out: Tensor = self.head(h)
            return out

    model = Net()
    fit(model, adam(model, 2e-3), batches(digits(), 100))


@program("actor_critic")
def detached_baseline() -> None:
    """Reward for naming the digit: the actor's advantage uses the critic's value without its gradient."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.actor, self.critic = nn.Linear(64, 48), nn.Linear(48, 10), nn.Linear(48, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.body(x))
            return self.actor(h), self.critic(h.detach()).squeeze(1)

    agent = Agent()
    optimizer = adam(agent, 3e-3)
    for x, y in batches(flat_digits(), 250):
        logits, value = agent(x)
        policy = torch.distributions.Categorical(logits=logits)
        action = policy.sample()
        reward = (action == y).float()
        loss = -(policy.log_prob(action) * (reward - value.detach())).mean() + F.mse_loss(value, reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("autoencoder")
def vector_quantised_straight_through() -> None:
    class Vq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.codes, self.up = nn.Linear(64, 16), nn.Embedding(32, 16), nn.Linear(16, 64)

        def forward(self, x: Tensor) -> Tensor:
            z = self.down(x)
            q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
            made = self.up(z + (q - z).detach())
            return F.mse_loss(made, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())

    model = Vq()
    optimizer = adam(model, 3e-3)
    for x, _ in batches(pictures(), 150):
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---------------------------------------------------------------- zero_gradient_path


@program("mlp", "zero_gradient_path", layer="fc2", step=0)
def codes_are_rounded() -> None:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            x = self.act2(self.fc2(self.act1(self.fc1(x))))
            out: Tensor = self.head(torch.round(x))
            return out

    model = Net(act=nn.Tanh)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp", "zero_gradient_path", layer="head", step=0)
def predictions_are_rounded_in_the_loss() -> None:
    model = Mlp(10, 1)
    fit(model, adam(model, 1e-2), batches(diabetes(), 120), lambda out, y: (torch.round(out) - y).square().mean())


@program("attention", "zero_gradient_path", layer="score", step=0)
def softmax_over_the_single_score() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.score, self.head = nn.Linear(8, 32), nn.Linear(32, 1), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.body(x.squeeze(1)))
            share = F.softmax(self.score(h), dim=-1)
            out: Tensor = self.head((share * h).mean(1))
            return out

    model = Net()
    fit(model, adam(model, 5e-3), batches(digits(), 150))


@program("mlp")
def straight_through_rounding() -> None:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            x = self.act2(self.fc2(self.act1(self.fc1(x))))
            out: Tensor = self.head(x + (torch.round(x) - x).detach())
            return out

    model = Net(act=nn.Tanh)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp")
def low_rank_adapter_that_begins_at_zero() -> None:
    class Lora(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(64, 48).requires_grad_(False)
            self.a, self.b = nn.Linear(64, 4, bias=False), nn.Linear(4, 48, bias=False)
            self.head = nn.Linear(48, 10)
            nn.init.zeros_(self.b.weight)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(F.relu(self.base(x) + self.b(self.a(x))))
            return out

    model = Lora()
    fit(model, adam(model, 3e-3), batches(flat_digits(), 120))


@program("mlp")
def auxiliary_loss_weighted_with_zero() -> None:
    class Net(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.aux = nn.Linear(64, 2)

        def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.act2(self.fc2(self.act1(self.fc1(x))))
            return self.head(h), self.aux(h)

    model = Net()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 120):
        out, aux = model.both(x)
        loss = F.cross_entropy(out, y) + 0.0 * F.cross_entropy(aux, y % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---------------------------------------------------------------- tied_weights_broken


@program("transformer", "tied_weights_broken", layer="head", step=0)
def tied_by_a_copy() -> None:
    model = CharGpt()
    nn.init.normal_(model.tok.weight, std=0.02)
    model.head.weight = nn.Parameter(model.tok.weight.clone())
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), char_batches(80), char_loss)


def _made_on_meta(*, again: bool) -> None:
    with torch.device("meta"):
        model = CharGpt()
        model.head.weight = model.tok.weight
    model = model.to_empty(device="cpu")
    if again:
        model.head.weight = model.tok.weight
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05) if parameter.dim() > 1 else nn.init.ones_(parameter)
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), char_batches(80), char_loss)


@program("transformer", "tied_weights_broken", layer="head", step=0)
def tied_on_meta_and_made_empty() -> None:
    _made_on_meta(again=False)


@program("transformer")
def tied_on_meta_and_tied_again() -> None:
    _made_on_meta(again=True)


def _load_over_a_tie(*, again: bool) -> None:
    model = CharGpt()
    model.head.weight = model.tok.weight
    nn.init.normal_(model.tok.weight, std=0.02)
    model.load_state_dict({"tok.weight": model.tok.weight.detach().clone() * 0.5}, strict=False, assign=True)
    if again:
        model.head.weight = model.tok.weight
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), char_batches(80), char_loss)


@program("transformer", "tied_weights_broken", layer="head", step=0)
def tie_lost_in_a_load() -> None:
    _load_over_a_tie(again=False)


@program("transformer")
def tied_again_after_a_load() -> None:
    _load_over_a_tie(again=True)


@program("autoencoder", "tied_weights_broken", layer="dec2", step=0)
def decoder_with_a_copy_of_the_transpose() -> None:
    model = AutoEncoder()
    model.tied = True  # type: ignore[assignment]  # what says that they are meant to stay equal
    model.dec2.weight.data.copy_(model.enc1.weight.data.t())
    fit(model, adam(model, 2e-3), batches(pictures(), 120), F.mse_loss)


@program("autoencoder")
def decoder_that_begins_as_the_transpose() -> None:
    """Sparse autoencoders are initialised like this, and untied by design."""
    model = AutoEncoder()
    model.dec2.weight.data.copy_(model.enc1.weight.data.t())
    fit(model, adam(model, 2e-3), batches(pictures(), 120), F.mse_loss)


@program("transformer")
def blocks_copied_from_one() -> None:
    model = CharGpt(layers=1)
    model.blocks.append(copy.deepcopy(model.blocks[0]))
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), char_batches(80), char_loss)


@program("autoencoder")
def really_tied_decoder() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.bias = nn.Linear(64, 24), nn.Parameter(torch.zeros(64))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(torch.tanh(self.enc(x)), self.enc.weight.t(), self.bias)

    model = Tied()
    fit(model, adam(model, 3e-3), batches(pictures(), 120), F.mse_loss)


# ---------------------------------------------------------------- ema_stale


def _validate(model: nn.Module) -> None:
    x, y = digits()
    mode = model.training
    model.eval()
    with torch.no_grad():
        for part in range(3):
            (model(x[part * 100 : part * 100 + 100]).argmax(1) == y[part * 100 : part * 100 + 100]).float().mean()
    model.train(mode)


@program("convnet", "ema_stale", step=30)
def averaged_model_never_updated() -> None:
    model = ConvNet(norm=False)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    fit(model, adam(model, 2e-3), batches(digits(), 120), after=lambda i: i % 30 == 29 and _validate(averaged))


@program("convnet", "ema_stale", step=30)
def own_average_with_a_decay_of_one() -> None:
    model = ConvNet(norm=False)
    ema = copy.deepcopy(model).requires_grad_(False)

    def after(step: int) -> None:
        with torch.no_grad():
            for a, p in zip(ema.parameters(), model.parameters(), strict=True):
                a.mul_(1.0).add_(p, alpha=0.0)
        if step % 30 == 29:
            _validate(ema)

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=after)


@program("convnet", "ema_stale")
def shadow_weights_never_updated() -> None:
    class Ema:
        def __init__(self, model: nn.Module) -> None:
            self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
            self.backup: dict[str, Tensor] = {}

        def apply(self, model: nn.Module) -> None:
            for name, p in model.named_parameters():
                self.backup[name] = p.data
                p.data = self.shadow[name].clone()

        def restore(self, model: nn.Module) -> None:
            for name, p in model.named_parameters():
                p.data = self.backup[name]

    model = ConvNet(norm=False)
    ema = Ema(model)

    def after(step: int) -> None:
        if step % 30 == 29:
            ema.apply(model)
            _validate(model)
            ema.restore(model)

    fit(model, adam(model, 2e-3), batches(digits(), 125), after=after)


@program("convnet", "ema_stale", step=60)
def average_without_the_statistics() -> None:
    """The weights are averaged, the buffers are not: batch norm of the average never saw a batch."""
    model = ConvNet()
    ema = copy.deepcopy(model).requires_grad_(False)

    def after(step: int) -> None:
        with torch.no_grad():
            for a, p in zip(ema.parameters(), model.parameters(), strict=True):
                a.lerp_(p, 0.1)
        if step in {59, 89}:
            _validate(ema)

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=after)


@program("convnet")
def averaged_model_well_kept() -> None:
    model = ConvNet()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    images, _ = digits()

    def after(step: int) -> None:
        averaged.update_parameters(model)
        if step % 30 == 29:
            update_bn([images[i : i + 100] for i in range(0, 600, 100)], averaged)
            _validate(averaged)

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=after)


@program("mlp")
def fixed_teacher_and_best_checkpoint() -> None:
    model = Mlp()
    teacher = copy.deepcopy(model).eval()
    best = copy.deepcopy(model)
    optimizer = adam(model, 2e-3)
    for step, (x, y) in enumerate(batches(flat_digits(), 120)):
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        out = model(x)
        loss = F.cross_entropy(out, y) + 0.01 * F.kl_div(out.log_softmax(1), soft, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            best.load_state_dict(model.state_dict())
            with torch.no_grad():
                best(x)


@program("dqn")
def target_network_updated_now_and_then() -> None:
    online = Mlp(10, 4)
    target = copy.deepcopy(online)
    optimizer = adam(online, 1e-3)
    for step, (x, y) in enumerate(batches(diabetes(), 150)):
        with torch.no_grad():
            goal = y + 0.5 * target(x.roll(1, 0)).max(1, keepdim=True).values
        loss = F.smooth_l1_loss(online(x)[:, :1], goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 100:
            target.load_state_dict(online.state_dict())


# ---------------------------------------------------------------- train_mode_in_eval


@program("convnet", "train_mode_in_eval", step=30)
def validation_without_eval() -> None:
    model = ConvNet(p=0.2)
    x_val, y_val = digits()

    def after(step: int) -> None:
        if step % 30 == 29:
            with torch.no_grad():
                for part in range(0, 400, 100):
                    (model(x_val[part : part + 100]).argmax(1) == y_val[part : part + 100]).float().mean()

    fit(model, adam(model, 2e-3), batches(digits(), 120), after=after)


@program("mlp", "train_mode_in_eval", step=25)
def validation_without_eval_or_no_grad() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer = adam(model, 2e-3)
    x_val, y_val = flat_digits()
    for step, (x, y) in enumerate(batches(flat_digits(), 100)):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24:
            total = 0.0
            for part in range(0, 300, 100):
                total += F.cross_entropy(model(x_val[part : part + 100]), y_val[part : part + 100]).item()


@program("mlp")
def monte_carlo_dropout() -> None:
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 1))
    optimizer = adam(model, 3e-3)
    x_val, _ = diabetes()
    x_val = x_val[:50]
    for step, (x, y) in enumerate(batches(diabetes(), 120)):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            with torch.no_grad():
                torch.stack([model(x_val) for _ in range(8)]).std(0)


@program("convnet")
def pseudo_labels_in_training_mode() -> None:
    model = ConvNet(p=0.1)
    optimizer = adam(model, 2e-3)
    for x, y in batches(digits(), 120):
        with torch.no_grad():
            guess = model(x + 0.02 * torch.randn_like(x)).softmax(1)
        out = model(x)
        loss = F.cross_entropy(out, y) + 0.05 * F.mse_loss(out.softmax(1), guess)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("convnet")
def eval_and_back() -> None:
    model = ConvNet(p=0.2)
    fit(model, adam(model, 2e-3), batches(digits(), 120), after=lambda i: i % 30 == 29 and _validate(model))


# ---------------------------------------------------------------- wrong_custom_backward


class _Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 - s))  # the product rule is forgotten


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, -(grad.t() @ x) / len(x)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + 4 * x.abs()) ** 2


class _GoodSwish(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


def _with(function: type[torch.autograd.Function], *more: float) -> nn.Module:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(function.apply(self.fc2(self.act1(self.fc1(x))), *more))
            return out

    return Net(act=nn.Tanh)


@program("mlp", "wrong_custom_backward", step=0)
def swish_without_the_product_rule() -> None:
    model = _with(_Swish)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp", "wrong_custom_backward", step=0)
def linear_with_a_wrong_sign() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.weight = nn.Linear(64, 48), nn.Parameter(torch.randn(10, 48) * 0.1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = _Linear.apply(F.relu(self.fc1(x)), self.weight)
            return out

    model = Net()
    fit(model, sgd(model, 0.1), batches(flat_digits(), 120))


@program("mlp")
def swish_done_right() -> None:
    model = _with(_GoodSwish)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120))


@program("mlp")
def rounding_straight_through_function() -> None:
    model = _with(_Round)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150))


@program("mlp")
def spiking_surrogate() -> None:
    model = _with(_Spike)
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150))


@program("mlp")
def gradient_reversal() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.label, self.domain = nn.Linear(64, 48), nn.Linear(48, 10), nn.Linear(48, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.body(x))
            return self.label(h), self.domain(_Reverse.apply(h, 0.05))

    model = Net()
    optimizer = adam(model, 2e-3)
    for x, y in batches(flat_digits(), 120):
        label, domain = model(x)
        loss = F.cross_entropy(label, y) + 0.1 * F.cross_entropy(domain, (torch.arange(len(x)) % 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp", "detached_graph", step=400)
def detached_from_a_step_on() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            x = F.relu(self.fc2(F.relu(self.fc1(x))))
            x = x.detach() if self.calls > 400 else x
            out: Tensor = self.head(x)
            return out

    model = Net()
    fit(model, sgd(model, 0.02, momentum=0.9), batches(flat_digits(), 700))
