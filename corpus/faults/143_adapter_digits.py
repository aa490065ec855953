"""Adapt a frozen digit classifier to inverted images with low-rank side matrices."""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class LoRALayer(nn.Module):
    def __init__(self, in_features, out_features, r=8, lora_alpha=16):
        super().__init__()
        self.lora_A = nn.Parameter(torch.zeros((in_features, r)), requires_grad=True)
        self.lora_B = nn.Parameter(torch.zeros((r, out_features)), requires_grad=True)
        self.scaling = lora_alpha / r

    def forward(self, x):
        return (x @ self.lora_A @ self.lora_B) * self.scaling


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 64)
        self.out = nn.Linear(64, 10)
        self.lora = None

    def add_adapter(self):
        for p in self.parameters():
            p.requires_grad = False
        self.lora = LoRALayer(64, 64)

    def forward(self, x):
        h = self.fc1(x)
        if self.lora is not None:
            h = h + self.lora(x)
        h = torch.relu(h)
        return self.out(torch.relu(self.fc2(h)))


def fit(model, x, y, steps, lr, tag):
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=lr, weight_decay=0.0)
    model.train()
    for i in range(steps):
        idx = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (i + 1) % 40 == 0:
            print(tag, i + 1, "loss %.4f" % loss.item())


@torch.no_grad()
def score(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    d = load_digits()
    x = torch.tensor(d.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(d.target)
    p = torch.randperm(len(x))
    tr, te = p[:1400], p[1400:]

    model = DigitNet()
    fit(model, x[tr], y[tr], 160, 3e-3, "base")
    print("base accuracy %.3f, inverted %.3f" % (score(model, x[te], y[te]), score(model, -x[te], y[te])))

    model.add_adapter()
    fit(model, -x[tr], y[tr], 240, 1e-2, "adapter")
    print("inverted accuracy %.3f" % score(model, -x[te], y[te]))
