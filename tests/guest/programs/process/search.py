"""A search over hyperparameters: models, optimizers, schedules and data of each round die as the program lets go of them."""
import weakref

import torch
from torch import nn

torch.manual_seed(195)
died = []
order = []
for width in (2, 4, 8):
    for lr in (0.3, 0.03):
        net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
        opt = torch.optim.AdamW(net.parameters(), lr=lr)
        data = torch.utils.data.TensorDataset(torch.randn(48, 3), torch.randn(48, 1))
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        for kind, thing in (("net", net), ("layer", net[0]), ("weight", net[2].weight), ("opt", opt), ("loader", loader)):
            weakref.finalize(thing, died.append, f"{kind} {width} {lr}")
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        weakref.finalize(loss, died.append, "loss")
        del thing
        del net
        order.append(list(died))
        del opt, loss, x, y, loader, data
        order.append(list(died))
print(order)
del died
