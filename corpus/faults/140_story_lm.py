"""Word-level language model on generated stories.

The model is created without memory first, then allocated and initialised.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 0
    dim: int = 64
    heads: int = 4
    layers: int = 2
    block: int = 32
    use_weight_tying: bool = True


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1 = nn.LayerNorm(c.dim)
        self.ln2 = nn.LayerNorm(c.dim)
        self.heads = c.heads
        self.qkv = nn.Linear(c.dim, 3 * c.dim)
        self.proj = nn.Linear(c.dim, c.dim)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.ln2(x))


class GPT2LLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c.vocab, c.dim)
        self.wpe = nn.Embedding(c.block, c.dim)
        self.h = nn.ModuleList([Block(c) for _ in range(c.layers)])
        self.lm_head_norm = nn.LayerNorm(c.dim)
        self.lm_head = nn.Linear(c.dim, c.vocab, bias=False)
        if c.use_weight_tying:
            self.wte.weight = self.lm_head.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.lm_head_norm(x))


def initialise(model):
    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, 0.0, 0.05)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, nn.LayerNorm):
            m.reset_parameters()


def corpus(n=40000, vocab=240, topics=12):
    """stories: the topic of the next word follows from the last two topics"""
    g = torch.Generator().manual_seed(1)
    nxt = torch.randint(0, topics, (topics, topics), generator=g)
    noise = torch.rand(n, generator=g)
    pick = torch.multinomial(1.0 / torch.arange(1, vocab // topics + 1).float(), n, replacement=True, generator=g)
    t, ids = [0, 1], []
    for k in range(n):
        z = int(nxt[t[-2], t[-1]]) if noise[k] > 0.15 else int(noise[k] / 0.15 * topics)
        t.append(z)
        ids.append(int(pick[k]) * topics + z)
    return torch.tensor(ids), vocab


def main():
    torch.manual_seed(0)
    ids, vocab = corpus()
    train_ids, val_ids = ids[:-1200], ids[-1200:]
    cfg = Config(vocab=vocab)
    with torch.device("meta"):
        model = GPT2LLM(cfg)
    model = model.to_empty(device="cpu")
    initialise(model)
    print("words", len(ids), "parameters", sum(p.numel() for p in model.parameters()))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)

    def val_loss():
        model.eval()
        with torch.no_grad():
            x = torch.stack([val_ids[k:k + cfg.block] for k in range(0, 1150, 16)])
            y = torch.stack([val_ids[k + 1:k + 1 + cfg.block] for k in range(0, 1150, 16)])
            out = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
        model.train()
        return out

    for step in range(300):
        start = torch.randint(0, len(train_ids) - cfg.block - 1, (16,))
        x = torch.stack([train_ids[s:s + cfg.block] for s in start])
        y = torch.stack([train_ids[s + 1:s + 1 + cfg.block] for s in start])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 24:
            v = val_loss()
            print(f"step {step + 1} train {loss.item():.3f} val {v:.3f} ppl {math.exp(v):.1f}")


if __name__ == "__main__":
    main()
