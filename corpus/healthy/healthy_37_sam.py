"""Sharpness-aware minimisation, written out: ascend to w + rho g/|g|, take the gradient there, come back, step."""
import torch
from torch import nn
from sklearn.datasets import load_digits


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params = [p for p in params]
        self.base, self.rho, self.saved = base, rho, []

    @torch.no_grad()
    def climb(self):
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in self.params]))
        self.saved = [p.detach().clone() for p in self.params]
        for p in self.params:
            p.add_(p.grad, alpha=float(self.rho / (norm + 1e-12)))

    @torch.no_grad()
    def descend(self):
        for p, s in zip(self.params, self.saved):
            p.copy_(s)
        self.base.step()


torch.manual_seed(2024)
D = load_digits()
order = torch.randperm(len(D.data))
x = torch.tensor(D.data, dtype=torch.float32)[order]
y = torch.tensor(D.target)[order]
x = (x - x[:1400].mean()) / x[:1400].std()

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
sam = SAM(model.parameters(), sgd, rho=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=15)
ce = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(15):
    model.train()
    for i in torch.randperm(1400).split(70):
        state = torch.get_rng_state()
        sgd.zero_grad()
        loss = ce(model(x[i]), y[i])
        loss.backward()
        sam.climb()
        sgd.zero_grad()                              # the first gradient has done its work
        torch.set_rng_state(state)                   # same dropout mask in both passes
        ce(model(x[i]), y[i]).backward()
        sam.descend()
    sched.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    if epoch % 3 == 2:
        print(epoch, f"loss {loss.item():.3f} test accuracy {acc:.3f}")
