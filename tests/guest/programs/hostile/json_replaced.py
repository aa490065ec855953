"""json, pickle and struct are replaced by versions that refuse everything, as a sandbox of an evaluation server does.

problems: allowed
"""

import json
import pickle
import struct

import torch
from torch import nn

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


train(10)


class Refused(Exception):
    pass


def refuse(*args, **kwargs):
    raise Refused("not in here")


kept = json.dumps, json.loads, pickle.dumps, struct.pack
json.dumps = json.loads = json.dump = json.load = refuse
json.JSONEncoder.encode = json.JSONEncoder.iterencode = refuse
pickle.dumps = pickle.loads = struct.pack = refuse
train(20)
print(json.dumps is refuse, losses[-1])
