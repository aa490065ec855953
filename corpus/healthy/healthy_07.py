import inspect
import os
import bisect
import copy as copymod
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
text = inspect.getsource(bisect) + inspect.getsource(copymod)
chars = sorted(set(text))
V, MASK, L, D = len(chars) + 1, len(chars), 32, 48
ids = torch.tensor([chars.index(c) for c in text])


class MLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.pos = nn.Parameter(0.02 * torch.randn(1, L, D))
        layer = nn.TransformerEncoderLayer(D, 4, 96, dropout=0.1, batch_first=True, norm_first=True, activation="gelu")
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.decoder = nn.Linear(D, V)
        self.decoder.weight = self.emb.weight

    def forward(self, x):
        return self.decoder(self.norm(self.enc(self.emb(x) + self.pos)))


def mask_tokens(x):
    labels = x.clone()
    m = torch.rand(x.shape) < 0.15
    labels[~m] = -100
    inp = x.clone()
    inp[m & (torch.rand(x.shape) < 0.9)] = MASK
    return inp, labels


model = MLM()
decay = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=4e-3)
total = 300
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 30, max(0.0, (total - s) / (total - 30))))
avg = []
for step in range(total):
    s = torch.randint(0, len(ids) - L, (16,))
    inp, labels = mask_tokens(torch.stack([ids[i:i + L] for i in s]))
    loss = F.cross_entropy(model(inp).view(-1, V), labels.view(-1), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    avg.append(loss.item())
    if step % 50 == 49:
        print({"step": step + 1, "loss": round(sum(avg[-50:]) / 50, 4), "lr": round(sched.get_last_lr()[0], 6)})
