"""A small framework of its own: a Trainer with callbacks, events, a progress printer that uses \\r, early stopping."""
import sys

import torch
from torch import nn


class Stop(Exception):
    pass


class Callback:
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *a, **k: None
        raise AttributeError(name)


class Early(Callback):
    best, bad = float("inf"), 0

    def on_epoch_end(self, t, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        if self.bad > 1:
            raise Stop


class Bar(Callback):
    def on_batch_end(self, t, i):
        sys.stdout.write(f"\r{t.epoch}:{i:02d}")

    def on_epoch_end(self, t, loss):
        sys.stdout.write(f" {loss!r}\n")


class Trainer:
    def __init__(self, net, opt, cbs):
        self.net, self.opt, self.cbs, self.epoch = net, opt, cbs, 0

    def emit(self, name, *a):
        for c in self.cbs:
            getattr(c, "on_" + name)(self, *a)

    def fit(self, data):
        try:
            for self.epoch in range(20):
                self.emit("epoch_begin")
                tot = 0.0
                for i, (x, y) in enumerate(data):
                    loss = nn.functional.mse_loss(self.net(x), y)
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                    tot += loss.item()
                    self.emit("batch_end", i)
                self.emit("epoch_end", tot)
        except Stop:
            print("stopped early at", self.epoch)


torch.manual_seed(143)
net = nn.Linear(3, 1)
data = [(x := torch.randn(8, 3), x.sum(1, keepdim=True) + torch.randn(8, 1)) for _ in range(4)]
Trainer(net, torch.optim.SGD(net.parameters(), lr=0.5), [Early(), Bar()]).fit(data)
