import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class BidirectionalLSTM(nn.Module):
    def __init__(self, nIn, nHidden, nOut):
        super(BidirectionalLSTM, self).__init__()
        self.rnn = nn.LSTM(nIn, nHidden, bidirectional=True, batch_first=True)
        self.embedding = nn.Linear(nHidden * 2, nOut)

    def forward(self, input):
        recurrent, _ = self.rnn(input)
        a, b, h = recurrent.size()
        return self.embedding(recurrent.reshape(a * b, h)).view(a, b, -1)


class CRNN(nn.Module):
    def __init__(self, nclass=10, nh=32):
        super(CRNN, self).__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 8, (8, 2)), nn.ReLU(True))
        self.rnn = BidirectionalLSTM(8, nh, nclass)

    def forward(self, input):
        conv = self.cnn(input)
        conv = conv.squeeze(2).permute(2, 0, 1)
        output = self.rnn(conv)
        return output.mean(0)


d = load_digits()
X, Y = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)
g = torch.Generator().manual_seed(SEED)
perm = torch.randperm(len(X), generator=g)
tr, te = perm[:1500], perm[1500:]
crnn = CRNN()
optimizer = torch.optim.Adam(crnn.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    for i, b in enumerate(tr[torch.randperm(1500)].split(50)):
        cost = criterion(crnn(X[b]), Y[b])
        crnn.zero_grad()
        cost.backward()
        optimizer.step()
    with torch.no_grad():
        acc = (crnn(X[te]).argmax(1) == Y[te]).float().mean().item()
        one = sum((crnn(X[k:k + 1]).argmax(1) == Y[k:k + 1]).item() for k in te[:60].tolist()) / 60
    print('[%d/10] Loss: %f test acc %.3f single-image acc %.3f' % (epoch, cost.item(), acc, one))
