import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(8)
g = torch.Generator().manual_seed(8)
LABELS = ['O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC']
VOCAB, LEN = 120, 14


def make_data(n):
    tokens = torch.randint(60, VOCAB, (n, LEN), generator=g)
    tags = torch.zeros(n, LEN, dtype=torch.long)
    image = torch.zeros(n, 12)
    for i in range(n):
        kind = torch.randint(0, 2, (1,), generator=g).item()
        image[i, kind * 6:(kind + 1) * 6] = 1.0
        pos = 0
        while pos < LEN - 3:
            pos += torch.randint(0, 4, (1,), generator=g).item()
            if pos >= LEN - 3:
                break
            t = torch.randint(0, 3, (1,), generator=g).item()
            base = {0: 0, 1: 20, 2: 40}[t]
            etype = t if t != 2 else (1 if kind else 2)
            ln = torch.randint(1, 4, (1,), generator=g).item()
            tokens[i, pos:pos + ln] = base + torch.randint(0, 20, (ln,), generator=g)
            tags[i, pos] = 1 + 2 * etype
            tags[i, pos + 1:pos + ln] = 2 + 2 * etype
            pos += ln + 1
    image = image + 0.3 * torch.randn(n, 12, generator=g)
    return TensorDataset(tokens, image, tags)


class HMNeTNERModel(nn.Module):
    def __init__(self, num_labels, hidden=16):
        super().__init__()
        self.text_embed = nn.Embedding(VOCAB, 24)
        self.text_rnn = nn.LSTM(24, hidden // 2, batch_first=True, bidirectional=True)
        self.visual_prompt = nn.Sequential(nn.Linear(12, 24), nn.Tanh())
        self.fc = nn.Linear(hidden, num_labels)

    def forward(self, tokens, image):
        x = self.text_embed(tokens) + self.visual_prompt(image).unsqueeze(1)
        out, _ = self.text_rnn(x)
        return self.fc(out)


class NERTrainer(object):
    def __init__(self, model, train_data, dev_data, lr=5e-3, num_epochs=8):
        self.model, self.train_data, self.dev_data = model, train_data, dev_data
        self.lr, self.num_epochs = lr, num_epochs

    def multiModal_before_train(self):
        parameters = []
        params = {'lr': self.lr, 'weight_decay': 1e-4}
        params['params'] = []
        for name, param in self.model.named_parameters():
            if 'text' in name:
                params['params'].append(param)
        parameters.append(params)

        params = {'lr': self.lr, 'weight_decay': 1e-4}
        params['params'] = []
        for name, param in self.model.named_parameters():
            if 'visual' in name:
                params['params'].append(param)
        parameters.append(params)

        params = {'lr': self.lr * 2, 'weight_decay': 1e-4}
        params['params'] = []
        for name, param in self.model.named_parameters():
            if name.startswith('fc'):
                params['params'].append(param)
        self.optimizer = torch.optim.AdamW(parameters)

    def train(self):
        self.multiModal_before_train()
        for epoch in range(1, self.num_epochs + 1):
            self.model.train()
            avg_loss = 0
            for tokens, image, tags in self.train_data:
                logits = self.model(tokens, image)
                loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
                avg_loss += loss.item()
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            print('epoch {}/{} loss {:.5f} dev acc on entities {:.4f}'.format(
                epoch, self.num_epochs, avg_loss / len(self.train_data), self.evaluate()))

    def evaluate(self):
        self.model.eval()
        hit = total = 0
        with torch.no_grad():
            for tokens, image, tags in self.dev_data:
                pred = self.model(tokens, image).argmax(-1)
                sel = tags > 0
                hit += (pred[sel] == tags[sel]).sum().item()
                total += sel.sum().item()
        return hit / total


if __name__ == '__main__':
    train_loader = DataLoader(make_data(1200), batch_size=32, shuffle=True)
    dev_loader = DataLoader(make_data(300), batch_size=100)
    NERTrainer(HMNeTNERModel(len(LABELS)), train_loader, dev_loader).train()
