"""A variational autoencoder on handwritten digits with the loss of the paper: cross entropy and KL, summed per image."""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0)


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc_mu = nn.Linear(64, latent)
        self.fc_logvar = nn.Linear(64, latent)
        self.fc3 = nn.Linear(latent, 64)
        self.fc4 = nn.Linear(64, 64)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h = F.relu(self.fc3(z))
        return self.fc4(h)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def elbo_loss(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / x.size(0)


images = torch.tensor(load_digits().images, dtype=torch.float32).flatten(1) / 16
loader = DataLoader(images, batch_size=64, shuffle=True, drop_last=True)
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3)

for epoch in range(9):
    vae.train()
    total_loss = 0
    for batch in loader:
        optimizer.zero_grad()
        recon, mu, logvar = vae(batch)
        loss = elbo_loss(recon, batch, mu, logvar)
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
    print(f"epoch {epoch}: {total_loss / len(loader):.2f}")
