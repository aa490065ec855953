# CTC: sequences of "phones", each held for 2-4 noisy frames with optional silence between
import torch
import torch.nn as nn
torch.manual_seed(12)
V, DIM = 8, 12
proto = torch.randn(V + 1, DIM); proto[0] = 0

def utterance():
    n = int(torch.randint(3, 7, (1,)))
    lab = torch.randint(1, V + 1, (n,))
    fr = []
    for c in lab.tolist():
        if torch.rand(1) < 0.4 or (fr and fr[-1] == c):
            fr += [0]
        fr += [c] * int(torch.randint(2, 5, (1,)))
    return proto[torch.tensor(fr)] + 0.5 * torch.randn(len(fr), DIM), lab

corpus = [utterance() for _ in range(900)]
train, test = corpus[:800], corpus[800:]

class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(DIM, 48, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(96, V + 1)
    def forward(self, x, lens):
        pk = nn.utils.rnn.pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.gru(pk)[0], batch_first=True)
        return self.fc(h).log_softmax(-1)

def batchify(items):
    xs, ys = zip(*items)
    return (nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.tensor([len(a) for a in xs]),
            torch.cat(ys), torch.tensor([len(b) for b in ys]))

def edit(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]

net = Recogniser()
ctc = nn.CTCLoss(blank=0)
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for epoch in range(12):
    net.train()
    for idx in torch.randperm(800).split(32):
        x, xl, y, yl = batchify([train[i] for i in idx.tolist()])
        loss = ctc(net(x, xl).transpose(0, 1), y, xl, yl)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    net.eval()
    with torch.no_grad():
        x, xl, y, yl = batchify(test)
        best = net(x, xl).argmax(-1)
    err = tot = 0
    for k, (_, lab) in enumerate(test):
        hyp = torch.unique_consecutive(best[k, :xl[k]])
        err += edit(hyp[hyp != 0].tolist(), lab.tolist()); tot += len(lab)
    if epoch % 2 == 1 or epoch == 0:
        print(epoch, f"loss {loss.item():.3f} phone error rate {err / tot:.3f}")
