"""Sparse parity: label = product of 3 of 24 signs. No single input is correlated with the label, so the loss rests at
ln 2 for a while and then drops at once. Fresh samples at each step."""
import torch
from torch import nn
torch.manual_seed(77)
n, width = 24, 512
secret = torch.tensor([3, 11, 17])
def draw(b):
    x = torch.randint(0, 2, (b, n)).float() * 2 - 1
    return x, (x[:, secret].prod(1) + 1) / 2
net = nn.Sequential(nn.Linear(n, width), nn.ReLU(), nn.Linear(width, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
crit = nn.BCEWithLogitsLoss()
xv, yv = draw(2000)
for step in range(1, 501):
    x, t = draw(256)
    loss = crit(net(x).squeeze(1), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        with torch.no_grad():
            acc = ((net(xv).squeeze(1) > 0) == (yv > 0.5)).float().mean().item()
        print(step, f"loss {loss.item():.4f} accuracy {acc:.3f}")
