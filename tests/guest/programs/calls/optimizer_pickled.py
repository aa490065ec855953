"""Optimizers with step hooks and a scheduler, pickled, deep-copied and saved, each time going on from the copy."""
import copy
import io
import pickle

import torch
from torch import nn

torch.manual_seed(7)
steps = []


def before(opt, args, kwargs):
    steps.append(type(opt).__name__)


net = nn.Linear(4, 2)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
handle = opt.register_step_pre_hook(before)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
sizes, losses = [handle.id], []
for i in range(12):
    loss = net(torch.randn(6, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
    if i == 3:
        state = copy.deepcopy(opt.state_dict())
        other = copy.deepcopy(opt)
        sizes += [len(state["state"]), len(other.__getstate__()), sorted(map(str, other.__getstate__()))]
        buffer = io.BytesIO()
        torch.save(state, buffer)
        sizes.append(len(buffer.getvalue()))
        fresh = torch.optim.AdamW(net.parameters(), lr=1.0)
        fresh.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
        fresh.register_step_pre_hook(before)
        opt, sched = fresh, torch.optim.lr_scheduler.ExponentialLR(fresh, 0.9)
    if i == 7:
        blob = pickle.dumps((net, opt))
        sizes.append(len(blob))
        net, opt = pickle.loads(blob)
        del blob  # names storages by their addresses
for function in (torch.autograd.backward, torch.autograd.grad, torch.load, nn.Module.load_state_dict,
                 torch.optim.lr_scheduler.LRScheduler.step, torch.optim.Optimizer.zero_grad):
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
del function
print(sizes, len(steps), losses[-1])
