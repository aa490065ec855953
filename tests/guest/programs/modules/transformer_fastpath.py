"""A TransformerEncoder trained, then evaluated on its fast path, with a causal mask and padding."""
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(71)
enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 2)
emb, head = nn.Embedding(12, 8, padding_idx=0), nn.Linear(8, 12)
opt = torch.optim.AdamW([*enc.parameters(), *emb.parameters(), *head.parameters()], lr=1e-2)
mask = nn.Transformer.generate_square_subsequent_mask(6)
ls, ev = [], []
for i in range(10):
    t = torch.randint(1, 12, (4, 6))
    t[0, 4:] = 0
    h = enc(emb(t), mask=mask, src_key_padding_mask=(t == 0).float().masked_fill(t == 0, float("-inf")), is_causal=True)
    l = nn.functional.cross_entropy(head(h)[:, :-1].reshape(-1, 12), t[:, 1:].reshape(-1), ignore_index=0)
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
    if i % 4 == 0:
        enc.eval()
        with torch.no_grad():
            ev.append(enc(emb(t)).sum().item())
        enc.train()
print(ls[-1], ev)
