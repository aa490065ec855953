import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

np.random.seed(12)
torch.manual_seed(12)
USERS, ITEMS, FACT = 150, 120, 4

pu, qi = np.random.randn(USERS, FACT), np.random.randn(ITEMS, FACT)
score = pu @ qi.T + 0.3 * np.random.randn(USERS, ITEMS)
liked = np.argsort(-score, axis=1)[:, :30]
train_pos, test_pos = {}, {}
for u in range(USERS):
    items = np.random.permutation(liked[u])
    train_pos[u], test_pos[u] = set(items[:24].tolist()), set(items[24:].tolist())


def sample_negatives(num_ng=3):
    rows = []
    for u in range(USERS):
        for i in train_pos[u]:
            rows.append((u, i, 1.0))
            for _ in range(num_ng):
                j = np.random.randint(ITEMS)
                while j in train_pos[u]:
                    j = np.random.randint(ITEMS)
                rows.append((u, j, 0.0))
    return np.array(rows)


class NeuMF(nn.Module):
    def __init__(self, user_num, item_num, factors=16):
        super().__init__()
        self.embed_user_GMF = nn.Embedding(user_num, factors)
        self.embed_item_GMF = nn.Embedding(item_num, factors)
        self.embed_user_MLP = nn.Embedding(user_num, factors)
        self.embed_item_MLP = nn.Embedding(item_num, factors)
        self.MLP_layers = nn.Sequential(
            nn.Dropout(0.1), nn.Linear(2 * factors, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.predict_layer = nn.Linear(factors + 16, 1)
        for e in [self.embed_user_GMF, self.embed_item_GMF, self.embed_user_MLP, self.embed_item_MLP]:
            nn.init.normal_(e.weight, std=0.1)

    def forward(self, user, item):
        gmf = self.embed_user_GMF(user) * self.embed_item_GMF(item)
        mlp = self.MLP_layers(torch.cat((self.embed_user_MLP(user), self.embed_item_MLP(item)), -1))
        pred = self.predict_layer(torch.cat((gmf, mlp), -1))
        return pred.sigmoid().view(-1)


def hit_ratio(model, k=10):
    model.eval()
    hits, total = 0, 0
    items = torch.arange(ITEMS)
    with torch.no_grad():
        for u in range(USERS):
            s = model(torch.full((ITEMS,), u), items)
            s[list(train_pos[u])] = -1e9
            top = set(s.topk(k).indices.tolist())
            hits += len(top & test_pos[u])
            total += len(test_pos[u])
    return hits / total


model = NeuMF(USERS, ITEMS)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(1, 8):
    rows = sample_negatives()
    loader = DataLoader(TensorDataset(torch.tensor(rows[:, 0]).long(), torch.tensor(rows[:, 1]).long(),
                                      torch.tensor(rows[:, 2]).float()), batch_size=256, shuffle=True)
    model.train()
    current_loss = 0.
    for user, item, label in loader:
        model.zero_grad()
        loss = criterion(model(user, item), label)
        loss.backward()
        optimizer.step()
        current_loss += loss.item()
    print('[Epoch %03d] loss %.4f  recall@10 %.4f' % (epoch, current_loss / len(loader), hit_ratio(model)))
