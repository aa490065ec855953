import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

random.seed(4)
torch.manual_seed(4)


class SimpleTokenizer:
    def __init__(self):
        self.words = ["</s>", "<s>", "="] + list("0123456789")
        self.index = {w: i for i, w in enumerate(self.words)}
        self.eos_token_id = self.index["</s>"]
        self.bos_token_id = self.index["<s>"]
        self.pad_token_id = None

    def __call__(self, s):
        return [self.bos_token_id] + [self.index[c] for c in s] + [self.eos_token_id]


tokenizer = SimpleTokenizer()
if tokenizer.pad_token_id is None:
    tokenizer.pad_token_id = tokenizer.eos_token_id


class SortDataset(Dataset):
    """'3 1 2 =' -> '1 2 3', variable length."""

    def __init__(self, n):
        self.items = []
        for _ in range(n):
            k = random.randint(2, 5)
            d = [random.choice("0123456789") for _ in range(k)]
            self.items.append(("".join(d), "".join(sorted(d))))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        src, tgt = self.items[i]
        ids = torch.tensor(tokenizer(src + "=" + tgt))
        return ids, len(src) + 2


def collate(batch):
    ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=tokenizer.pad_token_id)
    inputs, labels = ids[:, :-1], ids[:, 1:]
    loss_mask = torch.ones_like(labels, dtype=torch.float)
    loss_mask[labels == tokenizer.pad_token_id] = 0.0
    for i, (_, prompt) in enumerate(batch):
        loss_mask[i, : prompt - 1] = 0.0
    return inputs, labels, loss_mask


class GRULM(nn.Module):
    def __init__(self, vocab, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, 48)
        self.gru = nn.GRU(48, dim, num_layers=2, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x, h=None):
        y, h = self.gru(self.emb(x), h)
        return self.head(y), h


def exact_match(model, ds, max_new=8):
    model.eval()
    ok = 0
    with torch.no_grad():
        for src, tgt in ds.items:
            x = torch.tensor([tokenizer(src + "=")[:-1]])
            out, (logits, h) = [], model(x)
            for _ in range(max_new):
                nxt = logits[0, -1].argmax().item()
                if nxt == tokenizer.eos_token_id:
                    break
                out.append(tokenizer.words[nxt])
                logits, h = model(torch.tensor([[nxt]]), h)
            ok += "".join(out) == tgt
    return ok / len(ds)


train, test = SortDataset(6000), SortDataset(100)
loader = DataLoader(train, batch_size=100, shuffle=True, collate_fn=collate)
model = GRULM(len(tokenizer.words))
optim = torch.optim.Adam(model.parameters(), lr=4e-3)
ce = nn.CrossEntropyLoss(reduction="none")
for epoch in range(6):
    model.train()
    running = 0.0
    for inputs, labels, mask in loader:
        logits, _ = model(inputs)
        loss = (ce(logits.transpose(1, 2), labels) * mask).sum() / mask.sum()
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        running += loss.item()
    print(f"epoch {epoch} loss {running / len(loader):.4f}")
print("exact match", exact_match(model, test))
