"""Word-piece language model pre-training on source text (LSTM, plain SGD with a large step)."""
import argparse
import inspect
import math
import random
import string
import textwrap

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--bptt", type=int, default=40)
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--lr", type=float, default=10.0)
parser.add_argument("--max_grad_norm", type=float, default=0.25)
parser.add_argument("--steps", type=int, default=350)
args = parser.parse_args()

torch.manual_seed(11)

files = [inspect.getsource(m) for m in (argparse, random, textwrap, string)]
vocab = sorted(set("".join(files)))
stoi = {c: i for i, c in enumerate(vocab)}
ids = [torch.tensor([stoi[c] for c in t]) for t in files]
train_ids = torch.cat([t[: int(len(t) * 0.9)] for t in ids])
valid_ids = torch.cat([t[int(len(t) * 0.9):] for t in ids])


def batchify(data, bsz):
    n = data.size(0) // bsz
    return data[: n * bsz].view(bsz, n)


class PostLM(nn.Module):
    def __init__(self, ntoken, ninp=48, nhid=128):
        super().__init__()
        self.embed = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, batch_first=True)
        self.out = nn.Linear(nhid, ntoken)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.uniform_(self.out.weight, -0.1, 0.1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, state):
        h, state = self.rnn(self.embed(x), state)
        return self.out(h), state


def evaluate(model, data):
    model.eval()
    src = batchify(data, 8)
    total, count, state = 0.0, 0, None
    with torch.no_grad():
        for i in range(0, src.size(1) - 1, args.bptt):
            x = src[:, i:i + args.bptt]
            y = src[:, i + 1:i + 1 + args.bptt]
            x = x[:, : y.size(1)]
            logits, state = model(x, state)
            total += nn.functional.cross_entropy(logits.reshape(-1, len(vocab)), y.reshape(-1), reduction="sum").item()
            count += y.numel()
    return total / count


model = PostLM(len(vocab))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

source = batchify(train_ids, args.batch_size)
step, epoch = 0, 0
while step < args.steps:
    model.train()
    state = None
    for i in range(0, source.size(1) - 1 - args.bptt, args.bptt):
        x = source[:, i:i + args.bptt]
        y = source[:, i + 1:i + 1 + args.bptt]
        if state is not None:
            state = tuple(s.detach() for s in state)
        optimizer.zero_grad()
        logits, state = model(x, state)
        loss = criterion(logits.reshape(-1, len(vocab)), y.reshape(-1))
        loss.backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        if step >= args.steps:
            break
    epoch += 1
print("valid loss", round(evaluate(model, valid_ids), 3), "ppl", round(math.exp(min(20, evaluate(model, valid_ids))), 2))
