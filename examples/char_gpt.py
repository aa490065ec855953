"""Train a character-level transformer on the source code of Python's own standard library.

`--softmax` puts a softmax in front of the cross entropy, which applies one itself: a mistake that raises no error and
lets the loss fall a little, then stall.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 64
BATCH_SIZE = 16
WIDTH = 128
HEADS = 4
LAYERS = 4
CORPUS_CHARS = 1_000_000


class Attention(nn.Module):
    """Causal self-attention over (batch, time, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.proj(y.transpose(1, 2).reshape(batch, time, width))
        return out


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class CharGPT(nn.Module):
    """Characters of shape (batch, time) in, logits of shape (batch, time, vocabulary) out."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def read_corpus() -> str:
    """Return the beginning of the standard library's source, its files in alphabetical order."""
    text = ""
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= CORPUS_CHARS:
            break
    return text[:CORPUS_CHARS]


def sample_batch(data: Tensor) -> tuple[Tensor, Tensor]:
    """Return random windows and the same windows one character later, both of shape (batch, time)."""
    starts = torch.randint(len(data) - BLOCK - 1, (BATCH_SIZE, 1))
    windows = data[starts + torch.arange(BLOCK + 1)]
    return windows[:, :-1], windows[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--softmax", action="store_true", help="apply softmax before the cross entropy (the fault)")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    text = read_corpus()
    alphabet = sorted(set(text))
    index = {character: i for i, character in enumerate(alphabet)}
    data = torch.tensor([index[character] for character in text])

    model = CharGPT(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    size = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(alphabet)} different; {size:,} parameters")

    for step in range(args.steps):
        inputs, targets = sample_batch(data)
        outputs = model(inputs)
        if args.softmax:
            outputs = outputs.softmax(dim=-1)
        loss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
