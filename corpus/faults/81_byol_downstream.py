import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class NetworkCommonMixIn:
    def set_trainable(self, trainable=True):
        for p in self.parameters():
            if p.requires_grad:
                p.requires_grad = trainable


class AudioNTT(nn.Module, NetworkCommonMixIn):
    def __init__(self, d=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.fc = nn.Sequential(nn.Linear(24 * 4, d), nn.ReLU())

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Classifier(nn.Module):
    def __init__(self, encoder, d=24, n_class=10):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(d, n_class)

    def forward(self, x):
        return self.head(self.encoder(x))


def loop(model, params, lr, x, y, epochs, tag):
    opt = torch.optim.Adam(params, lr=lr)
    for ep in range(epochs):
        model.train()
        for idx in torch.randperm(len(x)).split(48):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"[{tag}] last loss {loss.item():.4f}")


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    x, y = load_digits(return_X_y=True)
    x = torch.tensor((x - x.mean()) / x.std(), dtype=torch.float32).view(-1, 1, 8, 8)
    y = torch.tensor(y)
    tr, va = train_test_split(np.arange(len(y)), test_size=0.25, random_state=args.seed, stratify=y)
    xtr, ytr, xva, yva = x[tr], y[tr], x[va], y[va]

    encoder = AudioNTT()

    turns = torch.randint(0, 4, (len(xtr),))
    rotated = torch.stack([torch.rot90(im, k, (1, 2)) for im, k in zip(xtr, turns.tolist())])
    pretext = Classifier(encoder, n_class=4)
    loop(pretext, pretext.parameters(), 1e-3, rotated, turns, 2, "pretext")

    encoder.set_trainable(False)
    model = Classifier(encoder)
    loop(model, model.head.parameters(), 1e-2, xtr, ytr, 2, "linear probe")
    print("linear probe accuracy %.3f" % accuracy(model, xva, yva))

    encoder.set_trainable(True)
    loop(model, model.parameters(), 2e-3, xtr, ytr, args.finetune_epochs, "fine-tune")
    print("fine-tuned accuracy %.3f" % accuracy(model, xva, yva))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--finetune-epochs", type=int, default=10)
    main(ap.parse_args())
