"""Models with hooks of the program's, copied and pickled with them in mid-training; the numbers of their handles."""
import copy
import io
import pickle
import pickletools

import torch
from torch import nn

torch.manual_seed(6)
calls = []


def counted(module, args, output):
    calls.append(type(module).__name__)


def doubled(module, args):
    return (args[0] * 2,)


net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
handles = [net[1].register_forward_hook(counted), net[0].register_forward_pre_hook(doubled)]
opt = torch.optim.Adam(net.parameters())
handles.append(opt.register_step_post_hook(lambda *args: None))
handles[-1].remove()
ids, losses, names = [], [], []
for i in range(10):
    loss = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i in (0, 4, 9):
        handle = net[2].register_forward_hook(counted, with_kwargs=False)
        ids += [handle.id, *net[1]._forward_hooks, loss.register_hook(doubled).id]
        handle.remove()
        twin = copy.deepcopy(net)
        again = pickle.loads(pickle.dumps(net))
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        third = torch.load(buffer, weights_only=False)
        names += [str(op[1]) for op in pickletools.genops(pickle.dumps(net, 4)) if op[0].name == "SHORT_BINUNICODE"]
        for other in (twin, again, third, copy.copy(net)):
            other(torch.ones(1, 3))
            ids += [len(m._forward_hooks) + 10 * len(m._forward_pre_hooks) for m in other.modules()]
names = [name for name in names if not name.isdigit()]
print(ids, len(calls), losses[-1], len(names))
