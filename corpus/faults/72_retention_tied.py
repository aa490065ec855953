# toy retention-style language model with a shared input/output embedding
import math
import inspect
import difflib
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)

text = inspect.getsource(difflib)
vocab = sorted(set(text))
lookup = {ch: i for i, ch in enumerate(vocab)}
data = torch.tensor([lookup[c] for c in text], dtype=torch.long)
n_train = int(len(data) * 0.9)
train_data, valid_data = data[:n_train], data[n_train:]

DIM, CTX, BATCH, STEPS = 192, 32, 16, 240


class Retention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        idx = torch.arange(CTX)
        rel = idx[:, None] - idx[None, :]
        decay = torch.where(rel >= 0, 0.9 ** rel.clamp(min=0).float(), torch.zeros(CTX, CTX))
        self.register_buffer("decay", decay)

    def forward(self, x):
        t = x.size(1)
        att = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(x.size(-1))
        return self.out(F.layer_norm((att * self.decay[:t, :t]) @ self.v(x), (x.size(-1),)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.ret = Retention(dim)
        self.ln2 = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.ret(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class RetNetLM(nn.Module):
    def __init__(self, n_vocab, dim=DIM, layers=2):
        super().__init__()
        self.embed = nn.Embedding(n_vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_vocab, bias=False)
        self.apply(self._init_weights)
        self.head.weight = self.embed.weight

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, idx):
        x = self.embed(idx)
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


def batch_of(src):
    at = torch.randint(0, len(src) - CTX - 1, (BATCH,))
    x = torch.stack([src[i:i + CTX] for i in at])
    y = torch.stack([src[i + 1:i + CTX + 1] for i in at])
    return x, y


net = RetNetLM(len(vocab))
opt = torch.optim.AdamW(net.parameters(), lr=5e-4, betas=(0.9, 0.98), weight_decay=0.01)
warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))

for it in range(STEPS):
    x, y = batch_of(train_data)
    logits = net(x)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    warm.step()
    if it % 50 == 0:
        print(it, round(loss.item(), 3))

net.eval()
with torch.no_grad():
    ls = []
    for _ in range(10):
        x, y = batch_of(valid_data)
        ls.append(F.cross_entropy(net(x).flatten(0, 1), y.flatten()).item())
print("valid loss", round(sum(ls) / len(ls), 3))
