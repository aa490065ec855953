"""Truncated back-propagation through time: LSTM states kept over steps, detached, packed sequences, GRUCell."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(72)
lstm, cell, head = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=False), nn.GRUCell(5, 4), nn.Linear(4, 3)
opt = torch.optim.RMSprop([*lstm.parameters(), *cell.parameters(), *head.parameters()], lr=0.01)
state, hx = None, torch.zeros(2, 4)
ls = []
for i in range(10):
    x = torch.randn(2, 5, 3)
    packed = pack_padded_sequence(x, [5, 3], batch_first=True)
    out, state = lstm(packed, state)
    out, lens = pad_packed_sequence(out, batch_first=True)
    for t in range(out.shape[1]):
        hx = cell(out[:, t], hx)
    l = (head(hx) - x[:, 0]).pow(2).mean()
    opt.zero_grad()
    l.backward()
    nn.utils.clip_grad_norm_(lstm.parameters(), 0.3)
    opt.step()
    state = tuple(s.detach() for s in state)
    hx = hx.detach()
    ls.append(l.item())
print(ls)
