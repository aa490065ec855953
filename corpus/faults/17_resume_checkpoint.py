import io
import os
import torch
import torch.nn as nn
from sklearn.datasets import load_diabetes

SEED = int(os.environ.get("SEED", 0))
d = load_diabetes()
X = torch.tensor(d.data, dtype=torch.float32)
X = (X - X.mean(0)) / X.std(0)
g0 = torch.Generator().manual_seed(SEED)
W = torch.randn(10, 3, generator=g0)
Y = torch.tanh(X @ W / 2).sum(1, keepdim=True) + torch.sin(X[:, :1] * 2)


def build():
    net = nn.Sequential(nn.Linear(10, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    opt = torch.optim.Adam(net.parameters(), lr=4e-3, betas=(0.9, 0.999))
    return net, opt


def training_loop(net, opt, start, total, gen):
    for it in range(start, total):
        idx = torch.randint(0, len(X), (64,), generator=gen)
        loss = nn.functional.mse_loss(net(X[idx]), Y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if it % 25 == 0 or start and it < start + 6:
            print(f"it {it:4d} loss {loss.item():.5f}")
    return total


def snapshot(net, opt, it):
    buf = io.BytesIO()
    torch.save({"net": net.state_dict(), "it": it}, buf)
    buf.seek(0)
    return buf


def resume(buf):
    ckpt = torch.load(buf)
    net, opt = build()
    net.load_state_dict(ckpt["net"])
    return net, opt, ckpt["it"]


torch.manual_seed(SEED)
gen = torch.Generator().manual_seed(SEED + 1)
net, opt = build()
it = training_loop(net, opt, 0, 250, gen)
net, opt, it = resume(snapshot(net, opt, it))
training_loop(net, opt, it, 500, gen)
