import random
import torch
from torch import nn

PAD = 0
TAGS = ["NOUN", "VERB", "ADJ", "DET", "ADV"]
LEX = {
    "NOUN": ["dog", "cat", "tree", "house", "river", "work", "walk", "light", "play", "book"],
    "VERB": ["sees", "eats", "work", "walk", "play", "light", "book", "runs"],
    "ADJ": ["big", "small", "light", "green", "fast", "old"],
    "DET": ["the", "a", "this"],
    "ADV": ["fast", "often", "never", "well"],
}


def make_sentence(rng):
    def np_():
        out = [("DET", rng.choice(LEX["DET"]))]
        if rng.random() < 0.4:
            out.append(("ADJ", rng.choice(LEX["ADJ"])))
        out.append(("NOUN", rng.choice(LEX["NOUN"])))
        if rng.random() < 0.3:
            out.append(("NOUN", rng.choice(LEX["NOUN"])))
        return out
    s = np_() + [("VERB", rng.choice(LEX["VERB"]))]
    if rng.random() < 0.7:
        s += np_()
    if rng.random() < 0.5:
        s.append(("ADV", rng.choice(LEX["ADV"])))
    return s


class TaggingDataset(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = [make_sentence(rng) for _ in range(n)]
        words = sorted({w for ws in LEX.values() for w in ws})
        self.vocab = {w: i + 1 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        s = self.items[i]
        return ([self.vocab[w] for _, w in s], [TAGS.index(t) for t, _ in s])


PAD_TAG = PAD


def collate(batch):
    longest = max(len(w) for w, _ in batch)
    words = torch.full((len(batch), longest), PAD)
    tags = torch.full((len(batch), longest), PAD_TAG)
    for i, (w, t) in enumerate(batch):
        words[i, :len(w)] = torch.tensor(w)
        tags[i, :len(t)] = torch.tensor(t)
    return words, tags


class TaggerModule(nn.Module):
    def __init__(self, n_words, n_tags, d=32):
        super().__init__()
        self.word_embedder = nn.Embedding(n_words, d, padding_idx=PAD)
        self.sent_encoder = nn.LSTM(d, d, batch_first=True, bidirectional=True)
        self.tagger = nn.Linear(2 * d, n_tags)

    def forward(self, words):
        hid, _ = self.sent_encoder(self.word_embedder(words))
        return self.tagger(hid)


class Trainer:
    def __init__(self, model, train, val):
        self.model, self.val = model, val
        self.train_loader = torch.utils.data.DataLoader(train, batch_size=32, shuffle=True, collate_fn=collate)
        self.val_loader = torch.utils.data.DataLoader(val, batch_size=64, collate_fn=collate)
        self.optim = torch.optim.Adam(model.parameters(), lr=5e-3)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD_TAG)

    def fit(self, epochs):
        for ep in range(epochs):
            self.model.train()
            for words, tags in self.train_loader:
                logits = self.model(words)
                loss = self.loss(logits.view(-1, logits.size(-1)), tags.view(-1))
                self.optim.zero_grad()
                loss.backward()
                self.optim.step()
            print("epoch", ep, "loss %.4f" % loss.item(), "val acc %.4f" % self.validate())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        good = seen = 0
        for words, tags in self.val_loader:
            real = words != PAD
            pred = self.model(words).argmax(-1)
            good += (pred[real] == tags[real]).sum().item()
            seen += real.sum().item()
        return good / seen


if __name__ == "__main__":
    torch.manual_seed(5)
    train, val = TaggingDataset(1600, 0), TaggingDataset(300, 1)
    model = TaggerModule(len(train.vocab) + 1, len(TAGS))
    Trainer(model, train, val).fit(6)
