"""fp16 autocast training with a small home-grown mixed-precision optimizer."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class DynamicScaler:
    def __init__(self, init=2.0 ** 14, growth_interval=200):
        self.value, self.interval, self.good = init, growth_interval, 0

    def update(self, found_inf):
        if found_inf:
            self.value, self.good = max(1.0, self.value / 2), 0
        else:
            self.good += 1
            if self.good % self.interval == 0:
                self.value *= 2


class MixedPrecisionOptimizer:
    def __init__(self, optimizer, scaler):
        self.optimizer, self.scaler = optimizer, scaler

    def params(self):
        return [p for g in self.optimizer.param_groups for p in g["params"] if p.grad is not None]

    def scale_loss(self, loss):
        return loss * self.scaler.value

    @torch.no_grad()
    def prepare_grads(self):
        inv = 1.0 / self.scaler.value
        found_inf = False
        for p in self.params():
            p.grad.mul_(inv)
            found_inf |= not bool(torch.isfinite(p.grad).all())
        return found_inf

    def step(self):
        found_inf = self.prepare_grads()
        if not found_inf:
            torch.nn.utils.clip_grad_norm_(self.params(), 1.0)
            self.optimizer.step()
        self.scaler.update(found_inf)
        return not found_inf

    def zero_grad(self):
        self.optimizer.zero_grad()


def train_one_step(model, optimizer, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    optimizer.scale_loss(loss).backward()
    valid_step = not optimizer.prepare_grads()
    if valid_step:
        valid_step = optimizer.step()
    return loss.item(), valid_step


def main():
    torch.manual_seed(0)
    d = load_digits()
    x = torch.tensor((d.data - d.data.mean(0)) / (d.data.std(0) + 1e-6), dtype=torch.float32).clamp(-5, 5)
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x))
    tr, va = perm[:1400], perm[1400:]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), DynamicScaler())
    it = 0
    for epoch in range(10):
        skipped = 0
        model.train()
        for idx in tr[torch.randperm(len(tr))].split(50):
            loss, ok = train_one_step(model, optimizer, x[idx], y[idx])
            skipped += not ok
            it += 1
        model.eval()
        with torch.no_grad():
            acc = (model(x[va]).argmax(1) == y[va]).float().mean().item()
        print(f"it {it} loss {loss:.4f} skipped {skipped} scale {optimizer.scaler.value:.0f} val acc {acc:.4f}")


if __name__ == "__main__":
    main()
