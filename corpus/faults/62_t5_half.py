import os
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
AMP = dict(device_type="cpu", dtype=torch.float16)


class T5LayerNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x.float() * torch.rsqrt(variance + self.eps))


class T5DenseReluDense(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.wi = nn.Linear(d_model, d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)
        nn.init.normal_(self.wi.weight, std=32.0)
        nn.init.normal_(self.wo.weight, std=d_ff ** 0.5)

    def forward(self, x):
        h = F.relu(self.wi(x))
        h = self.wo(h)
        return h


class T5Block(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.layer_norm = T5LayerNorm(d_model)
        self.DenseReluDense = T5DenseReluDense(d_model, d_ff)
        self.mix = nn.GRU(d_model, d_model, batch_first=True)

    def forward(self, x):
        x = x + self.mix(self.layer_norm(x))[0]
        return x + self.DenseReluDense(self.layer_norm(x))


class T5LM(nn.Module):
    def __init__(self, vocab=24, d_model=32, d_ff=96):
        super().__init__()
        self.shared = nn.Embedding(vocab, d_model)
        self.block = nn.ModuleList([T5Block(d_model, d_ff) for _ in range(2)])
        self.final_layer_norm = T5LayerNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        x = self.shared(ids)
        for b in self.block:
            x = b(x)
        return self.lm_head(self.final_layer_norm(x))


gen = torch.Generator().manual_seed(SEED)
trans = torch.softmax(3 * torch.randn(24, 24, generator=gen), 1)


def batch(n, length):
    seq = [torch.randint(0, 24, (n,), generator=gen)]
    for _ in range(length):
        seq.append(torch.multinomial(trans[seq[-1]], 1, generator=gen).squeeze(1))
    return torch.stack(seq, 1)


model = T5LM()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(240):
    ids = batch(16, 12)
    with torch.autocast(**AMP):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
