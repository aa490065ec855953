"""A denoising autoencoder on handwritten digits; functional style, the batches are drawn at random."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim


class Autoencoder(nn.Module):
    def __init__(self, n_code=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, n_code))
        self.decoder = nn.Sequential(nn.Linear(n_code, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, x):
        code = self.encoder(x)
        recon = self.decoder(code)
        return recon


def load_images():
    pixels = load_digits().data
    return torch.as_tensor(pixels, dtype=torch.float32) / 16


def sample_batch(images, size):
    picked = torch.randint(0, images.shape[0], (size,))
    return images[picked]


def train(model, images, steps, lr):
    optimizer = optim.Adam(model.parameters(), lr=lr)
    model.train()
    for step in range(steps):
        clean = sample_batch(images, 64)
        noisy = clean + 0.1 * torch.randn_like(clean)
        recon = model(noisy)
        loss = F.mse_loss(recon, clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    train(Autoencoder(), load_images(), steps=300, lr=2e-3)
