import numpy as np
import torch
from torch import nn
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

torch.manual_seed(13)
np.random.seed(13)


class PyODDataset(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X

    def __len__(self):
        return self.X.shape[0]

    def __getitem__(self, idx):
        return torch.from_numpy(self.X[idx]), idx


class InnerAutoencoder(nn.Module):
    def __init__(self, n_features, hidden_neurons=(24, 10), dropout_rate=0.05):
        super(InnerAutoencoder, self).__init__()
        layers = [n_features, *hidden_neurons]
        self.encoder = nn.Sequential()
        self.decoder = nn.Sequential()
        for i in range(len(layers) - 1):
            self.encoder.add_module('linear' + str(i), nn.Linear(layers[i], layers[i + 1]))
            self.encoder.add_module('relu' + str(i), nn.ReLU())
            self.encoder.add_module('dropout' + str(i), nn.Dropout(dropout_rate))
        layers = layers[::-1]
        for i in range(len(layers) - 2):
            self.decoder.add_module('linear' + str(i), nn.Linear(layers[i], layers[i + 1]))
            self.decoder.add_module('relu' + str(i), nn.ReLU())
        self.decoder.add_module('linear_out', nn.Linear(layers[-2], layers[-1]))
        self.decoder.add_module('sigmoid', nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


class AutoEncoder:
    def __init__(self, epochs=40, batch_size=32, learning_rate=3e-3):
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate

    def fit(self, X):
        self.scaler = StandardScaler().fit(X)
        X = self.scaler.transform(X).astype(np.float32)
        loader = torch.utils.data.DataLoader(PyODDataset(X), batch_size=self.batch_size, shuffle=True)
        self.model = InnerAutoencoder(X.shape[1])
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate, weight_decay=1e-5)
        loss_func = nn.MSELoss()
        self.model.train()
        for epoch in range(self.epochs):
            overall_loss = []
            for data, _ in loader:
                loss = loss_func(self.model(data), data)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                overall_loss.append(loss.item())
            if epoch % 5 == 4:
                print('epoch {}: training loss {:.4f}'.format(epoch, np.mean(overall_loss)))
        return self

    def decision_function(self, X):
        X = torch.from_numpy(self.scaler.transform(X).astype(np.float32))
        self.model.eval()
        with torch.no_grad():
            return (self.model(X) - X).pow(2).mean(1).numpy()


data = load_breast_cancer()
benign, malignant = data.data[data.target == 1], data.data[data.target == 0]
clf = AutoEncoder().fit(benign[:300])
inl, out = clf.decision_function(benign[300:]), clf.decision_function(malignant)
print('held-out benign error %.3f' % inl.mean())
print('roc auc %.3f' % roc_auc_score(np.r_[np.zeros(len(inl)), np.ones(len(out))], np.r_[inl, out]))
