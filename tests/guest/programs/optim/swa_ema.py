"""AveragedModel as EMA and as SWA, SWALR, update_bn at the end."""
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(41)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
swa = AveragedModel(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
swalr = SWALR(opt, swa_lr=0.02, anneal_epochs=3)
data = [torch.randn(8, 4) for _ in range(6)]
for epoch in range(6):
    for x in data:
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(net)
    if epoch >= 3:
        swa.update_parameters(net)
        swalr.step()
    else:
        sched.step()
update_bn(data, swa)
print(loss.item(), swa(data[0]).sum().item(), ema(data[0]).sum().item())
