"""What a library asks of functions of torch: signatures, sources, names, kinds, being bound, compared and copied."""
import functools
import inspect
import types
import weakref

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, StepLR

torch.manual_seed(10)
asked = []


def ask():
    for function in (torch.autograd.backward, torch.autograd.grad, nn.Module.__call__, LRScheduler.step, torch.load,
                     torch.optim.Optimizer.zero_grad, nn.Module.load_state_dict, torch.jit.script,
                     torch.amp.GradScaler.step, nn.utils.clip_grad_value_):
        asked.append((
            str(inspect.signature(function)), len(inspect.getsource(function)), function.__name__,
            function.__qualname__, function.__module__, inspect.isfunction(function), callable(function),
            isinstance(function, types.FunctionType), (function.__doc__ or "")[:40], function.__code__.co_name,
            function.__code__.co_firstlineno, sorted(function.__annotations__), hasattr(function, "__wrapped__"),
            weakref.ref(function)() is function, function.__get__(3).__self__, repr(function).split(" at ")[0],
            functools.wraps(function)(lambda: None).__name__,
        ))


class Counted(StepLR):
    def step(self, *args):
        self.counted = getattr(self, "counted", 0) + 1
        return super().step(*args)


ask()
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = Counted(opt, 2)
torch.autograd.backward.note = 5
zero, step = opt.zero_grad, sched.step
for i in range(8):
    loss = net(torch.randn(4, 2)).square().mean()
    zero()
    torch.autograd.backward(tensors=[loss])
    opt.step()
    step()
    if i == 4:
        ask()
        assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
kinds = [type(bound).__name__ for bound in (zero, step, opt.zero_grad, net.zero_grad)]
same = [zero == opt.zero_grad, step.__func__ is Counted.step, opt.zero_grad.__func__ is type(opt).zero_grad]
note = torch.autograd.backward.note
del torch.autograd.backward.note
print(loss.item(), kinds, same, note, sched.counted, opt.param_groups[0]["lr"])
for one in asked:
    print(one)
