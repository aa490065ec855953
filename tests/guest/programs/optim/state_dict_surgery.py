"""Optimizer and model state dicts saved, changed by hand and loaded mid-run, with assign=True and strict=False."""
import copy
import io

import torch
from torch import nn

torch.manual_seed(54)
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
ls, msgs = [], []
best = None
for i in range(24):
    x = torch.randn(6, 4)
    l = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
    if i == 5:
        best = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    if i == 11:
        sd = {k: v * 0.99 if v.is_floating_point() else v for k, v in best[0].items()}
        net.load_state_dict(sd, assign=True)
        net.requires_grad_(True)
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        opt.load_state_dict(best[1])
    if i == 17:
        buf = io.BytesIO()
        torch.save({"m": net.state_dict(), "o": opt.state_dict(), "i": i}, buf)
        buf.seek(0)
        ck = torch.load(buf, weights_only=True)
        del ck["m"]["0.bias"]
        ck["m"]["extra"] = torch.ones(1)
        msgs.append(str(net.load_state_dict(ck["m"], strict=False)))
        opt.load_state_dict(ck["o"])
print(msgs, ls[-1])
