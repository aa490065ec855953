"""bfloat16 autocast on the CPU with a GradScaler, unscale_, clipping, and a skipped step from an inf."""
import torch
from torch import nn

torch.manual_seed(45)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
info = []
for i in range(20):
    x = torch.randn(6, 8)
    if i == 9:
        x[0, 0] = float("inf")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
        loss = nn.functional.cross_entropy(out, x[:, :4].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    n = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    info.append((loss.item(), n.item(), scaler.get_scale()))
print(out.dtype, info[-1])
