"""Activation checkpointing, reentrant and not, with dropout whose mask has to be drawn twice the same."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(5)
block = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 8))
tail = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
opt = torch.optim.AdamW([*block.parameters(), *tail.parameters()], lr=1e-2)
out = []
for i in range(16):
    x = torch.randn(4, 8, requires_grad=True)
    h = checkpoint(block, x, use_reentrant=bool(i % 2))
    h = checkpoint_sequential(tail, 2, h, use_reentrant=False)
    loss = (h - x.detach()).abs().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    out.append(loss.item())
print(sum(out))
