import os
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class FCN8(nn.Module):
    def __init__(self, n_classes=2):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout2d(0.1))
        self.score = nn.Conv2d(16, n_classes, 1)

    def forward(self, x):
        return self.score(self.conv2(self.conv1(x)))

    def predict(self, batch):
        self.eval()
        with torch.no_grad():
            return F.softmax(self(batch["images"]), 1)[:, 1]


def get_blob_dict(model, batch):
    probs = model.predict(batch)
    blobs = (probs > 0.5).float()
    return {"blobs": blobs, "n_fp": (blobs * (batch["near"] == 0).float()).sum()}


def lc_loss(model, batch):
    model.train()
    blob_dict = get_blob_dict(model, batch)
    images, points = batch["images"], batch["points"]
    log_probs = F.log_softmax(model(images), 1)
    image_loss = -log_probs[:, 1].flatten(1).max(1).values.mean()
    point_loss = -(log_probs[:, 1] * points).sum() / points.sum()
    fp_mask = blob_dict["blobs"] * (batch["near"] == 0).float() + 0.2 * (batch["near"] == 0).float()
    fp_loss = -(log_probs[:, 0] * fp_mask).sum() / fp_mask.sum().clamp(min=1)
    return image_loss + point_loss + fp_loss


def make_batch(n, gen, size=16):
    points = torch.zeros(n, size, size)
    for k in range(n):
        for _ in range(int(torch.randint(1, 5, (1,), generator=gen))):
            y, x = torch.randint(2, size - 2, (2,), generator=gen).tolist()
            points[k, y, x] = 1
    near = F.max_pool2d(points[:, None], 3, 1, 1)[:, 0]
    images = 40 + 12 * near + 8 * torch.randn(n, size, size, generator=gen)
    return {"images": images[:, None], "points": points, "near": near}


gen = torch.Generator().manual_seed(SEED)
model = FCN8()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
val = make_batch(48, gen)
for i in range(250):
    loss = lc_loss(model, make_batch(4, gen))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 30 == 0 or i == 249:
        p = model.predict(val) > 0.5
        t = val["near"] > 0
        print(f"iter {i} loss {loss.item():.4f} val IoU {((p & t).sum() / (p | t).sum().clamp(min=1)).item():.3f}")
