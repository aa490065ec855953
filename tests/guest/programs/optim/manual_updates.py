"""No optimizer at all: weights are plain tensors updated through .data and with no_grad."""
import torch

torch.manual_seed(50)
W1 = (torch.randn(3, 8) * 0.3).requires_grad_()
W2 = (torch.randn(8, 1) * 0.3).requires_grad_()
ls = []
for i in range(60):
    x = torch.randn(16, 3)
    l = ((x @ W1).relu() @ W2 - x.sum(1, keepdim=True)).pow(2).mean()
    l.backward()
    if i % 2:
        W1.data -= 0.05 * W1.grad.data
        W2.data.add_(W2.grad.data, alpha=-0.05)
        W1.grad.zero_(), W2.grad.zero_()
    else:
        with torch.no_grad():
            for w in (W1, W2):
                w -= 0.05 * w.grad
                w.grad = None
    ls.append(l.item())
print(ls[0], ls[-1])
