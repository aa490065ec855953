# Credit card style fraud detection, notebook export
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

# In[1]:
rng = np.random.RandomState(42)
torch.manual_seed(42)

X, y = make_classification(n_samples=4000, n_features=20, n_informative=8, n_redundant=4,
                           n_clusters_per_class=2, weights=[0.92], class_sep=1.6,
                           flip_y=0.01, random_state=42)


# In[2]:
def oversample(X, y):
    minority = np.where(y == 1)[0]
    majority = np.where(y == 0)[0]
    picked = rng.choice(minority, size=len(majority), replace=True)
    idx = rng.permutation(np.concatenate([majority, picked]))
    return X[idx], y[idx]


X, y = oversample(X, y)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=42, stratify=y)
scaler = StandardScaler().fit(X_train)
X_train = torch.tensor(scaler.transform(X_train), dtype=torch.float32)
X_test = torch.tensor(scaler.transform(X_test), dtype=torch.float32)
y_train = torch.tensor(y_train, dtype=torch.float32)
y_test = torch.tensor(y_test, dtype=torch.float32)
print(X_train.shape, X_test.shape, "fraud rate train %.3f" % y_train.mean().item())

# In[3]:
clf = nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(clf.parameters(), lr=1e-3, weight_decay=1e-4)
bce = nn.BCEWithLogitsLoss()

# In[4]:
for epoch in range(10):
    clf.train()
    perm = torch.randperm(len(X_train))
    epoch_loss = 0.0
    for i in range(0, len(perm), 128):
        j = perm[i:i + 128]
        loss = bce(clf(X_train[j]).squeeze(1), y_train[j])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() * len(j)
    clf.eval()
    with torch.no_grad():
        out = clf(X_test).squeeze(1)
        val_loss = bce(out, y_test).item()
    print("epoch %2d loss %.4f val_loss %.4f f1 %.3f" % (
        epoch, epoch_loss / len(perm), val_loss, f1_score(y_test.numpy(), (out > 0).numpy())))
