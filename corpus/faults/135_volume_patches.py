"""3D patch classification (synthetic volumes) with random augmentation in loader workers."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Augment:
    """random rotation in the plane, contrast, noise; all drawn from one random state"""

    def __init__(self, random_state):
        self.random_state = random_state

    def __call__(self, m):
        m = np.rot90(m, self.random_state.randint(0, 4), (1, 2))
        for axis in range(3):
            if self.random_state.uniform() > 0.5:
                m = np.flip(m, axis)
        m = m * self.random_state.uniform(0.6, 1.8)
        m = np.roll(m, tuple(self.random_state.randint(-3, 4, 3)), (0, 1, 2))
        return (m + self.random_state.normal(0, 0.3, m.shape)).astype("float32")


def volume(rs, label):
    zz, yy, xx = np.mgrid[:12, :12, :12]
    c = rs.uniform(4, 8, 3)
    d = np.stack([zz - c[0], yy - c[1], xx - c[2]])
    r = np.sqrt((d ** 2).sum(0))
    shell = np.exp(-(r - 3.2) ** 2) * 1.3
    ball = np.exp(-(r / 2.6) ** 2) * 1.5
    return (shell if label else ball).astype("float32")


class VolumeDataset(Dataset):
    def __init__(self, n, seed, training):
        rs = np.random.RandomState(seed)
        self.labels = np.arange(n) % 2
        self.volumes = [volume(rs, y) for y in self.labels]
        # same seed as in the config file
        self.transform = Augment(np.random.RandomState(47))
        self.training = training

    def __len__(self):
        return len(self.volumes)

    def __getitem__(self, i):
        return torch.from_numpy(self.transform(self.volumes[i]).copy())[None], int(self.labels[i])


def init_worker(worker_id):
    torch.set_num_threads(1)


class Net3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
                                      nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2))
        self.classifier = nn.Sequential(nn.Linear(16 * 27, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    train = DataLoader(VolumeDataset(16, 1, True), batch_size=2, shuffle=True, num_workers=2, worker_init_fn=init_worker)
    val = DataLoader(VolumeDataset(100, 2, False), batch_size=50)
    model = Net3D()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(25):
        model.train()
        losses = []
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch % 5 == 4:
            model.eval()
            val.dataset.transform.random_state = np.random.RandomState(5)
            with torch.no_grad():
                out = [(model(x), y) for x, y in val]
            vl = np.mean([nn.functional.cross_entropy(o, y).item() for o, y in out])
            acc = np.mean([(o.argmax(1) == y).float().mean().item() for o, y in out])
            print("epoch %d train %.3f  val %.3f  acc %.3f" % (epoch, np.mean(losses), vl, acc))


if __name__ == "__main__":
    main()
