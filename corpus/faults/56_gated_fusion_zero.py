import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class FusionBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.fusion = nn.Linear(2 * dim, dim)
        self.res_gate = nn.Sequential(
            nn.Linear(dim, dim, bias=False),
            nn.ReLU(),
            nn.Linear(dim, dim, bias=False),
            nn.Tanh(),
        )
        nn.init.zeros_(self.res_gate[0].weight)
        nn.init.zeros_(self.res_gate[2].weight)

    def forward(self, x, l):
        x = x + self.visual(x)
        x_residual = torch.relu(self.fusion(torch.cat([x, l], -1)))
        return x + self.res_gate(x_residual) * x_residual


class ReferringModel(nn.Module):
    def __init__(self, dim=24, n_words=8):
        super().__init__()
        self.patch = nn.Linear(12, dim)
        self.word = nn.Embedding(n_words, dim)
        self.blocks = nn.ModuleList([FusionBlock(dim) for _ in range(2)])
        self.classifier = nn.Linear(dim, 1)

    def forward(self, patches, word):
        x = self.patch(patches)
        l = self.word(word).unsqueeze(1).expand_as(x)
        for blk in self.blocks:
            x = blk(x, l)
        return self.classifier(x).squeeze(-1)


gen = torch.Generator().manual_seed(SEED)
proto = torch.randn(8, 12, generator=gen)
model = ReferringModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
for it in range(500):
    kinds = torch.randint(0, 8, (32, 9), generator=gen)
    patches = proto[kinds] + 0.3 * torch.randn(32, 9, 12, generator=gen)
    word = kinds[torch.arange(32), torch.randint(0, 9, (32,), generator=gen)]
    target = (kinds == word[:, None]).float()
    output = model(patches, word)
    loss = nn.functional.binary_cross_entropy_with_logits(output, target, pos_weight=torch.tensor(3.0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 60 == 0 or it == 499:
        p, t = output > 0, target > 0
        print(f"[{it}] loss {loss.item():.4f} IoU {((p & t).sum() / (p | t).sum()).item():.3f}")
