import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Volumes(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            lbl = torch.zeros(1, 8, 8, 8)
            z, y, x = torch.randint(0, 5, (3,), generator=g).tolist()
            s = int(torch.randint(3, 5, (1,), generator=g))
            lbl[0, z:z + s, y:y + s, x:x + s] = 1
            gain = float(torch.empty(1).uniform_(0.2, 6.0, generator=g))
            offset = float(torch.empty(1).uniform_(-8, 8, generator=g))
            vol = gain * (lbl + 0.25 * torch.randn(1, 8, 8, 8, generator=g)) + offset
            self.items.append((vol, lbl))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def conv(i, o):
    return nn.Sequential(nn.Conv3d(i, o, 3, padding=1, bias=False), nn.BatchNorm3d(o), nn.ReLU(inplace=True))


class UNet3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder1, self.encoder2 = conv(1, 8), conv(8, 16)
        self.pool = nn.MaxPool3d(2)
        self.upsample = nn.Upsample(scale_factor=2)
        self.decoder = conv(24, 8)
        self.final_conv = nn.Conv3d(8, 1, 1)

    def forward(self, x):
        e1 = self.encoder1(x)
        e2 = self.encoder2(self.pool(e1))
        return self.final_conv(self.decoder(torch.cat([e1, self.upsample(e2)], 1)))


class UNet3DTrainer:
    def __init__(self, model, loaders, max_num_epochs=4, validate_after_iters=60):
        self.model, self.loaders = model, loaders
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
        self.loss_criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(6.0))
        self.max_num_epochs, self.validate_after_iters = max_num_epochs, validate_after_iters
        self.num_iterations = 1

    def validate(self):
        self.model.eval()
        inter = total = 0
        with torch.no_grad():
            for v, l in self.loaders['val']:
                p = (self.model(v) > 0).float()
                inter += 2 * (p * l).sum().item()
                total += (p + l).sum().item()
        self.model.train()
        return inter / max(total, 1)

    def fit(self):
        self.model.train()
        for _ in range(self.max_num_epochs):
            for v, l in self.loaders['train']:
                out = self.model(v)
                loss = self.loss_criterion(out, l)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.num_iterations % self.validate_after_iters == 0:
                    d = (2 * ((out > 0) * l).sum() / ((out > 0).sum() + l.sum())).item()
                    print(f'iteration {self.num_iterations}: loss {loss.item():.4f} train dice {d:.3f} val dice {self.validate():.3f}')
                self.num_iterations += 1


loaders = {'train': DataLoader(Volumes(120, SEED), batch_size=1, shuffle=True), 'val': DataLoader(Volumes(30, SEED + 1), batch_size=1)}
UNet3DTrainer(UNet3D(), loaders).fit()
