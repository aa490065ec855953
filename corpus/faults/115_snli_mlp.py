import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(21)
gen = torch.Generator().manual_seed(21)
options = {'n_vocab': 60, 'n_emb': 32, 'n_hid': 96, 'n_layers': 3, 'act': 'Tanh'}


def make_split(n):
    prem, hyp, lab = [], [], []
    for i in range(n):
        words = torch.randperm(30, generator=gen)
        p = words[:5] * 2 + torch.randint(0, 2, (5,), generator=gen)
        k = i % 3
        if k == 0:
            h = p[torch.randperm(5, generator=gen)[:2]]
        elif k == 1:
            h = p[torch.randperm(5, generator=gen)[:2]] ^ 1
        else:
            h = words[5:7] * 2 + torch.randint(0, 2, (2,), generator=gen)
        prem.append(p)
        hyp.append(h)
        lab.append(k)
    return TensorDataset(torch.stack(prem), torch.stack(hyp), torch.tensor(lab))


class SNLINet(nn.Module):
    def __init__(self, options):
        super(SNLINet, self).__init__()
        self.emb = nn.Embedding(options['n_vocab'], options['n_emb'])
        self.hids = []
        indim = options['n_emb'] * 4
        for li in range(options['n_layers']):
            self.hids.append(nn.Sequential(
                nn.Linear(indim, options['n_hid']),
                getattr(nn, options['act'])()
            ))
            indim = options['n_hid']
        self.classifier = nn.Linear(options['n_hid'], 3)

    def forward(self, premise, hypothesis):
        p = self.emb(premise).sum(1)
        h = self.emb(hypothesis).sum(1)
        x = torch.cat([p, h, p - h, p * h], dim=1)
        for hid in self.hids:
            x = hid(x)
        return self.classifier(x)


train_iter = DataLoader(make_split(8000), batch_size=64, shuffle=True)
dev_iter = DataLoader(make_split(600), batch_size=200)

net = SNLINet(options)
print(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
cost = nn.CrossEntropyLoss()

for epoch in range(4):
    tot, ok, n = 0., 0, 0
    for prem, hyp, lab in train_iter:
        opt.zero_grad()
        out = net(prem, hyp)
        loss = cost(out, lab)
        loss.backward()
        opt.step()
        tot += loss.item() * len(lab)
        ok += (out.argmax(1) == lab).sum().item()
        n += len(lab)
    dev_ok = 0
    with torch.no_grad():
        for prem, hyp, lab in dev_iter:
            dev_ok += (net(prem, hyp).argmax(1) == lab).sum().item()
    print('epoch {:2d} loss {:.4f} acc {:.3f} dev {:.3f}'.format(epoch, tot / n, ok / n, dev_ok / 600))
