import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 16


def render(rng):
    img = rng.randn(SIZE, SIZE).astype(np.float32) * 0.3
    h, w = rng.randint(3, 7, 2)
    y0, x0 = rng.randint(0, SIZE - h), rng.randint(0, SIZE - w)
    img[y0:y0 + h, x0:x0 + w] += 1.5
    return img, (x0, y0, x0 + w, y0 + h)


class ShelfDataset(torch.utils.data.Dataset):
    CATEGORIES = ("product",)

    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        self.items = [render(rng) for _ in range(n)]
        self.class_to_id = {c: i for i, c in enumerate(self.CATEGORIES)}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, box = self.items[i]
        return torch.from_numpy(img)[None], torch.tensor(box, dtype=torch.float32), self.class_to_id["product"]


class FCOSHead(nn.Module):
    def __init__(self, channels=24, num_classes=1):
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=2, dilation=2), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=2, dilation=2), nn.ReLU(),
        )
        self.cls_logits = nn.Conv2d(channels, num_classes, 3, padding=1)
        self.bbox_pred = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x):
        t = self.tower(x)
        return self.cls_logits(t), F.softplus(self.bbox_pred(t))


ys, xs = torch.meshgrid(torch.arange(SIZE) + 0.5, torch.arange(SIZE) + 0.5, indexing="ij")


def compute_targets(boxes, class_ids):
    l = xs[None] - boxes[:, 0, None, None]
    t = ys[None] - boxes[:, 1, None, None]
    r = boxes[:, 2, None, None] - xs[None]
    b = boxes[:, 3, None, None] - ys[None]
    ltrb = torch.stack([l, t, r, b], 1)
    inside = ltrb.min(1).values > 0
    labels = torch.where(inside, class_ids[:, None, None], torch.zeros_like(inside, dtype=torch.long))
    return labels, ltrb


class FCOSLossComputation:
    def __call__(self, cls, reg, labels, ltrb):
        num_classes = cls.size(1)
        labels_flatten = labels.reshape(-1)
        cls_flatten = cls.permute(0, 2, 3, 1).reshape(-1, num_classes)
        reg_flatten = reg.permute(0, 2, 3, 1).reshape(-1, 4)
        reg_targets = ltrb.permute(0, 2, 3, 1).reshape(-1, 4)
        pos_inds = torch.nonzero(labels_flatten > 0).squeeze(1)
        class_range = torch.arange(1, num_classes + 1)[None]
        one_hot = (labels_flatten[:, None] == class_range).float()
        cls_loss = F.binary_cross_entropy_with_logits(cls_flatten, one_hot)
        reg_flatten, reg_targets = reg_flatten[pos_inds], reg_targets[pos_inds]
        if pos_inds.numel() > 0:
            reg_loss = F.smooth_l1_loss(reg_flatten, reg_targets)
        else:
            reg_loss = reg_flatten.sum()
        return cls_loss, reg_loss


@torch.no_grad()
def recall(model, loader):
    model.eval()
    hit = n = 0
    for img, box, _ in loader:
        cls, reg = model(img)
        best = cls.sigmoid().flatten(1).max(1)
        cx, cy = xs.flatten()[best.indices], ys.flatten()[best.indices]
        d = reg.flatten(2)[torch.arange(len(img)), :, best.indices]
        pred = torch.stack([cx - d[:, 0], cy - d[:, 1], cx + d[:, 2], cy + d[:, 3]], 1)
        wh = (torch.min(pred[:, 2:], box[:, 2:]) - torch.max(pred[:, :2], box[:, :2])).clamp(min=0)
        inter = wh.prod(1)
        union = (pred[:, 2:] - pred[:, :2]).prod(1) + (box[:, 2:] - box[:, :2]).prod(1) - inter
        hit += ((best.values > 0.5) & (inter / union > 0.5)).sum().item()
        n += len(img)
    return hit / n


def main():
    torch.manual_seed(0)
    train = torch.utils.data.DataLoader(ShelfDataset(800, 0), batch_size=16, shuffle=True)
    val = torch.utils.data.DataLoader(ShelfDataset(160, 1), batch_size=40)
    model, criterion = FCOSHead(), FCOSLossComputation()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        model.train()
        for img, box, class_id in train:
            labels, ltrb = compute_targets(box, class_id)
            loss_cls, loss_reg = criterion(*model(img), labels, ltrb)
            optimizer.zero_grad()
            (loss_cls + loss_reg).backward()
            optimizer.step()
        print("epoch %d loss_cls %.4f loss_reg %.4f recall@0.5 %.3f" %
              (epoch, loss_cls.item(), loss_reg.item(), recall(model, val)))


if __name__ == "__main__":
    main()
