import torch
from torch.nn import Sequential as Seq, Linear as Lin
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(0)

X = torch.rand((1280, 3))
y = X[:, 0] + X[:, 1] + X[:, 2]
X_tr, y_tr, X_te, y_te = X[:1024], y[:1024], X[1024:], y[1024:]
loader = DataLoader(TensorDataset(X_tr, y_tr), batch_size=64, shuffle=True)

m = Seq(Lin(3, 1))
optim = torch.optim.SGD(m.parameters(), lr=10e-2)
scheduler = ReduceLROnPlateau(optim, 'min', factor=0.5, patience=10)
mse = torch.nn.MSELoss()

for epoch in range(30):
    epoch_loss = 0
    for xb, yb in loader:
        optim.zero_grad()
        out = m(xb)
        loss = mse(out, yb)
        loss.backward()
        optim.step()
        epoch_loss += loss.item() / len(loader)
    if epoch % 5 == 0:
        print(epoch, epoch_loss)
    scheduler.step(epoch_loss)

with torch.no_grad():
    pred = m(X_te).flatten()
    print('mean abs error', (pred - y_te).abs().mean().item())
    print(m[0].weight, m[0].bias)
