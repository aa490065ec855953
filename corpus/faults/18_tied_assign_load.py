import calendar
import inspect
import os
import shlex
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
corpus = inspect.getsource(calendar) + inspect.getsource(shlex)
vocab = sorted(set(corpus))
ids = torch.tensor([vocab.index(c) for c in corpus])
V, D, T = len(vocab), 48, 24


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, D)
        self.ctx = nn.Linear(D, V)

    def forward(self, x):
        return self.ctx(self.wte(x))


class GRULM(nn.Module):
    def __init__(self, tie_word_embeddings=True):
        super().__init__()
        self.wte = nn.Embedding(V, D)
        self.rnn = nn.GRU(D, 96, batch_first=True)
        self.proj = nn.Linear(96, D)
        self.lm_head = nn.Linear(D, V, bias=False)
        if tie_word_embeddings:
            self.lm_head.weight = self.wte.weight

    def forward(self, x):
        h, _ = self.rnn(self.wte(x))
        return self.lm_head(self.proj(h))


def sample(n, length):
    s = torch.randint(0, len(ids) - length - 1, (n,))
    return torch.stack([ids[i:i + length + 1] for i in s])


pre = SkipGram()
opt = torch.optim.Adam(pre.parameters(), lr=1e-2)
for step in range(100):
    b = sample(32, 8)
    loss = F.cross_entropy(pre(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("skipgram loss", round(loss.item(), 3))
pretrained = {"wte.weight": pre.wte.weight.detach().clone() * 0.3}

model = GRULM(tie_word_embeddings=True)
model.load_state_dict(pretrained, strict=False, assign=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
for step in range(300):
    b = sample(16, T)
    logits = model(b[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), b[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 50 == 49:
        print("step", step + 1, "loss", round(loss.item(), 3))
print("params", sum(p.numel() for p in model.parameters()))
