"""How many frames there are between the loop and a forward, hooks of each kind, a closure, a step and a backward.

slow
"""
import inspect
import sys

import torch
from torch import nn

torch.manual_seed(2)
BOTTOM = [len(inspect.stack(0))]
seen = []


def note(what):
    frames = inspect.stack(0)
    names = [f"{frame.function}" for frame in frames[1 : len(frames) - BOTTOM[0]]]
    files = [frame.filename.rsplit("/", 2)[-1] for frame in frames[1 : len(frames) - BOTTOM[0]]]
    lines = [frame.lineno for frame in frames[1 : len(frames) - BOTTOM[0]]]
    seen.append((what, len(names), names, files, lines, sys._getframe(2).f_code.co_name))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.a.register_forward_hook(lambda *args: note("forward hook"))
        self.b[1].register_forward_pre_hook(lambda *args: note("forward pre-hook"))
        self.b.register_full_backward_hook(lambda *args: note("module's backward hook"))

    def forward(self, x):
        note("forward")
        y = self.b(self.a(x))
        if y.requires_grad:
            y.register_hook(lambda grad: note("tensor hook"))
        return y


class Sgd(torch.optim.SGD):
    def step(self, closure=None):
        note("step")
        return super().step(closure)

    def zero_grad(self, set_to_none=True):
        note("zero_grad")
        super().zero_grad(set_to_none)


class Sampled(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        note("item")
        return torch.full((3,), float(i))


net = Net()
opt = Sgd(net.parameters(), lr=0.1)
opt.register_step_pre_hook(lambda *args: note("step pre-hook"))
opt.register_step_post_hook(lambda *args: note("step post-hook"))
net.a.weight.register_post_accumulate_grad_hook(lambda p: note("accumulated"))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: note("schedule") or 0.9**n)


def closure():
    note("closure")
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    return loss


losses = []
for epoch in range(3):
    for x in torch.utils.data.DataLoader(Sampled(), batch_size=2):
        losses.append(opt.step(closure).item())
        with torch.autograd.graph.saved_tensors_hooks(lambda t: note("pack") or t, lambda t: note("unpack") or t):
            torch.autograd.grad(net(x).sum(), net.a.weight)
    sched.step()
    net.load_state_dict(net.state_dict())
    with torch.no_grad():
        net.eval()
        nn.functional.mse_loss(net(x), x)
        net.train()
BOTTOM.clear()
print(losses[-1], len(seen))
for one in dict.fromkeys(map(str, seen)):
    print(one)
