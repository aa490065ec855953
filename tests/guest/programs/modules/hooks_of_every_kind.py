"""Forward, pre, backward, state_dict, load and global module hooks, kwargs ones too, some of which change values."""
import torch
from torch import nn
from torch.nn.modules import module as M

torch.manual_seed(65)
net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
log = []
hs = [
    net[0].register_forward_pre_hook(lambda m, a: (a[0] * 1.1,)),
    net[0].register_forward_hook(lambda m, a, o: o + 0.1),
    net[2].register_forward_hook(lambda m, a, k, o: log.append(len(k)), with_kwargs=True),
    net[2].register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True, prepend=True),
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.9,)),
    net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 0.5,)),
    net.register_state_dict_post_hook(lambda m, sd, p, meta: log.append(len(sd))),
    M.register_module_forward_hook(lambda m, a, o: log.append(type(m).__name__)),
    M.register_module_full_backward_hook(lambda m, gi, go: log.append(len(go))),
    M.register_module_parameter_registration_hook(lambda m, n, p: log.append(n)),
]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(10):
    l = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    if i == 4:
        net.state_dict()
        hs.pop(0).remove()
        extra = nn.Linear(2, 2)
for h in hs:
    h.remove()
print(len(log), l.item(), net._forward_hooks, M._global_forward_hooks)
