import os
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class Network(nn.Module):
    def __init__(self):
        super(Network, self).__init__()
        self.fc1 = nn.Linear(in_features=1, out_features=50, bias=True)
        self.fc2 = nn.Linear(in_features=50, out_features=1, bias=True)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.fc2(x)
        return x


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()

input = torch.tensor([x for x in range(1, 4000)]).float()
target = torch.tensor([d ** 3 for d in input.tolist()])
input = input.unsqueeze(1)
target = target.unsqueeze(1)

for epoch in range(600):
    optimizer.zero_grad()
    out = model(input)
    loss = criterion(out, target)
    loss.backward()
    optimizer.step()
    if epoch % 60 == 0 or epoch == 599:
        print('Epoch {}, loss {:.4g}, max. pred val {:.4g}'.format(epoch, loss.item(), out.max().item()))
print('fraction of variance left', (loss / target.var()).item())
