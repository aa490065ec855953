"""A learning rate that is a tensor, schedulers chained, a LambdaLR with a lambda that fails once."""
import torch
from torch import nn

torch.manual_seed(52)
net = nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1), capturable=False, foreach=False)
bad = [False]


def factor(e):
    if e == 7 and not bad[0]:
        bad[0] = True
        raise ZeroDivisionError("once")
    return 0.9**e


sch = torch.optim.lr_scheduler.LambdaLR(opt, factor)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
rates, errors = [], []
for i in range(12):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    try:
        sch.step()
    except ZeroDivisionError as e:
        errors.append(str(e))
    plateau.step(l.item())
    rates.append(float(opt.param_groups[0]["lr"]))
print(rates, errors)
