"""Sparse autoencoder on synthetic superposed activations."""
from dataclasses import dataclass
from enum import Enum

import torch
from torch import nn


class LossReductionType(Enum):
    MEAN = "mean"
    SUM = "sum"


@dataclass
class Hyperparameters:
    n_input: int = 32
    n_learned: int = 64
    batch_size: int = 256
    steps: int = 500
    lr: float = 0.02
    momentum: float = 0.9
    l1: float = 0.02
    reduction: LossReductionType = LossReductionType.SUM


class SparseAutoencoder(nn.Module):
    def __init__(self, n_input, n_learned):
        super().__init__()
        self.tied_bias = nn.Parameter(torch.zeros(n_input))
        self.encoder = nn.Linear(n_input, n_learned)
        self.decoder = nn.Linear(n_learned, n_input, bias=False)
        with torch.no_grad():
            w = torch.randn(n_input, n_learned)
            self.decoder.weight.copy_(w / w.norm(dim=0, keepdim=True))
            self.encoder.weight.copy_(self.decoder.weight.t())
            self.encoder.bias.zero_()

    def forward(self, x):
        learned = torch.relu(self.encoder(x - self.tied_bias))
        return learned, self.decoder(learned) + self.tied_bias


class L2ReconstructionLoss:
    def __call__(self, source, decoded):
        return (source - decoded).pow(2).sum(dim=-1)


class LearnedActivationsL1Loss:
    def __init__(self, coefficient):
        self.coefficient = coefficient

    def __call__(self, learned):
        return learned.abs().sum(dim=-1) * self.coefficient


def reduce_batch(itemwise, reduction):
    return itemwise.sum() if reduction == LossReductionType.SUM else itemwise.mean()


class ActivationStore:
    def __init__(self, n_input, n_features=48, generator=None):
        self.g = generator
        d = torch.randn(n_features, n_input, generator=self.g)
        self.directions = d / d.norm(dim=1, keepdim=True)

    def batch(self, n):
        on = (torch.rand(n, len(self.directions), generator=self.g) < 0.05).float()
        strength = 0.5 + torch.rand(n, len(self.directions), generator=self.g)
        return (on * strength) @ self.directions


def run(hp: Hyperparameters):
    torch.manual_seed(0)
    store = ActivationStore(hp.n_input, generator=torch.Generator().manual_seed(1))
    held_out = store.batch(2048)
    model = SparseAutoencoder(hp.n_input, hp.n_learned)
    optimizer = torch.optim.SGD(model.parameters(), lr=hp.lr, momentum=hp.momentum)
    recon, sparsity = L2ReconstructionLoss(), LearnedActivationsL1Loss(hp.l1)
    for step in range(hp.steps):
        source = store.batch(hp.batch_size)
        learned, decoded = model(source)
        loss = reduce_batch(recon(source, decoded) + sparsity(learned), hp.reduction)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    with torch.no_grad():
        learned, decoded = model(held_out)
        explained = 1 - (held_out - decoded).pow(2).sum() / (held_out - held_out.mean(0)).pow(2).sum()
        print(f"explained variance {explained.item():.3f}  L0 {(learned > 0).float().sum(1).mean().item():.1f}")


if __name__ == "__main__":
    run(Hyperparameters())
