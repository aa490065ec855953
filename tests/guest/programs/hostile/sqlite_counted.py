"""sqlite3.connect is replaced by one that counts and gives every connection a factory of rows of its own."""

import sqlite3

import torch
from torch import nn

connect, opened = sqlite3.connect, []


class Row(dict):
    def __init__(self, cursor, values):
        super().__init__(zip([column[0] for column in cursor.description], values))


def counted(database, *args, **kwargs):
    connection = connect(database, *args, **kwargs)
    if database == ":memory:":
        opened.append(database)
    connection.row_factory = Row
    return connection


sqlite3.connect = counted

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []


def train(steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2] * 2).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE loss (step INTEGER, value REAL)")
for i in range(25):
    train(1)
    db.execute("INSERT INTO loss VALUES (?, ?)", (i, losses[-1]))
print(db.execute("SELECT count(*) AS n, min(value) AS least FROM loss").fetchone(), opened)
