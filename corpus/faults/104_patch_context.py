"""Predict the token that repairs a line, given the buggy line and its surrounding code."""
import argparse

import numpy as np
import torch
import torch.nn as nn

VOCAB, SRC_LEN, N_OPS, N_TYPES = 60, 10, 4, 5


def corpus(n, rng):
    src = rng.integers(20, VOCAB, (n, SRC_LEN))
    ctx = rng.integers(20, VOCAB, (n, SRC_LEN))
    op, typ = rng.integers(0, N_OPS, n), rng.integers(0, N_TYPES, n)
    src[np.arange(n), rng.integers(0, SRC_LEN, n)] = 1 + op
    ctx[np.arange(n), rng.integers(0, SRC_LEN, n)] = 10 + typ
    return torch.from_numpy(src), torch.from_numpy(ctx), torch.from_numpy(op * N_TYPES + typ)


class SeqEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        return torch.relu(self.conv(x)).amax(-1)


class ContextEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.input_encoder = SeqEncoder(dim)
        self.context_encoder = SeqEncoder(dim)

    def forward(self, src_tokens, ctx_tokens):
        src_output = self.input_encoder(src_tokens)
        ctx_output = self.context_encoder(src_tokens)
        return torch.cat([src_output, ctx_output], dim=1)


class PatchModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.encoder = ContextEncoder(dim)
        self.decoder = nn.Sequential(nn.Linear(2 * dim, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, N_OPS * N_TYPES))

    def forward(self, src, ctx):
        return self.decoder(self.encoder(src, ctx))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(31)
    rng = np.random.default_rng(31)
    src, ctx, y = corpus(5000, rng)
    vs, vc, vy = corpus(800, rng)
    model = PatchModel()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for idx in torch.randperm(len(src)).split(64):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(src[idx], ctx[idx]), y[idx])
            loss.backward()
            opt.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            acc = (model(vs, vc).argmax(1) == vy).float().mean().item()
        print(f"epoch {epoch} loss {np.mean(losses):.4f} val acc {acc:.3f}")


if __name__ == "__main__":
    main()
