"""Labels of the wrong position, heads of another row, divergences of the wrong sign; and what looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import Mlp, adam, batches, flat_digits
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

EARLY = ("healthy", "inconclusive")


class Tagger(nn.Module):
    """Tags each token by itself and its neighbours, tokens (B, T) to scores (B, tags, T)."""

    def __init__(self, tokens: int = 30, tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, 24)
        self.mix = nn.Conv1d(24, 32, 3, padding=1)
        self.out = nn.Conv1d(32, tags, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.out(F.relu(self.mix(self.embed(tokens).transpose(1, 2))))
        return out


class Vae(nn.Module):
    """Gives the reconstruction, mean and logarithm of the variance."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(64, 16), Mlp(8, 64, depth=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.enc(x).chunk(2, 1)
        return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar


def tag(steps: int, flip: bool, shift: int = 0) -> None:
    """Train on tags that are the token modulo 5, of this position, the mirrored one or a neighbour."""
    model = Tagger()
    optimizer = adam(model, 3e-3)
    for _ in range(steps):
        tokens = torch.randint(30, (24, 14))
        tags = (tokens % 5).roll(shift, 1)
        loss = F.cross_entropy(model(tokens), tags.flip(1) if flip else tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("tagger", "target_misaligned", layer="out", step=0, verdict=("failing", "suspect"))
def tags_read_from_the_end() -> None:
    tag(150, flip=True)


@program("tagger", "target_misaligned", step=0, verdict=("failing", "suspect"))
def scores_cut_by_a_view() -> None:
    """Scores (B, T, tags) are viewed as (B, tags, T): each prediction joins scores of several tokens."""
    train_scores(lambda scores: scores.view(len(scores), 5, -1))


@program("tagger")
def scores_turned_by_a_transpose() -> None:
    train_scores(lambda scores: scores.transpose(1, 2))


def train_scores(order: Callable[[Tensor], Tensor]) -> None:
    """Train a tagger whose scores are (B, T, tags) on tags that are the token modulo 5."""
    model = nn.Sequential(nn.Embedding(30, 24), nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = adam(model, 3e-3)
    for _ in range(150):
        tokens = torch.randint(30, (24, 14))
        loss = F.cross_entropy(order(model(tokens)), tokens % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def one_cell_of_a_grid() -> None:
    """One class is chosen among the actions of all cells: scores of all positions in one softmax are meant."""
    model = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten())
    optimizer = adam(model, 5e-3)
    for _ in range(150):
        board, at = torch.randn(32, 2, 6, 6), torch.randint(36, (32,))
        board[torch.arange(32), 0, at // 6, at % 6] = 5.0
        loss = F.cross_entropy(model(board), at + 36 * (board[:, 1].mean((1, 2)) > 0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("tagger")
def tags_of_the_token_before() -> None:
    tag(250, flip=False, shift=1)


@program("transformer", verdict=(*EARLY, "suspect"))
def a_sequence_to_be_reversed() -> None:
    embed, mix, out = nn.Embedding(20, 32), nn.LSTM(32, 48, batch_first=True, bidirectional=True), nn.Linear(96, 20)
    model = nn.ModuleList([embed, mix, out])
    optimizer = adam(model, 5e-3)
    for _ in range(150):
        tokens = torch.randint(20, (24, 8))
        scores = out(mix(embed(tokens))[0])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("vae", "loss_sign_flip", step=0, verdict=("failing", "suspect"))
def divergence_with_a_plus() -> None:
    model = Vae()
    optimizer = adam(model, 2e-3)
    for x, _ in batches(flat_digits(), 150):
        out, mu, logvar = model(x)
        loss = F.mse_loss(out, x) + 0.1 * torch.mean(1 + logvar - mu**2 - torch.exp(logvar))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("vae")
def uncertainty_beside_a_divergence() -> None:
    model = Vae()
    noise = nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.Adam([*model.parameters(), noise], lr=2e-3)
    for x, _ in batches(flat_digits(), 200):
        out, mu, logvar = model(x)
        fit = 0.5 * ((out - x) ** 2 * torch.exp(-noise) + noise).sum(1).mean()
        loss = fit + 0.5 * (logvar.exp() + mu**2 - 1 - logvar).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp")
def two_labels_mixed() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for _ in range(200):
        i, j = torch.randint(1797, (64,)), torch.randint(1797, (64,))
        share = 0.95
        scores = model(share * x[i] + (1 - share) * x[j])
        loss = share * F.cross_entropy(scores, y[i]) + (1 - share) * F.cross_entropy(scores, y[j])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp", ("label_noise", "target_misaligned"), layer="head", step=0, verdict=("failing", "suspect"))
def labels_learnt_by_heart_slowly() -> None:
    x, y = flat_digits()
    x, y = x[:600], y[torch.randperm(1797)[:600]]
    model = Mlp()
    fit_slowly(model, x, y)


def fit_slowly(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train for a few passes over few samples."""
    optimizer = adam(model, 5e-4)
    for x_batch, y_batch in batches((x, y), 150):
        loss = F.cross_entropy(model(x_batch), y_batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
