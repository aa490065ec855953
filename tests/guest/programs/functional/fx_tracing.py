"""A traced module whose graph is rewritten in the middle of the training, ReLU becoming GELU."""
import torch
from torch import fx, nn

torch.manual_seed(23)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
gm = fx.symbolic_trace(net)
opt = torch.optim.SGD(gm.parameters(), lr=0.05)
ls = []
for i in range(16):
    if i == 8:
        gm.add_submodule("act", nn.GELU())
        for node in gm.graph.nodes:
            if node.op == "call_module" and node.target == "1":
                node.target = "act"
        gm.recompile()
        gm.delete_all_unused_submodules()
    x = torch.randn(8, 4)
    l = (gm(x) - x.prod(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ls.append(l.item())
print(gm.code, ls[-1])
