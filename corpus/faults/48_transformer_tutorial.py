import inspect
import math
import optparse
import os
import torch
from torch import nn, Tensor
from torch.nn import TransformerEncoder, TransformerEncoderLayer

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
bptt, batch_size, emsize, nhead = 20, 16, 48, 4


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=100):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:x.size(0)]


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers):
        super().__init__()
        self.pos_encoder = PositionalEncoding(d_model)
        layers = TransformerEncoderLayer(d_model, nhead, d_hid, dropout=0.0)
        self.transformer_encoder = TransformerEncoder(layers, nlayers)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.linear.weight.data.uniform_(-0.1, 0.1)

    def forward(self, src: Tensor) -> Tensor:
        src_mask = None
        x = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        return self.linear(self.transformer_encoder(x, src_mask))


def batchify(data, bsz):
    seq_len = data.size(0) // bsz
    return data[:seq_len * bsz].view(bsz, seq_len).t().contiguous()


text = inspect.getsource(optparse)
chars = sorted(set(text))
ids = torch.tensor([chars.index(c) for c in text])
cut = int(len(ids) * 0.9)
train_data, val_data = batchify(ids[:cut], batch_size), batchify(ids[cut:], batch_size)
model = TransformerModel(len(chars), emsize, nhead, 96, 2)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


for epoch in range(1, 4):
    model.train()
    total = 0.0
    starts = list(range(0, train_data.size(0) - 1, bptt))[:120]
    for i in starts:
        data, targets = get_batch(train_data, i)
        loss = criterion(model(data).view(-1, len(chars)), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        vs = list(range(0, val_data.size(0) - 1 - bptt, bptt))
        v = sum(criterion(model(get_batch(val_data, i)[0]).view(-1, len(chars)), get_batch(val_data, i)[1]).item() for i in vs) / len(vs)
    print(f'| epoch {epoch} | loss {total / len(starts):5.3f} | valid loss {v:5.3f} | valid ppl {math.exp(v):8.2f}')
