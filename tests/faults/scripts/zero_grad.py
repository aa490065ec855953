"""Regression whose loop never clears the gradients."""

import torch

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x @ torch.randn(8, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(150):
    chosen = torch.randint(256, (32,))
    loss = torch.nn.functional.mse_loss(model(x[chosen]), y[chosen])
    loss.backward()
    optimizer.step()
