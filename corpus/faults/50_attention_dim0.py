import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Attention(nn.Module):
    def __init__(self, dimensions):
        super(Attention, self).__init__()
        self.linear_in = nn.Linear(dimensions, dimensions, bias=False)
        self.linear_out = nn.Linear(dimensions * 2, dimensions, bias=False)
        self.softmax = nn.Softmax(dim=0)
        self.tanh = nn.Tanh()

    def forward(self, query, context):
        batch_size, output_len, dimensions = query.size()
        query_len = context.size(1)
        query = self.linear_in(query)
        attention_scores = torch.bmm(query, context.transpose(1, 2).contiguous())
        attention_scores = attention_scores.view(batch_size * output_len, query_len)
        attention_weights = self.softmax(attention_scores)
        attention_weights = attention_weights.view(batch_size, output_len, query_len)
        mix = torch.bmm(attention_weights, context)
        combined = torch.cat((mix, query), dim=2).view(batch_size * output_len, 2 * dimensions)
        return self.tanh(self.linear_out(combined)).view(batch_size, output_len, dimensions), attention_weights


class LookupReader(nn.Module):
    def __init__(self, n_keys=12, n_values=6, dim=32):
        super().__init__()
        self.key, self.value = nn.Embedding(n_keys, dim), nn.Embedding(n_values, dim)
        self.attention = Attention(dim)
        self.out = nn.Linear(dim, n_values)

    def forward(self, keys, values, q):
        context = self.key(keys) + self.value(values)
        h, _ = self.attention(self.key(q).unsqueeze(1), context)
        return self.out(h.squeeze(1))


def batch(n, gen):
    keys = torch.rand(n, 12, generator=gen).argsort(1)[:, :6]
    values = torch.randint(0, 6, (n, 6), generator=gen)
    pick = torch.randint(0, 6, (n,), generator=gen)
    r = torch.arange(n)
    return keys, values, keys[r, pick], values[r, pick]


gen = torch.Generator().manual_seed(SEED)
model = LookupReader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(600):
    keys, values, q, y = batch(64, gen)
    logits = model(keys, values, q)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 75 == 0 or step == 599:
        print(f"step {step} loss {loss.item():.4f} acc {(logits.argmax(1) == y).float().mean():.3f}")
