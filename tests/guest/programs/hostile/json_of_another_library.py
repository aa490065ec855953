"""json.dumps is that of another library, which returns bytes."""

import json

import torch
from torch import nn

text_of = json.dumps
json.dumps = lambda value, **more: text_of(value).encode()
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(10):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item()}))
