"""Next-day return from 20 alphas. Signal is tiny: theoretical R^2 is 3 %."""
import numpy as np, torch, torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader
torch.manual_seed(7); rng = np.random.default_rng(7)

N, D = 24000, 20
X = rng.standard_normal((N, D)).astype("float32")
w = np.zeros(D); w[:6] = [0.5, -0.4, 0.3, 0.3, -0.25, 0.2]
sig = X @ w + 0.3 * np.tanh(X[:, 6] * 1.5)
sig = sig / sig.std()
ret = 0.0004 + 0.012 * (np.sqrt(0.03) * sig + np.sqrt(0.97) * rng.standard_t(6, N) / np.sqrt(1.5))
cut = 18000                                    # split in time, never at random
m, s = ret[:cut].mean(), ret[:cut].std()       # scale by the training part only
y = ((ret - m) / s).astype("float32")
xm, xs = X[:cut].mean(0), X[:cut].std(0)
X = (X - xm) / xs
Xtr, ytr = torch.from_numpy(X[:cut]), torch.from_numpy(y[:cut])
Xte, yte = torch.from_numpy(X[cut:]), torch.from_numpy(y[cut:])

net = nn.Sequential(nn.Linear(D, 16), nn.GELU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(Xtr, ytr), batch_size=512, shuffle=True, drop_last=True)
for epoch in range(10):
    net.train(); tot = 0.0
    for xb, yb in loader:
        loss = nn.functional.mse_loss(net(xb).squeeze(-1), yb)
        opt.zero_grad(); loss.backward(); opt.step()
        tot += loss.item()
    net.eval()
    with torch.no_grad():
        p = net(Xte).squeeze(-1)
        r2 = 1 - ((p - yte) ** 2).mean() / ((yte - ytr.mean()) ** 2).mean()
        ic = torch.corrcoef(torch.stack([p, yte]))[0, 1]
    print(f"epoch {epoch} train mse {tot/len(loader):.4f}  oos R2 {r2:.4f}  IC {ic:.3f}")
