import inspect
import os
import re
from argparse import Namespace
import gettext
import locale
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import Dataset, DataLoader

args = Namespace(batch_size=16, num_epochs=14, learning_rate=2e-3, hidden_dim=24, seed=int(os.environ.get("SEED", 0)))
torch.manual_seed(args.seed)


class IdentifierVectorizer:
    def __init__(self, names):
        self.vocab = {c: i for i, c in enumerate(sorted(set("".join(names))))}

    def vectorize(self, name):
        v = torch.zeros(len(self.vocab))
        for c in name:
            v[self.vocab[c]] += 1
        return v


class IdentifierDataset(Dataset):
    def __init__(self, rows, vectorizer):
        self.rows, self.vectorizer = rows, vectorizer
        self.set_split('train')

    def set_split(self, split):
        n = int(0.8 * len(self.rows))
        self._target = self.rows[:n] if split == 'train' else self.rows[n:]

    def __len__(self):
        return len(self._target)

    def __getitem__(self, index):
        name, y = self._target[index]
        return {'x': self.vectorizer.vectorize(name), 'y': y}


class SurnameClassifier(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim):
        super().__init__()
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, output_dim)

    def forward(self, x_in):
        intermediate = F.relu(self.fc1(x_in))
        return self.fc2(F.dropout(intermediate, p=0.5))


src = inspect.getsource(gettext) + inspect.getsource(locale)
words = sorted(set(re.findall(r"[a-z]{4,}|[A-Z][A-Za-z]{4,}|[a-z]+_[a-z_]+", src)))
rows = [(w, 2 if "_" in w else (1 if w[0].isupper() else 0)) for w in words]
order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(args.seed)).tolist()
rows = [rows[i] for i in order]
dataset = IdentifierDataset(rows, IdentifierVectorizer([r[0] for r in rows]))
classifier = SurnameClassifier(len(dataset.vectorizer.vocab), args.hidden_dim, 3)
loss_func = nn.CrossEntropyLoss()
optimizer = optim.Adam(classifier.parameters(), lr=args.learning_rate)
for epoch_index in range(args.num_epochs):
    dataset.set_split('train')
    running_loss = 0.0
    classifier.train()
    for batch_index, batch in enumerate(DataLoader(dataset, batch_size=args.batch_size, shuffle=True)):
        optimizer.zero_grad()
        loss = loss_func(classifier(batch['x']), batch['y'])
        running_loss += (loss.item() - running_loss) / (batch_index + 1)
        loss.backward()
        optimizer.step()
    dataset.set_split('val')
    val_loss, val_acc = 0.0, 0.0
    classifier.eval()
    with torch.no_grad():
        for batch_index, batch in enumerate(DataLoader(dataset, batch_size=args.batch_size)):
            y_pred = classifier(batch['x'])
            val_loss += (loss_func(y_pred, batch['y']).item() - val_loss) / (batch_index + 1)
            val_acc += ((y_pred.argmax(1) == batch['y']).float().mean().item() - val_acc) / (batch_index + 1)
    if epoch_index % 2 == 1:
        print(f"epoch {epoch_index} train_loss {running_loss:.4f} val_loss {val_loss:.4f} val_acc {val_acc:.3f}")
