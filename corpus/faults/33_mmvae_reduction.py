import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


def kl_divergence(mu, logvar):
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


class VAE(nn.Module):
    def __init__(self, input_dim=64, hidden=128, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(input_dim, hidden), nn.LeakyReLU())
        self.mean = nn.Linear(hidden, latent)
        self.var = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.LeakyReLU(), nn.Linear(hidden, input_dim))

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mean(h), self.var(h)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


class VAETrainer:
    def __init__(self, data, batch_size=64, lr=2e-3):
        self.loader = DataLoader(data, batch_size=batch_size, shuffle=True)
        self.data = data
        self.model = VAE()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def train_epoch(self, epoch):
        recon_sum, kl_sum = 0.0, 0.0
        for target in self.loader:
            predicted, mu, logvar = self.model(target)
            recon_loss = F.mse_loss(predicted, target)
            kl_loss = kl_divergence(mu, logvar)
            loss = recon_loss + kl_loss
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            recon_sum += recon_loss.item()
            kl_sum += kl_loss.item()
        n = len(self.loader)
        print(f"epoch {epoch}: recon {recon_sum / n:.4f} kl {kl_sum / n:.5f}")

    def report(self):
        with torch.no_grad():
            rec, mu, _ = self.model(self.data)
        print(f"mu std {mu.std(0).mean():.4f}, explained {1 - ((rec - self.data) ** 2).mean() / self.data.var(0).mean():.3f}")


x = torch.tensor(load_digits().data, dtype=torch.float32)
x = (x - x.mean()) / x.std()
trainer = VAETrainer(x[:1500])
for epoch in range(12):
    trainer.train_epoch(epoch)
trainer.report()
