import copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset, DataLoader
from torch.utils.data.sampler import SubsetRandomSampler

torch.manual_seed(15)
np.random.seed(15)
batch_size = 20
valid_size = 0.2

digits = load_digits()
data = torch.tensor(digits.data / 16.0, dtype=torch.float32)
target = torch.tensor(digits.target)
order = torch.randperm(len(data))
train_data = TensorDataset(data[order[:1500]], target[order[:1500]])
test_data = TensorDataset(data[order[1500:]], target[order[1500:]])

indices = list(range(len(train_data)))
np.random.shuffle(indices)
split = int(np.floor(valid_size * len(indices)))
train_idx, valid_idx = indices[split:], indices[:split]
train_loader = DataLoader(train_data, batch_size=batch_size, sampler=SubsetRandomSampler(train_idx))
valid_loader = DataLoader(train_data, batch_size=batch_size, sampler=SubsetRandomSampler(valid_idx))
test_loader = DataLoader(test_data, batch_size=batch_size)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc3 = nn.Linear(256, 10)
        self.dropout = nn.Dropout(0.4)

    def forward(self, x):
        x = self.dropout(F.relu(self.fc1(x)))
        x = self.dropout(F.relu(self.fc2(x)))
        return self.fc3(x)


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
n_epochs = 8
valid_loss_min = np.inf

for epoch in range(n_epochs):
    train_loss = 0.0
    valid_loss = 0.0

    # train the model
    model.train()
    for data, target in train_loader:
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        train_loss += loss.item() * data.size(0)

    # validate the model
    with torch.no_grad():
        for data, target in valid_loader:
            output = model(data)
            loss = criterion(output, target)
            valid_loss += loss.item() * data.size(0)

    train_loss = train_loss / len(train_loader.sampler)
    valid_loss = valid_loss / len(valid_loader.sampler)
    print('Epoch: {} \tTraining Loss: {:.6f} \tValidation Loss: {:.6f}'.format(epoch + 1, train_loss, valid_loss))
    if valid_loss <= valid_loss_min:
        best = copy.deepcopy(model.state_dict())
        valid_loss_min = valid_loss

model.load_state_dict(best)
correct = 0
with torch.no_grad():
    for data, target in test_loader:
        correct += (model(data).argmax(1) == target).sum().item()
print('Best validation loss: {:.6f}  Test Accuracy: {:.2f}%'.format(valid_loss_min, 100. * correct / len(test_data)))
