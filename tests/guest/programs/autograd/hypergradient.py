"""Learning the learning rate by differentiating through an unrolled inner update."""
import torch

torch.manual_seed(3)
log_lr = torch.tensor(-3.0, requires_grad=True)
w0 = torch.randn(5, requires_grad=True)
meta = torch.optim.SGD([log_lr], lr=0.05)
trace = []
for outer in range(8):
    w = w0
    for inner in range(4):
        x = torch.randn(16, 5)
        l = ((x @ w) - x.sum(1)).pow(2).mean()
        g = torch.autograd.grad(l, w, create_graph=True)[0]
        w = w - log_lr.exp() * g
    xv = torch.randn(32, 5)
    val = ((xv @ w) - xv.sum(1)).pow(2).mean()
    meta.zero_grad()
    val.backward()
    meta.step()
    w0 = w.detach().requires_grad_()
    trace.append((val.item(), log_lr.item()))
print(trace[-1])
