# RGB-D: a decoder predicts a coarse and a fine depth map from a colour image
import torch
import torch.nn as nn
import torch.nn.functional as F


class Trainer(object):
    def __init__(self, model, optimizer, loader, max_epoch):
        self.model, self.optim = model, optimizer
        self.loader, self.max_epoch = loader, max_epoch
        self.iteration = 0

    def train_epoch(self, epoch):
        self.model.train()
        total = 0.0
        for img, depth in self.loader:
            low_depth, high_depth = self.model(img)
            half = F.avg_pool2d(depth.unsqueeze(1), 2).squeeze(1)
            loss1 = F.smooth_l1_loss(low_depth, half)
            loss2 = F.smooth_l1_loss(high_depth, depth)
            loss = 0.3 * loss1 + loss2
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.iteration += 1
            total += loss.item()
        print("epoch %d  iteration %d  loss %.5f" % (epoch, self.iteration, total / len(self.loader)))

    def train(self):
        for epoch in range(self.max_epoch):
            self.train_epoch(epoch)


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.enc2 = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.low = nn.Conv2d(32, 1, 1)
        self.dec = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.ReLU())
        self.high = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(a)
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.low(b), self.high(self.dec(torch.cat([a, up], 1)))


def scenes(n, seed):
    """a wall whose brightness falls with distance, one box in front of it"""
    g = torch.Generator().manual_seed(seed)
    depth = torch.rand(n, 1, 1, generator=g) * 2 + 1 + torch.linspace(0, 1, 24)[None, None, :] * torch.randn(n, 1, 1, generator=g)
    depth = depth.expand(n, 24, 24).clone()
    for k in range(n):
        t, l = torch.randint(0, 14, (2,), generator=g).tolist()
        depth[k, t:t + 10, l:l + 10] = torch.rand(1, generator=g).item() + 0.2
    shade = torch.exp(-0.6 * depth)
    img = torch.stack([shade, shade * 0.8, shade * 0.5 + 0.1], 1)
    return img + 0.01 * torch.randn(img.shape, generator=g), depth


if __name__ == "__main__":
    torch.manual_seed(0)
    img, depth = scenes(256, 0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(img, depth), batch_size=16, shuffle=True)
    model = DepthNet()
    Trainer(model, torch.optim.Adam(model.parameters(), lr=2e-3), loader, 8).train()
    model.eval()
    vi, vd = scenes(64, 1)
    with torch.no_grad():
        err = (model(vi)[1][:, 0] - vd).abs().mean().item()
    print("mean absolute depth error %.4f  (depth std %.3f)" % (err, vd.std().item()))
