import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
rs = np.random.RandomState(5)
N_ATTR, N_VAL, IMG_DIM, EMBED = 6, 6, 96, 48
proj = rs.randn(N_ATTR * N_VAL, IMG_DIM) / np.sqrt(N_ATTR)


def build_pairs(n):
    attrs = rs.randint(0, N_VAL, (n, N_ATTR))
    onehot = np.zeros((n, N_ATTR * N_VAL))
    for a in range(N_ATTR):
        onehot[np.arange(n), a * N_VAL + attrs[:, a]] = 1
    img = onehot @ proj + 0.8 * rs.randn(n, IMG_DIM)
    cap = attrs + np.arange(N_ATTR) * N_VAL
    for row in cap:
        rs.shuffle(row)
    return torch.tensor(img, dtype=torch.float32), torch.tensor(cap)


class EncoderImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(IMG_DIM, 128)
        self.bn = nn.BatchNorm1d(128)
        self.drop = nn.Dropout(0.4)
        self.fc2 = nn.Linear(128, EMBED)

    def forward(self, x):
        x = self.drop(F.relu(self.bn(self.fc1(x))))
        return F.normalize(self.fc2(x), dim=1)


class EncoderText(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(N_ATTR * N_VAL, 48)
        self.drop = nn.Dropout(0.3)
        self.rnn = nn.GRU(48, 64, batch_first=True)
        self.fc = nn.Linear(64, EMBED)

    def forward(self, x):
        out, _ = self.rnn(self.drop(self.embed(x)))
        return F.normalize(self.fc(out.mean(1)), dim=1)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=0.2):
        super().__init__()
        self.margin = margin

    def forward(self, im, s):
        scores = im @ s.t()
        diag = scores.diag().view(-1, 1)
        cost_s = (self.margin + scores - diag).clamp(min=0)
        cost_im = (self.margin + scores - diag.t()).clamp(min=0)
        mask = torch.eye(len(im), dtype=torch.bool)
        return (cost_s.masked_fill(mask, 0).sum() + cost_im.masked_fill(mask, 0).sum()) / len(im)


class VSE(object):
    def __init__(self):
        self.img_enc = EncoderImage()
        self.txt_enc = EncoderText()
        self.criterion = ContrastiveLoss()
        self.params = list(self.img_enc.parameters()) + list(self.txt_enc.parameters())
        self.optimizer = torch.optim.Adam(self.params, lr=2e-3)
        self.Eiters = 0

    def train_start(self):
        self.img_enc.train()
        self.txt_enc.train()

    def val_start(self):
        self.img_enc.eval()
        self.txt_enc.eval()

    def train_emb(self, images, captions):
        self.Eiters += 1
        loss = self.criterion(self.img_enc(images), self.txt_enc(captions))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, 2.0)
        self.optimizer.step()
        return loss.item()


def validate(images, captions, model):
    model.val_start()
    with torch.no_grad():
        sims = model.img_enc(images) @ model.txt_enc(captions).t()
    rank = (sims >= sims.diag().view(-1, 1)).sum(1)
    r1, r5 = (rank <= 1).float().mean().item(), (rank <= 5).float().mean().item()
    print('  [%d] image to text: R@1 %.3f  R@5 %.3f  medr %.1f' % (model.Eiters, r1, r5, rank.float().median()))
    return r1 + r5


def train(train_set, val_set, model, epoch, val_step=4, batch_size=32):
    images, captions = train_set
    model.train_start()
    perm = torch.randperm(len(images))
    total = []
    for i in range(0, len(perm), batch_size):
        idx = perm[i:i + batch_size]
        total.append(model.train_emb(images[idx], captions[idx]))
        if model.Eiters % val_step == 0:
            validate(val_set[0], val_set[1], model)
    print('Epoch %d  loss %.4f' % (epoch, np.mean(total)))


train_set, val_set = build_pairs(448), build_pairs(300)
model = VSE()
for epoch in range(25):
    train(train_set, val_set, model, epoch)
best = validate(val_set[0], val_set[1], model)
print('final rsum %.3f' % best)
