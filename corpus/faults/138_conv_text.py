"""Sentence classification with parallel convolutions whose outputs are merged."""
from typing import List, Optional

import numpy as np
import torch
from torch import nn


class MergeLayer(nn.Module):
    """Applies every layer to the same input and merges the outputs along ``dim``."""

    def __init__(self, layers: Optional[List[nn.Module]] = None, mode: str = "concat", dim: int = 1):
        super().__init__()
        self._mode = mode
        self._dim = dim
        self._layers: List[nn.Module] = []
        if layers is not None:
            for layer in layers:
                self._layers.append(layer)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        outputs = [layer(input) for layer in self._layers]
        if self._mode == "concat":
            return torch.cat(outputs, dim=self._dim)
        return torch.stack(outputs).sum(0)


class MaxReduce(nn.Module):
    def forward(self, x):
        return x.max(dim=-1).values


class Conv1DClassifier(nn.Module):
    def __init__(self, vocab, dim=10, filters=4, kernel_sizes=(2, 3), classes=4):
        super().__init__()
        self._embedder = nn.Embedding(vocab, dim)
        branches = [nn.Sequential(nn.Conv1d(dim, 24, k), nn.ReLU(), nn.Conv1d(24, filters, 1), nn.ReLU(), MaxReduce())
                    for k in kernel_sizes]
        self._conv = MergeLayer(branches)
        self._dense = nn.Linear(filters * len(kernel_sizes), classes)

    def forward(self, ids):
        return self._dense(self._conv(self._embedder(ids).transpose(1, 2)))


def sentences(n, rs, vocab=40, length=16):
    # the label is the order of two marker words
    x = rs.randint(4, vocab, (n, length))
    y = rs.randint(0, 4, n)
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    for i in range(n):
        p = rs.randint(0, length - 1)
        x[i, p:p + 2] = pairs[y[i]]
        for q in rs.choice(length, 4, replace=False):
            if q not in (p, p + 1):
                x[i, q] = rs.randint(0, 4)
    return torch.tensor(x), torch.tensor(y)


def _run_epoch(model, x, y, opt=None):
    is_train = opt is not None
    model.train(is_train)
    order = torch.randperm(len(x)) if is_train else torch.arange(len(x))
    nsamples, correct, loss_sum = 0, 0, 0.0
    for k in range(0, len(x), 64):
        idx = order[k:k + 64]
        with torch.set_grad_enabled(is_train):
            logits = model(x[idx])
            loss = nn.functional.cross_entropy(logits, y[idx])
        if is_train:
            opt.zero_grad()
            loss.backward()
            opt.step()
        loss_sum += loss.item() * len(idx)
        correct += (logits.argmax(1) == y[idx]).sum().item()
        nsamples += len(idx)
    return loss_sum / nsamples, correct / nsamples


def main():
    torch.manual_seed(2)
    rs = np.random.RandomState(2)
    xt, yt = sentences(2560, rs)
    xv, yv = sentences(512, rs)
    model = Conv1DClassifier(40)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(10):
        tl, ta = _run_epoch(model, xt, yt, opt)
        vl, va = _run_epoch(model, xv, yv)
        print(f"epoch {epoch}: train {tl:.3f}/{ta:.3f}  valid {vl:.3f}/{va:.3f}")


if __name__ == "__main__":
    main()
