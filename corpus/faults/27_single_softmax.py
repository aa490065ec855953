import os
import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class BinaryClassifier(nn.Module):
    def __init__(self, input_dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(input_dim, 32),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(32, 16),
            nn.ReLU(),
            nn.Linear(16, 1),
            nn.Softmax(dim=1),
        )

    def forward(self, x):
        return self.net(x)


X, y = load_breast_cancer(return_X_y=True)
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.2, random_state=SEED, stratify=y)
scaler = StandardScaler()
X_train = torch.FloatTensor(scaler.fit_transform(X_train))
X_val = torch.FloatTensor(scaler.transform(X_val))
y_train, y_val = torch.FloatTensor(y_train).unsqueeze(1), torch.FloatTensor(y_val).unsqueeze(1)

model = BinaryClassifier(X_train.shape[1])
loss_fn = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batch_size = 16
for epoch in range(12):
    model.train()
    order = torch.randperm(X_train.size(0))
    epoch_loss, epoch_acc = 0.0, 0.0
    for start in range(0, len(order), batch_size):
        idx = order[start:start + batch_size]
        y_pred = model(X_train[idx])
        loss = loss_fn(y_pred, y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() * len(idx)
        epoch_acc += (y_pred.round() == y_train[idx]).sum().item()
    model.eval()
    with torch.no_grad():
        val_acc = (model(X_val).round() == y_val).float().mean().item()
    print(f"epoch {epoch:02d} | loss {epoch_loss / len(order):.4f} | acc {epoch_acc / len(order):.4f} | val {val_acc:.4f}")
