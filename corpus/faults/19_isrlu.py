import os
import torch
from torch import nn, optim
from torch.autograd import Function
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from sklearn.model_selection import train_test_split

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class ISRLU(Function):
    @staticmethod
    def forward(ctx, tensor, alpha=1):
        negatives = torch.min(tensor, 0 * tensor)
        nisr = torch.rsqrt(1. + alpha * (negatives ** 2))
        ctx.save_for_backward(nisr)
        return tensor * nisr

    @staticmethod
    def backward(ctx, grad_out):
        nisr, = ctx.saved_tensors
        return nisr ** 3, None


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(30, 32)
        self.fc2 = nn.Linear(32, 32)
        self.fc3 = nn.Linear(32, 2)

    def forward(self, x):
        x = ISRLU.apply(self.fc1(x))
        x = ISRLU.apply(self.fc2(x))
        return self.fc3(x)


data = load_breast_cancer()
x_train, x_test, y_train, y_test = train_test_split(data.data, data.target, test_size=0.25, random_state=SEED)
sc = StandardScaler().fit(x_train)
x_train, x_test = (torch.tensor(sc.transform(a), dtype=torch.float32) for a in (x_train, x_test))
y_train, y_test = torch.tensor(y_train), torch.tensor(y_test)

net = Net()
optimizer = optim.SGD(net.parameters(), lr=0.05)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(25):
    perm = torch.randperm(len(x_train))
    run = 0.0
    for i in range(0, len(perm), 32):
        b = perm[i:i + 32]
        optimizer.zero_grad()
        loss = loss_fn(net(x_train[b]), y_train[b])
        loss.backward()
        optimizer.step()
        run += loss.item() * len(b)
    if epoch % 4 == 0:
        with torch.no_grad():
            acc = (net(x_test).argmax(1) == y_test).float().mean().item()
        print('epoch {:2d} loss {:.4f} test acc {:.3f}'.format(epoch, run / len(perm), acc))
