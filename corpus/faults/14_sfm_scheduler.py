import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, v):
        self.sum += v
        self.count += 1

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class DispNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU())
        self.enc2 = nn.Sequential(nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU())
        self.dec1 = nn.Sequential(nn.ConvTranspose2d(24, 12, 4, 2, 1), nn.ReLU())
        self.dec2 = nn.ConvTranspose2d(24, 1, 4, 2, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        d1 = self.dec1(self.enc2(e1))
        return F.softplus(self.dec2(torch.cat([d1, e1], 1)))


def batch(n, g, size=16):
    low = torch.rand(n, 1, 4, 4, generator=g)
    depth = F.interpolate(low, size=(size, size), mode="bilinear", align_corners=False) * 2
    img = torch.exp(-depth) + 0.05 * torch.randn(n, 1, size, size, generator=g)
    return (img - 0.4) / 0.2, depth


def smooth_loss(d):
    return (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()


def train(net, optimizer, scheduler, iters, w1, w2, gen):
    losses, data_time = AverageMeter(), AverageMeter()
    net.train()
    end = time.time()
    for i in range(iters):
        img, depth = batch(16, gen)
        data_time.update(time.time() - end)
        pred = net(img)
        loss_1 = (pred - depth).abs().mean()
        loss_2 = smooth_loss(pred)
        loss = w1 * loss_1 + w2 * loss_2
        losses.update(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if scheduler:
            scheduler.step()
        else:
            optimizer.step()
        end = time.time()
    return losses.avg


torch.manual_seed(SEED)
gen = torch.Generator().manual_seed(SEED)
net = DispNet()
optimizer = torch.optim.Adam([{"params": net.parameters(), "lr": 3e-3}], betas=(0.9, 0.999), weight_decay=0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=200, gamma=0.5)
for epoch in range(10):
    print("epoch %d avg loss %.4f lr %.5f" % (epoch, train(net, optimizer, scheduler, 40, 1.0, 0.05, gen), optimizer.param_groups[0]["lr"]))
