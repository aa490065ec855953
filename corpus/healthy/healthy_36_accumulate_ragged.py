"""Char model with gradient accumulation: micro-batches of 24 in groups of 4; the last group of an epoch is smaller.
Every group is divided by its own number of target characters, so a group's gradient is the mean over its tokens."""
import torch
import torch.nn as nn
torch.manual_seed(23)
WORDS = "the cat sat on a mat and saw two old dogs run past the barn while it rained all day in may".split()
VOC = {c: i + 1 for i, c in enumerate(sorted(set("".join(WORDS) + " ")))}
gen = torch.Generator().manual_seed(23)
lines = []
for _ in range(680):
    k = int(torch.randint(2, 6, (1,), generator=gen))
    lines.append(" ".join(WORDS[j] for j in torch.randint(0, len(WORDS), (k,), generator=gen).tolist()))
ids = [torch.tensor([VOC[c] for c in s]) for s in lines]
train, held = ids[:600], ids[600:]


class CharGRU(nn.Module):
    def __init__(self, v=len(VOC) + 1):
        super().__init__()
        self.emb = nn.Embedding(v, 24, padding_idx=0)
        self.rnn = nn.GRU(24, 64, batch_first=True)
        self.out = nn.Linear(64, v)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def collate(seqs):
    p = nn.utils.rnn.pad_sequence(seqs, batch_first=True)
    return p[:, :-1], p[:, 1:]


model = CharGRU()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
ce = nn.CrossEntropyLoss(ignore_index=0, reduction="sum")
MICRO, GROUP = 24, 4
steps = 0
for epoch in range(16):
    model.train()
    order = torch.randperm(len(train)).tolist()
    micro = [order[i:i + MICRO] for i in range(0, len(order), MICRO)]       # 25 micro-batches -> 7 groups, the last has one
    for g in range(0, len(micro), GROUP):
        batches = [collate([train[j] for j in mb]) for mb in micro[g:g + GROUP]]
        n_tok = sum(int((t != 0).sum()) for _, t in batches)
        opt.zero_grad()
        total = 0.0
        for inp, t in batches:
            loss = ce(model(inp).flatten(0, 1), t.flatten()) / n_tok
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        steps += 1
    if epoch % 4 == 3:
        model.eval()
        with torch.no_grad():
            inp, t = collate(held)
            v = ce(model(inp).flatten(0, 1), t.flatten()).item() / int((t != 0).sum())
        print(epoch, steps, f"train {total:.3f} held-out nats/char {v:.3f}")
# floor: word entropy plus the end is not predicted; count characters
import math
n_chars = sum(len(s) - 1 for s in held)
n_words = sum(lines[600 + i].count(" ") + 1 for i in range(80))
from collections import Counter
cnt = Counter(WORDS); H = -sum(c / len(WORDS) * math.log(c / len(WORDS)) for c in cnt.values())
first = Counter()
for w, c in cnt.items(): first[w[0]] += c
Hf = -sum(c / len(WORDS) * math.log(c / len(WORDS)) for c in first.values())
print("floor about", round((n_words * H - 80 * Hf) / n_chars, 3), "uniform", round(math.log(len(VOC)), 3))
