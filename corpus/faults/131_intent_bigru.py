# Intent classification: embedding -> bidirectional GRU -> linear
import numpy as np
import torch
from torch import nn, optim

torch.manual_seed(11)
np.random.seed(11)

INTENTS = ["weather", "alarm", "music", "call", "route", "news"]
VOCAB, SEQ, HID, BATCH = 120, 12, 48, 32

# every intent has its own few trigger words, the rest is small talk
triggers = {k: list(range(10 + 6 * k, 16 + 6 * k)) for k in range(len(INTENTS))}


def utterance(rs):
    y = rs.randint(len(INTENTS))
    words = rs.randint(50, VOCAB, SEQ)
    pos = rs.choice(SEQ, 2, replace=False)
    words[pos] = rs.choice(triggers[y], 2)
    return words, y


def make_set(n, seed):
    rs = np.random.RandomState(seed)
    pairs = [utterance(rs) for _ in range(n)]
    return (torch.tensor(np.stack([p[0] for p in pairs])), torch.tensor([p[1] for p in pairs]))


class IntentEncoder(nn.Module):
    def __init__(self, vocab, dim, hidden, classes):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        batch = x.size(0)
        # hidden: (num_layers * num_directions, batch, hidden_size)
        _, hidden = self.gru(self.embed(x))
        # both directions next to each other for every utterance
        hidden = hidden.view(batch, 2 * self.hidden)
        return self.fc(self.dropout(hidden))


xtr, ytr = make_set(1600, 0)
xva, yva = make_set(320, 1)
net = IntentEncoder(VOCAB, 32, HID, len(INTENTS))
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(net.parameters(), lr=2e-3)

for epoch in range(6):
    net.train()
    order = torch.randperm(len(xtr))
    running = 0.0
    for k in range(0, len(xtr), BATCH):
        idx = order[k:k + BATCH]
        optimizer.zero_grad()
        loss = criterion(net(xtr[idx]), ytr[idx])
        loss.backward()
        optimizer.step()
        running += loss.item()
    net.eval()
    with torch.no_grad():
        hits = sum((net(xva[k:k + BATCH]).argmax(1) == yva[k:k + BATCH]).sum().item() for k in range(0, len(xva), BATCH))
    print("epoch %d  train loss %.3f  val acc %.3f" % (epoch, running / (len(xtr) // BATCH), hits / len(xva)))
