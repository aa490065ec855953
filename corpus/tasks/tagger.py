"""Tags each word of sentences of different lengths: padding, a bidirectional GRU, attention over the real words."""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
random.seed(SEED)
torch.manual_seed(SEED)
PAD = 0
IGNORE = -100
VOCAB = 40
TAGS = 4


class Sentences(Dataset):
    """The tag of a word depends on the word and on the one before it."""

    def __init__(self, n):
        self.items = []
        for _ in range(n):
            length = random.randint(4, 16)
            words = [random.randint(1, VOCAB - 1) for _ in range(length)]
            tags = [(w + (words[i - 1] > VOCAB // 2 if i else 0)) % TAGS for i, w in enumerate(words)]
            self.items.append((words, tags))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    longest = max(len(words) for words, _ in batch)
    words = torch.full((len(batch), longest), PAD)
    tags = torch.full((len(batch), longest), IGNORE)
    for row, (w, t) in enumerate(batch):
        words[row, : len(w)] = torch.tensor(w)
        tags[row, : len(t)] = torch.tensor(t)
    return words, tags


class Tagger(nn.Module):
    def __init__(self, dim=24, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.gru = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.attn = nn.MultiheadAttention(2 * hidden, 2, batch_first=True)
        self.out = nn.Linear(2 * hidden, TAGS)

    def forward(self, words):
        padding = words == PAD
        h, _ = self.gru(self.embed(words))
        context, _ = self.attn(h, h, h, key_padding_mask=padding)
        return self.out(h + context)


loader = DataLoader(Sentences(1200), batch_size=32, shuffle=True, collate_fn=collate)
model = Tagger()
criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)

for epoch in range(5):
    model.train()
    total = 0.0
    for words, tags in loader:
        optimizer.zero_grad()
        logits = model(words)
        loss = criterion(logits.reshape(-1, TAGS), tags.reshape(-1))
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
