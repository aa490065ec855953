import difflib
import inspect
import os
import tarfile
import re
import torch
from torch import nn

SEED = int(os.environ.get("SEED", 0))


class Config(object):
    d_model = 32
    heads = 4
    d_ff = 64
    num_layers = 1
    max_sen_len = 20
    lr = 5e-4
    max_epochs = 6
    batch_size = 32
    output_size = 2


def load(config):
    docs = []
    for label, module in enumerate((difflib, tarfile)):
        words = re.findall(r"[A-Za-z_]+", inspect.getsource(module))
        words = [w.lower() for w in words]
        docs += [(words[i:i + config.max_sen_len], label) for i in range(0, len(words) - config.max_sen_len, 10)]
    counts = {}
    for ws, _ in docs:
        for w in ws:
            counts[w] = counts.get(w, 0) + 1
    vocab = {w: i + 1 for i, w in enumerate(sorted(w for w in counts if counts[w] > 8))}
    x = torch.tensor([[vocab.get(w, 0) for w in ws] for ws, _ in docs])
    y = torch.tensor([l for _, l in docs])
    return x, y, len(vocab) + 1


class Transformer(nn.Module):
    def __init__(self, config, src_vocab):
        super().__init__()
        self.embed = nn.Embedding(src_vocab, config.d_model)
        self.pos = nn.Parameter(0.02 * torch.randn(1, config.max_sen_len, config.d_model))
        layer = nn.TransformerEncoderLayer(config.d_model, config.heads, config.d_ff, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.num_layers)
        self.fc = nn.Linear(config.d_model, config.output_size)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        encoded = self.encoder(self.embed(x) + self.pos)
        return self.softmax(self.fc(encoded.mean(1)))

    def run_epoch(self, x, y, optimizer, loss_op, batch_size):
        losses = []
        for b in torch.randperm(len(x)).split(batch_size):
            optimizer.zero_grad()
            loss = loss_op(self(x[b]), y[b])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)


torch.manual_seed(SEED)
config = Config()
x, y, n_vocab = load(config)
perm = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED))
cut = int(.85 * len(x))
tr, te = perm[:cut], perm[cut:]
model = Transformer(config, n_vocab)
optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
for i in range(config.max_epochs):
    l = model.run_epoch(x[tr], y[tr], optimizer, nn.NLLLoss(), config.batch_size)
    model.eval()
    with torch.no_grad():
        acc = (model(x[te]).argmax(1) == y[te]).float().mean().item()
    model.train()
    print(f"Epoch: {i} steps {len(tr) // config.batch_size} avg loss {l:.4f} val acc {acc:.3f}")
