import math
import inspect
import tarfile
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    dim: int = 64
    heads: int = 4
    layers: int = 2
    seq: int = 32
    batch: int = 24
    steps: int = 500
    lr: float = 4e-3


class ScaledDotProduct(nn.Module):
    def __init__(self, causal: bool = False, seq_len: Optional[int] = None):
        super().__init__()
        self.causal = causal
        if causal:
            self.register_buffer("tri", torch.tril(torch.ones(seq_len, seq_len, dtype=torch.bool)))

    def forward(self, q, k, v, att_mask: Optional[torch.Tensor] = None):
        s = q.shape[-2]
        if att_mask is not None:
            if self.causal:
                att_mask = att_mask & self.tri[:s, :s]
        score = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if att_mask is not None:
            score = score.masked_fill(~att_mask, float("-inf"))
        return score.softmax(-1) @ v


class MultiHeadDispatch(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.heads = cfg.heads
        self.in_proj = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.attention = ScaledDotProduct(causal=True, seq_len=cfg.seq)
        self.proj = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x, att_mask=None):
        b, s, d = x.shape
        q, k, v = self.in_proj(x).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = self.attention(q, k, v, att_mask=att_mask)
        return self.proj(y.transpose(1, 2).reshape(b, s, d))


class DecoderBlock(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.wrap_att = nn.LayerNorm(cfg.dim)
        self.mha = MultiHeadDispatch(cfg)
        self.wrap_ff = nn.LayerNorm(cfg.dim)
        self.feedforward = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x):
        x = x + self.mha(self.wrap_att(x))
        return x + self.feedforward(self.wrap_ff(x))


class GPT(nn.Module):
    def __init__(self, cfg: Config, vocab: int):
        super().__init__()
        self.tok = nn.Embedding(vocab, cfg.dim)
        self.pos = nn.Parameter(torch.randn(1, cfg.seq, cfg.dim) * 0.5)
        self.blocks = nn.Sequential(*[DecoderBlock(cfg) for _ in range(cfg.layers)])
        self.ln_f = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, vocab)

    def forward(self, idx):
        x = self.tok(idx) + self.pos[:, :idx.shape[1]]
        return self.head(self.ln_f(self.blocks(x)))


def main():
    torch.manual_seed(0)
    cfg = Config()
    text = inspect.getsource(tarfile)
    chars = sorted(set(text))
    table = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([table[c] for c in text])
    cut = int(len(data) * 0.9)
    train, valid = data[:cut], data[cut:]

    def get(part, n):
        i = torch.randint(0, len(part) - cfg.seq - 1, (n,))
        x = torch.stack([part[j:j + cfg.seq] for j in i])
        y = torch.stack([part[j + 1:j + cfg.seq + 1] for j in i])
        return x, y

    model = GPT(cfg, len(chars))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=cfg.steps, pct_start=0.15)
    for step in range(cfg.steps):
        x, y = get(train, cfg.batch)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        x, y = get(valid, 128)
        vl = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
        half = cfg.seq // 2
        pred = model(x[:, :half])[:, -1].argmax(-1)
        print(f"valid loss {vl:.3f}  generation: next char right {(pred == x[:, half]).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
