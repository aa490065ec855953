import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(0)
T = 60
betas = torch.linspace(1e-4, 0.08, T)
alphas_cumprod = torch.cumprod(1 - betas, 0)

images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
kernel = torch.tensor([[1., 2., 1.], [2., 4., 2.], [1., 2., 1.]]).view(1, 1, 3, 3) / 16


def defocus(x, level):
    for _ in range(level):
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode='replicate'), kernel)
    return x


def timestep_embedding(t, dim=32):
    freqs = torch.exp(-math.log(1000.) * torch.arange(dim // 2) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, ch, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, ch), nn.GroupNorm(4, ch)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.emb = nn.Linear(emb, ch)

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(e)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class RefocusUNet(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(32, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU())
        self.conv_in = nn.Conv2d(2, ch, 3, padding=1)
        self.block1 = ResBlock(ch, 48)
        self.block2 = ResBlock(ch, 48)
        self.conv_out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, sample, timesteps, cond):
        e = self.time_mlp(timestep_embedding(timesteps))
        h = self.conv_in(torch.cat([sample, cond], dim=1))
        return self.conv_out(self.block2(self.block1(h, e), e))


unet = RefocusUNet()
optimizer = torch.optim.AdamW(unet.parameters(), lr=3e-3, weight_decay=1e-2)
max_train_steps = 240
lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_train_steps)

train_images, val_images = images[:1500], images[1500:]
global_step = 0
running = 0.0
while global_step < max_train_steps:
    unet.train()
    idx = torch.randint(0, len(train_images), (32,))
    focus = train_images[idx]
    cond = defocus(focus, 2)
    noise = torch.randn_like(focus)
    timesteps = torch.randint(0, T, (len(focus),))
    ac = alphas_cumprod[timesteps].view(-1, 1, 1, 1)
    noisy = ac.sqrt() * focus + (1 - ac).sqrt() * noise
    model_pred = unet(noisy, timesteps, cond)
    loss = F.mse_loss(model_pred, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    lr_scheduler.step()
    optimizer.zero_grad()
    running += loss.item()
    global_step += 1
    if global_step % 30 == 0:
        print('step %d  train_loss %.4f  lr %.2e' % (global_step, running / 30, lr_scheduler.get_last_lr()[0]))
        running = 0.0

unet.eval()
with torch.no_grad():
    g = torch.Generator().manual_seed(1)
    noise = torch.randn(val_images.shape, generator=g)
    timesteps = torch.arange(len(val_images)) % T
    ac = alphas_cumprod[timesteps].view(-1, 1, 1, 1)
    noisy = ac.sqrt() * val_images + (1 - ac).sqrt() * noise
    print('val loss %.4f' % F.mse_loss(unet(noisy, timesteps, defocus(val_images, 2)), noise).item())
