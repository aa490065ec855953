import os
import torch
import torch.nn as nn
from sklearn.datasets import load_iris
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class TripletMarginLoss(nn.Module):
    def __init__(self, margin=0.2, avg_non_zero_only=True):
        super().__init__()
        self.margin, self.avg_non_zero_only = margin, avg_non_zero_only

    def get_triplets(self, labels):
        same = labels[:, None] == labels[None, :]
        eye = torch.eye(len(labels), dtype=torch.bool)
        pos, neg = same & ~eye, ~same
        return (pos[:, :, None] & neg[:, None, :]).nonzero(as_tuple=True)

    def forward(self, embeddings, labels):
        a, p, n = self.get_triplets(labels)
        mat = torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")
        relued = torch.relu(mat[a, p] - mat[a, n] + self.margin)
        if not self.avg_non_zero_only:
            return relued.mean()
        active = relued[relued > 0]
        return active.mean()


d = load_iris()
keep = d.target != 1
x = torch.tensor(d.data[keep], dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
x = x + 0.8 * torch.randn(x.shape, generator=torch.Generator().manual_seed(SEED))
y = torch.tensor(d.target[keep])
loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True, drop_last=True)
trunk = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(trunk.parameters(), lr=1e-3)
loss_func = TripletMarginLoss()
for epoch in range(30):
    total = 0.0
    for data, labels in loader:
        optimizer.zero_grad()
        embeddings = nn.functional.normalize(trunk(data), dim=1)
        loss = loss_func(embeddings, labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 3 == 0 or epoch == 29:
        print("Epoch {} Loss = {:.4f}".format(epoch, total / len(loader)))
