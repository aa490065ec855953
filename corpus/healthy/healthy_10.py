import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class CopyRNN(nn.Module):
    def __init__(self, vocab=6, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, 16)
        self.cell = nn.LSTM(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        h, state = self.cell(self.emb(x), state)
        return self.out(h), tuple(s.detach() for s in state)


def stream(n, length, lag, gen):
    x = torch.randint(0, 6, (n, length), generator=gen)
    y = torch.full_like(x, -1)
    y[:, lag:] = x[:, :-lag]
    return x, y


gen = torch.Generator().manual_seed(SEED)
model = CopyRNN()
opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
step = 0
for stage, (lag, chunks) in enumerate([(1, 20), (2, 40), (3, 50)]):
    for c in range(chunks):
        x, y = stream(24, 32, lag, gen)
        state = None
        for part_x, part_y in zip(x.split(8, 1), y.split(8, 1)):
            logits, state = model(part_x, state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), part_y.flatten(), ignore_index=-1)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            step += 1
        if c % 10 == 9:
            acc = (logits.argmax(-1) == part_y).float().mean().item()
            print(f"stage {stage} step {step} loss {loss.item():.4f} acc {acc:.3f}")
