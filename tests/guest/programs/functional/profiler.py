"""torch.profiler with a schedule and record_function around the steps, and an autograd profiler inside."""
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(35)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ready = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
             on_trace_ready=lambda p: ready.append(sorted(e.key for e in p.key_averages() if e.key.startswith("mine")))) as prof:
    for i in range(8):
        with record_function("mine/forward"):
            l = net(torch.randn(4, 4)).pow(2).mean()
        with record_function("mine/backward"):
            opt.zero_grad()
            l.backward()
            opt.step()
        prof.step()
print(ready, l.item())
