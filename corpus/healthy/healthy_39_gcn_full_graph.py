"""Semi-supervised GCN on a planted-partition graph. The whole graph is the batch in every step; 4 % of the nodes have a label."""
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(18)
N, C, D = 900, 4, 32
y = torch.arange(N) % C
same = (y[:, None] == y[None]).float()
prob = 0.022 * same + 0.004 * (1 - same)
A = torch.triu((torch.rand(N, N) < prob).float(), 1); A = A + A.T + torch.eye(N)
dinv = A.sum(1).rsqrt()
S = dinv[:, None] * A * dinv[None]
X = torch.randn(C, D)[y] * 0.35 + torch.randn(N, D)
X = (X - X.mean(0)) / X.std(0)
p = torch.randperm(N)
train, val, test = p[:80], p[80:300], p[300:]


class GCN(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.w1, self.w2 = nn.Linear(D, h), nn.Linear(h, C)
    def forward(self, x, s):
        x = F.dropout(x, 0.3, self.training)
        x = F.relu(s @ self.w1(x))
        x = F.dropout(x, 0.5, self.training)
        return s @ self.w2(x)


net = GCN()
opt = torch.optim.Adam([{"params": net.w1.parameters(), "weight_decay": 5e-4}, {"params": net.w2.parameters()}], lr=0.01)
best, best_test = 0, 0
for ep in range(150):
    net.train()
    loss = F.cross_entropy(net(X, S)[train], y[train])
    opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        ok = (net(X, S).argmax(1) == y).float()
    if ok[val].mean() > best:
        best, best_test = ok[val].mean().item(), ok[test].mean().item()
    if ep % 30 == 29:
        print(ep + 1, f"loss {loss.item():.3f} train {ok[train].mean():.3f} val {ok[val].mean():.3f} test {ok[test].mean():.3f}")
print("selected on val", round(best, 3), "test", round(best_test, 3), "chance", 1 / C)
