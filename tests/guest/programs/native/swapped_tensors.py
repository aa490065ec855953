"""torch.utils.swap_tensors in mid-run: parameters become others, keep their names, and load_state_dict swaps too."""

import torch
from torch import nn

torch.manual_seed(208)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
losses: list[float] = []
for step in range(80):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    if step in (7, 33):
        del loss
        for p in net.parameters():
            other = nn.Parameter(p.detach() * 1.01)
            other.grad = p.grad.clone()
            p.grad = None
            torch.utils.swap_tensors(p, other)
            del other
        loss = torch.zeros(())
    if step == 20:
        held = {name: value.clone() for name, value in net.state_dict().items()}
    opt.step()
    if step in (40, 41):
        opt.zero_grad()
        loss = loss.detach()
        torch.__future__.set_swap_module_params_on_conversion(True)
        net.load_state_dict(held)
        torch.__future__.set_swap_module_params_on_conversion(False)
    if step == 60:
        opt.zero_grad()
        loss = loss.detach()
        torch.__future__.set_swap_module_params_on_conversion(True)
        net.double()
        net.float()
        torch.__future__.set_swap_module_params_on_conversion(False)
        opt = torch.optim.SGD(net.parameters(), lr=0.02)
    losses.append(loss.item())
print(repr(losses[-1]))
