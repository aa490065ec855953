import collections
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence

random.seed(11)
torch.manual_seed(11)

TOPICS = {
    "weather": "rain sun cloud storm wind snow fog heat cold forecast".split(),
    "food": "bread soup rice cheese apple pasta salad butter honey pepper".split(),
    "sport": "goal match team coach league race score medal stadium referee".split(),
    "music": "song guitar drum melody concert piano singer album rhythm choir".split(),
}
FILLER = "the a of is was very and to in we they it on with for that this some today".split()


def sentence(topic):
    n = random.randint(6, 14)
    words = [random.choice(FILLER) for _ in range(n)]
    for pos in random.sample(range(n), 2):
        words[pos] = random.choice(TOPICS[topic])
    return words


names = list(TOPICS)
corpus = [(sentence(t), names.index(t)) for t in names for _ in range(450)]
random.shuffle(corpus)
counts = collections.Counter(w for s, _ in corpus for w in s)
w2i = {"<pad>": 0}
for w in sorted(counts):
    w2i[w] = len(w2i)


def collate(samples):
    samples = sorted(samples, key=lambda p: -len(p[0]))
    lengths = [len(s) for s, _ in samples]
    ids = torch.zeros(len(samples), lengths[0], dtype=torch.long)
    for r, (s, _) in enumerate(samples):
        ids[r, :len(s)] = torch.tensor([w2i[w] for w in s])
    return ids, torch.tensor(lengths), torch.tensor([y for _, y in samples])


class SentenceEncoder(nn.Module):
    def __init__(self, vocab_size, embedding_size=32, hidden_size=32, latent_size=16,
                 bidirectional=True, num_layers=1, n_out=4):
        super().__init__()
        self.bidirectional = bidirectional
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.hidden_factor = (2 if bidirectional else 1) * num_layers
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=0)
        self.encoder_rnn = nn.GRU(embedding_size, hidden_size, num_layers=num_layers,
                                  bidirectional=bidirectional, batch_first=True)
        self.hidden2latent = nn.Linear(hidden_size * self.hidden_factor, latent_size)
        self.classify = nn.Linear(latent_size, n_out)

    def forward(self, input_sequence, length):
        batch_size = input_sequence.size(0)
        packed = pack_padded_sequence(self.embedding(input_sequence), length, batch_first=True)
        _, hidden = self.encoder_rnn(packed)
        if self.bidirectional or self.num_layers > 1:
            hidden = hidden.view(batch_size, self.hidden_size * self.hidden_factor)
        else:
            hidden = hidden.squeeze(0)
        z = torch.tanh(self.hidden2latent(hidden))
        return self.classify(z)


train_set, valid_set = corpus[:1440], corpus[1440:]
model = SentenceEncoder(len(w2i))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
nll = nn.CrossEntropyLoss()

for epoch in range(8):
    for split in ("train", "valid"):
        is_train = split == "train"
        model.train(is_train)
        items = train_set[:] if is_train else valid_set
        if is_train:
            random.shuffle(items)
        tot, hit = 0.0, 0
        for i in range(0, len(items), 32):
            ids, lengths, y = collate(items[i:i + 32])
            with torch.set_grad_enabled(is_train):
                logp = model(ids, lengths)
                loss = nll(logp, y)
            if is_train:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            tot += loss.item() * len(y)
            hit += (logp.argmax(1) == y).sum().item()
        print("%s epoch %d loss %.4f acc %.3f" % (split, epoch, tot / len(items), hit / len(items)))
