"""One trunk, three heads on digit images: which digit, how much ink, and whether it has a closed loop."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self):
        bunch = load_digits()
        self.x = torch.tensor(bunch.data, dtype=torch.float32) / 16
        self.digit = torch.tensor(bunch.target)
        ink = self.x.sum(1)
        self.ink = (ink - ink.mean()) / ink.std()
        self.loop = torch.isin(self.digit, torch.tensor([0, 6, 8, 9])).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "digit": self.digit[i], "ink": self.ink[i], "loop": self.loop[i]}


class MultiHead(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.digit_head = nn.Linear(width, 10)
        self.ink_head = nn.Linear(width, 1)
        self.loop_head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        return {
            "digit": self.digit_head(h),
            "ink": self.ink_head(h).squeeze(1),
            "loop": self.loop_head(h).squeeze(1),
        }


def compute_loss(out, batch):
    digit_loss = F.cross_entropy(out["digit"], batch["digit"])
    ink_loss = F.mse_loss(out["ink"], batch["ink"])
    loop_loss = F.binary_cross_entropy_with_logits(out["loop"], batch["loop"])
    return digit_loss + ink_loss + loop_loss


def make_step(model, optimizer):
    def step(batch):
        optimizer.zero_grad()
        out = model(batch["x"])
        loss = compute_loss(out, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def run(seed):
    torch.manual_seed(seed)
    loader = DataLoader(Digits(), batch_size=64, shuffle=True)
    model = MultiHead()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = make_step(model, optimizer)
    for epoch in range(7):
        history = [step(batch) for batch in loader]
        print(f"epoch {epoch}: {sum(history) / len(history):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    run(parser.parse_args().seed)
