import os
import random
import tempfile
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


def write_dataset(root, n):
    for k in range(n):
        mask = np.zeros((12, 12), dtype=np.int64)
        for c in (1, 2):
            y, x = np.random.randint(0, 8, 2)
            mask[y:y + 4, x:x + 4] = c
        img = np.array([0.0, 1.0, -1.0])[mask] + 0.3 * np.random.randn(12, 12)
        np.save(os.path.join(root, f"0016E5_{8000 + k}.npy"), img.astype(np.float32))
        np.save(os.path.join(root, f"0016E5_{8000 + k}_L.npy"), mask)


def list_files(img_dir):
    files = sorted(os.listdir(img_dir))
    random.shuffle(files)
    return files


def read_images(img_dir):
    file_list = list_files(img_dir)
    frames_list = [f for f in file_list if '_L' not in f]
    masks_list = [f for f in file_list if '_L' in f]
    print(len(frames_list), 'frame files found,', len(masks_list), 'mask files found')
    return frames_list, masks_list


class SegData(Dataset):
    def __init__(self, img_dir):
        frames, masks = read_images(img_dir)
        self.data = [(np.load(os.path.join(img_dir, a)), np.load(os.path.join(img_dir, b))) for a, b in zip(frames, masks)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        img, mask = self.data[i]
        return torch.from_numpy(img)[None], torch.from_numpy(mask)


with tempfile.TemporaryDirectory() as root:
    write_dataset(root, 200)
    ds = SegData(root)
train_ds, val_ds = torch.utils.data.random_split(ds, [170, 30], torch.Generator().manual_seed(SEED))
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(),
                      nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 3, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
crit = nn.CrossEntropyLoss(weight=torch.tensor([0.4, 1.0, 1.0]))
for epoch in range(14):
    tot = 0
    for img, mask in DataLoader(train_ds, batch_size=10, shuffle=True):
        opt.zero_grad()
        loss = crit(model(img), mask)
        loss.backward()
        opt.step()
        tot += loss.item()
    with torch.no_grad():
        x, m = (torch.stack(t) for t in zip(*val_ds))
        pred = model(x).argmax(1)
        iou = [((pred == c) & (m == c)).sum().item() / max(1, ((pred == c) | (m == c)).sum().item()) for c in range(3)]
    print(f"epoch {epoch} loss {tot / 17:.4f} mean IoU {np.mean(iou):.3f}")
