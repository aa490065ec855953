"""Closes all descriptors, then keeps results in SQLite databases of its own, in every journal mode."""

import os
import sqlite3
import tempfile
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []


def train(steps: int, pause: float = 0.0) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(pause)


folder = tempfile.mkdtemp()
train(10, 0.06)
os.closerange(3, 1024)
numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(509)]
databases = [sqlite3.connect(os.path.join(folder, f"{mode}.db")) for mode in ("wal", "delete", "truncate", "persist")]
for mode, database in zip(("wal", "delete", "truncate", "persist"), databases, strict=True):
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("CREATE TABLE loss (step INTEGER, value REAL)")
for step in range(30):
    train(1, 0.04)
    for database in databases:
        with database:
            database.execute("INSERT INTO loss VALUES (?, ?)", (step, losses[-1]))
for database in databases:
    print(database.execute("PRAGMA integrity_check").fetchone(), database.execute("SELECT count(*), sum(value) FROM loss").fetchone())
    database.close()
print("last loss", repr(losses[-1]))
del folder  # another at each run
