"""Small real trainings whose run files are then damaged: a folder in, runs by name out. Run as a script."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def classifier(folder: Path) -> None:
    """Batch norm, dropout, Adam, a schedule, clipping and evaluations between the steps: a healthy training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    x = torch.randn(64, 8)
    y = x[:, :4].argmax(1)
    with NeuralDbg(model, optimizer, out=folder):
        for step in range(40):
            batch = slice(step % 2 * 32, step % 2 * 32 + 32)
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 9:
                model.eval()
                with torch.no_grad():
                    F.cross_entropy(model(x), y)
                model.train()


def sequence(folder: Path) -> None:
    """Attention over tokens, at a learning rate that soon makes everything NaN."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
            self.rnn = nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(16, 20)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            h = self.embed(ids)
            h = h + self.mix(h, h, h, need_weights=False)[0]
            out: torch.Tensor = self.head(torch.exp(self.rnn(h)[0] * 8).log())
            return out

    torch.manual_seed(1)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), 1e5, momentum=0.9)
    ids = torch.randint(0, 20, (16, 9))
    with NeuralDbg(model, optimizer, out=folder):
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
            optimizer.step()


def regression(folder: Path) -> None:
    """Two optimizers, gradients that are never cleared, a sigmoid before the loss, and an error at the end."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Linear(5, 12), nn.Sigmoid(), nn.Linear(12, 12), nn.Sigmoid(), nn.Linear(12, 1), nn.Sigmoid()
    )
    critic = nn.Linear(1, 1)
    optimizers = torch.optim.SGD(model.parameters(), 0.5), torch.optim.RMSprop(critic.parameters(), 0.01)
    x = torch.randn(48, 5) * 100
    y = x.sum(1, keepdim=True)
    try:
        with NeuralDbg(model, out=folder):
            for _ in range(30):
                F.mse_loss(model(x), y).backward()
                optimizers[0].step()
                critic(model(x).detach()).mean().backward()
                optimizers[1].step()
            raise ValueError("the disk of the cluster is full")  # noqa: TRY301 (as a script does)
    except ValueError:
        pass


PROGRAMS = (classifier, sequence, regression)


def main(root: Path) -> None:
    """Make every run in a folder of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for program in PROGRAMS:
        program(root / program.__name__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
