"""Tone sequences recognised with CTC; several small batches make one update."""
import numpy as np
import torch
import torch.nn as nn

LABELS, FREQS, TONE = 6, 20, 5


class Args:
    accum_grad_n_steps = 8
    batch_size = 4
    lr = 0.03
    n_updates = 90


def utterance(rs):
    n = rs.randint(3, 7)
    ys = rs.randint(1, LABELS + 1, n)
    frames = []
    for y in ys:
        d = rs.randint(TONE - 1, TONE + 2)
        f = rs.normal(0, 0.4, (d, FREQS))
        f[:, 3 * y - 1:3 * y + 2] += [1.0, 2.0, 1.0]
        frames += [f, rs.normal(0, 0.4, (2, FREQS))]
    return np.concatenate(frames).astype("float32"), ys


def batch(rs, n):
    items = [utterance(rs) for _ in range(n)]
    xlens = [len(x) for x, _ in items]
    xs = torch.zeros(n, max(xlens), FREQS)
    for i, (x, _) in enumerate(items):
        xs[i, :len(x)] = torch.from_numpy(x)
    ys = torch.tensor(np.concatenate([y for _, y in items]))
    return xs, torch.tensor(xlens), ys, torch.tensor([len(y) for _, y in items])


class Speech2Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(FREQS, 48, 3, padding=1), nn.ReLU())
        self.enc = nn.GRU(48, 48, batch_first=True, bidirectional=True)
        self.output = nn.Linear(96, LABELS + 1)
        self.ctc = nn.CTCLoss(blank=0, reduction="none", zero_infinity=True)

    def forward(self, xs, xlens, ys, ylens):
        h, _ = self.enc(self.front(xs.transpose(1, 2)).transpose(1, 2))
        logp = self.output(h).log_softmax(-1).transpose(0, 1)
        return self.ctc(logp, ys, xlens, ylens).mean()


def train():
    torch.manual_seed(0)
    rs = np.random.RandomState(0)
    args = Args()
    model = Speech2Text()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    accum_n_steps, n_steps, running = 0, 0, []
    optimizer.zero_grad()
    while n_steps < args.n_updates:
        loss = model(*batch(rs, args.batch_size))
        accum_n_steps += 1
        loss.backward()
        running.append(loss.item())
        if accum_n_steps >= args.accum_grad_n_steps:
            optimizer.step()
            optimizer.zero_grad()
            accum_n_steps = 0
            n_steps += 1
            if n_steps % 10 == 0:
                print("step:%d loss:%.3f" % (n_steps, np.mean(running)))
                running = []
    model.eval()
    with torch.no_grad():
        print("dev loss %.3f" % model(*batch(np.random.RandomState(99), 64)).item())


train()
