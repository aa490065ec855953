import os
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
MASS = rng.uniform(0.5, 1.5, 21)


class PeptideDataset(Dataset):
    def __init__(self, n):
        self.seqs = [rng.integers(1, 21, rng.integers(6, 16)) for _ in range(n)]
        ccs = np.array([MASS[s].sum() ** 0.8 * 60 + 3 * rng.standard_normal() for s in self.seqs])
        self.mean, self.std = ccs.mean(), ccs.std()
        self.y = ((ccs - self.mean) / self.std).astype(np.float32)

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return torch.tensor(self.seqs[i]), self.y[i]


def collate(batch):
    xs, ys = zip(*batch)
    return pad_sequence(xs, batch_first=True), torch.tensor([len(x) for x in xs]), torch.tensor(ys)


class CCSPredictor(nn.Module):
    def __init__(self, emb=16, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(21, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.regressor = nn.Linear(hidden, 1)
        self.act = nn.ReLU()

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.act(self.regressor(h[-1]))


train_dl = DataLoader(PeptideDataset(1024), batch_size=32, shuffle=True, collate_fn=collate)
model = CCSPredictor()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.MSELoss()
for epoch in range(8):
    losses, preds = [], []
    for x, lengths, y in train_dl:
        optimizer.zero_grad()
        out = model(x, lengths)
        loss = criterion(out, y.unsqueeze(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        preds.append(out.detach())
    p = torch.cat(preds)
    print(f"epoch {epoch}: mse {np.mean(losses):.4f}, pred range {p.min():.2f} .. {p.max():.2f}")
