import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.preprocessing import StandardScaler
from sklearn.model_selection import train_test_split


class Model(nn.Module):
    def __init__(self, input_size, H1, output_size):
        super().__init__()
        self.linear = nn.Linear(input_size, H1)
        self.linear2 = nn.Linear(H1, output_size)

    def forward(self, x):
        x = torch.sigmoid(self.linear(x))
        x = torch.sigmoid(self.linear2(x))
        return x

    def predict(self, x):
        return (self.forward(x) >= 0.5).float()


def load_recordings(n=800, seed=0):
    rng = np.random.RandomState(seed)
    calm = np.column_stack([rng.normal(68, 7, n // 2), rng.normal(880, 70, n // 2), rng.normal(117, 9, n // 2)])
    angle = rng.uniform(0, 2 * np.pi, n // 2)
    ring = np.column_stack([68 + 30 * np.cos(angle), 880 + 320 * np.sin(angle), np.full(n // 2, 117.0)])
    ring += rng.normal(0, 1, ring.shape) * np.array([4, 40, 9])
    x = np.vstack([calm, ring])
    y = np.concatenate([np.zeros(n // 2), np.ones(n // 2)])
    return x, y


if __name__ == "__main__":
    torch.manual_seed(2)
    x_data, y_data = load_recordings()
    x_train, x_val, y_train, y_val = train_test_split(x_data, y_data, test_size=0.25, random_state=0, stratify=y_data)
    x_train = torch.Tensor(x_train)
    x_val = torch.Tensor(x_val)
    y_train = torch.Tensor(y_train).reshape(-1, 1)
    y_val = torch.Tensor(y_val).reshape(-1, 1)

    model = Model(3, 12, 1)
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    epochs = 40
    losses = []
    for i in range(epochs):
        for idx in torch.randperm(len(x_train)).split(50):
            y_pred = model(x_train[idx])
            loss = criterion(y_pred, y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if i % 5 == 0:
            print("epoch:", i, "loss:", sum(losses[-12:]) / 12)
    with torch.no_grad():
        print("val accuracy", (model.predict(x_val) == y_val).float().mean().item())
