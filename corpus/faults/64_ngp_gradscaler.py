import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class RadianceField(nn.Module):
    def __init__(self, n_freq=4, hidden=64):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freq) * torch.pi / 2)
        self.mlp = nn.Sequential(nn.Linear(2 + 4 * n_freq, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, xy):
        a = (xy[..., None] * self.freqs).flatten(-2)
        return self.mlp(torch.cat([xy, a.sin(), a.cos()], -1)).squeeze(-1)


def make_scene():
    rows = [torch.tensor(load_digits().images[SEED + k], dtype=torch.float32) / 16 for k in range(4)]
    img = torch.cat([torch.cat(rows[:2], 1), torch.cat(rows[2:], 1)], 0)
    return F.interpolate(img[None, None], scale_factor=4, mode="bilinear", align_corners=True)[0, 0]


img = make_scene()
radiance_field = RadianceField()
max_steps = 500
grad_scaler = torch.amp.GradScaler("cpu", init_scale=2 ** 10)
optimizer = torch.optim.SGD(radiance_field.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[max_steps // 2, max_steps * 3 // 4], gamma=0.33)
side = img.size(0)
for step in range(max_steps + 1):
    iy, ix = torch.randint(0, side, (512,)), torch.randint(0, side, (512,))
    rays = torch.stack([ix, iy], -1).float() / (side - 1) * 2 - 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rgb = radiance_field(rays)
    loss = F.smooth_l1_loss(rgb.float(), img[iy, ix])
    optimizer.zero_grad()
    grad_scaler.scale(loss).backward()
    if True:
        optimizer.step()
        scheduler.step()
    if step % 50 == 0:
        mse = F.mse_loss(rgb.float(), img[iy, ix]).item()
        print(f"step={step} | loss={loss.item():.5f} | mse={mse:.5f}")
