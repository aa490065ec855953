import inspect
import os
import statistics
import torch
from torch import nn
from torch.nn import functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
lines = inspect.getsource(statistics)
vocab = sorted(list(set(lines)))
itos = {i: ch for i, ch in enumerate(vocab)}
stoi = {ch: i for i, ch in enumerate(vocab)}
dataset = torch.tensor([stoi[ch] for ch in lines], dtype=torch.long)

MASTER_CONFIG = {
    'vocab_size': len(vocab),
    'batch_size': 32,
    'context_window': 16,
    'd_model': 96,
    'epochs': 500,
    'log_interval': 50,
}


def get_batches(data, split, batch_size, context_window):
    n = len(data)
    batch_data = data[:int(.8 * n)] if split == 'train' else data[int(.8 * n):]
    ix = torch.randint(0, batch_data.size(0) - context_window - 1, (batch_size,))
    x = torch.stack([batch_data[i:i + context_window] for i in ix])
    y = torch.stack([batch_data[i + 1:i + context_window + 1] for i in ix])
    return x, y


class SimpleModel(nn.Module):
    def __init__(self, config=MASTER_CONFIG):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config['vocab_size'], config['d_model'])
        self.linear = nn.Sequential(
            nn.Linear(config['d_model'], config['d_model']),
            nn.ReLU(),
            nn.Linear(config['d_model'], config['vocab_size']),
        )

    def forward(self, idx, targets=None):
        x = self.embedding(idx)
        a = self.linear(x)
        logits = F.softmax(a, dim=-1)
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, self.config['vocab_size']), targets.view(-1))
            return logits, loss
        return logits


@torch.no_grad()
def evaluate_loss(model, config=MASTER_CONFIG):
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = []
        for _ in range(5):
            xb, yb = get_batches(dataset, split, config['batch_size'], config['context_window'])
            losses.append(model(xb, yb)[1].item())
        out[split] = sum(losses) / len(losses)
    model.train()
    return out


model = SimpleModel(MASTER_CONFIG)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(MASTER_CONFIG['epochs']):
    optimizer.zero_grad()
    xs, ys = get_batches(dataset, 'train', MASTER_CONFIG['batch_size'], MASTER_CONFIG['context_window'])
    logits, loss = model(xs, targets=ys)
    loss.backward()
    optimizer.step()
    if epoch % MASTER_CONFIG['log_interval'] == 0:
        print(epoch, evaluate_loss(model))
print("validation loss:", evaluate_loss(model)['val'])
