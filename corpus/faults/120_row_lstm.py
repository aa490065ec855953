import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(1)

# Hyper Parameters
sequence_length = 8
input_size = 8
hidden_size = 64
num_layers = 2
num_classes = 10
batch_size = 50
num_epochs = 12
learning_rate = 0.005

digits = load_digits()
images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
perm = torch.randperm(len(images))
train_dataset = TensorDataset(images[perm[:1400]], labels[perm[:1400]])
test_dataset = TensorDataset(images[perm[1400:]], labels[perm[1400:]])

train_loader = DataLoader(dataset=train_dataset, batch_size=batch_size, shuffle=True)
test_loader = DataLoader(dataset=test_dataset, batch_size=batch_size, shuffle=False)


# RNN Model (Many-to-One)
class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers, num_classes):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        x = x.view(sequence_length, -1, input_size)
        h0 = torch.zeros(self.num_layers, x.size(1), self.hidden_size)
        c0 = torch.zeros(self.num_layers, x.size(1), self.hidden_size)
        out, _ = self.lstm(x, (h0, c0))
        out = self.fc(out[-1, :, :])
        return out


rnn = RNN(input_size, hidden_size, num_layers, num_classes)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(rnn.parameters(), lr=learning_rate)

# Train the Model
for epoch in range(num_epochs):
    for i, (images, labels) in enumerate(train_loader):
        optimizer.zero_grad()
        outputs = rnn(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        if (i + 1) % 14 == 0:
            print('Epoch [%d/%d], Step [%d/%d], Loss: %.4f' % (
                epoch + 1, num_epochs, i + 1, len(train_loader), loss.item()))

# Test the Model
correct = 0
total = 0
rnn.eval()
with torch.no_grad():
    for images, labels in test_loader:
        outputs = rnn(images)
        _, predicted = torch.max(outputs, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()
print('Test Accuracy of the model on the %d test images: %d %%' % (total, 100 * correct / total))
