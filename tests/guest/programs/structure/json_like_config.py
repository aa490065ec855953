"""exec and eval build the model from a text, types made by type(), code compiled with a made-up file name."""
import torch
from torch import nn

SRC = """
class Built(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
    def forward(self, x):
        for l in self.layers[:-1]:
            x = torch.relu(l(x))
        return self.layers[-1](x)
"""
torch.manual_seed(150)
ns = {"nn": nn, "torch": torch}
exec(compile(SRC, "<from the config>", "exec"), ns)
Dyn = type("Dyn", (ns["Built"],), {"extra_repr": lambda self: "dyn"})
net = Dyn([3, 5, 1])
opt = eval("torch.optim.SGD(net.parameters(), lr=0.1)")
for i in range(12):
    exec("l = net(torch.randn(4, 3)).pow(2).mean(); opt.zero_grad(); l.backward(); opt.step()")
print(l.item(), type(net).__name__, net)
