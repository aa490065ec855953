import inspect
import os
from dataclasses import dataclass
import sched as mod_a
import string as mod_b
import token as mod_c
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))


@dataclass
class Recipe:
    dtype: str = "bf16"
    lr: float = 1e-4
    weight_decay: float = 0.0
    batch_size: int = 8
    max_steps: int = 300
    seq_len: int = 16


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.scale


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = RMSNorm(d)
        self.w1, self.w3, self.w2 = nn.Linear(3 * d, 2 * d, bias=False), nn.Linear(3 * d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        h = self.norm(x)
        ctx = torch.cat([h, F.pad(h, (0, 0, 1, 0))[:, :-1], F.pad(h, (0, 0, 2, 0))[:, :-2]], -1)
        return x + self.w2(F.silu(self.w1(ctx)) * self.w3(ctx))


class Decoder(nn.Module):
    def __init__(self, vocab, d=32):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Layer(d) for _ in range(2)])
        self.norm, self.output = RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, x):
        h = self.tok_embeddings(x)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()


def main(cfg):
    torch.manual_seed(SEED)
    text = "".join(inspect.getsource(m) for m in (mod_a, mod_b, mod_c))
    chars = sorted(set(text))
    ids = torch.tensor([chars.index(c) for c in text])
    model = Decoder(len(chars)).to(torch.bfloat16 if cfg.dtype == "bf16" else torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr * 300, momentum=0.0)
    run = []
    for step in range(cfg.max_steps):
        s = torch.randint(0, len(ids) - cfg.seq_len - 1, (cfg.batch_size,))
        b = torch.stack([ids[i:i + cfg.seq_len + 1] for i in s])
        loss = F.cross_entropy(model(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.append(loss.item())
        if (step + 1) % 50 == 0:
            print(f"{step + 1}|loss: {sum(run[-50:]) / 50:.4f}")


main(Recipe())
