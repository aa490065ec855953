"""Mixture-density RNN that predicts the next latent."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as f
from torch.distributions.normal import Normal


class MDRNN(nn.Module):
    def __init__(self, latents, actions, hiddens, gaussians):
        super().__init__()
        self.latents, self.gaussians = latents, gaussians
        self.rnn = nn.LSTM(latents + actions, hiddens)
        self.gmm_linear = nn.Linear(hiddens, (2 * latents + 1) * gaussians)

    def forward(self, actions, latents):
        seq_len, bs = actions.size(0), actions.size(1)
        outs, _ = self.rnn(torch.cat([actions, latents], dim=-1))
        gmm = self.gmm_linear(outs)
        stride = self.gaussians * self.latents
        mus = gmm[:, :, :stride].view(seq_len, bs, self.gaussians, self.latents)
        sigmas = torch.exp(gmm[:, :, stride:2 * stride].clamp(-5, 3)).view(seq_len, bs, self.gaussians, self.latents)
        pi = gmm[:, :, 2 * stride:].view(seq_len, bs, self.gaussians)
        logpi = f.log_softmax(pi, dim=-2)
        return mus, sigmas, logpi


def gmm_loss(batch, mus, sigmas, logpi):
    g = Normal(mus, sigmas).log_prob(batch.unsqueeze(-2)).sum(-1) + logpi
    return -torch.logsumexp(g, dim=-1).mean()


def rollouts(n, rng, length=33):
    """A point that moves with the action and, now and then, jumps to the mirrored place."""
    a = rng.choice([-1.0, 1.0], (length, n, 1))
    z = np.zeros((length, n, 2))
    z[0] = rng.standard_normal((n, 2))
    for t in range(1, length):
        drift = np.concatenate([0.3 * a[t - 1], 0.15 * z[t - 1][:, :1]], 1)
        z[t] = 0.9 * z[t - 1] + drift + 0.05 * rng.standard_normal((n, 2))
        jump = rng.random(n) < 0.25
        z[t, jump] *= -1
    return torch.tensor(a, dtype=torch.float32), torch.tensor(z, dtype=torch.float32)


torch.manual_seed(6)
rng = np.random.default_rng(6)
acts, lats = rollouts(1600, rng)
vacts, vlats = rollouts(256, rng)
mdrnn = MDRNN(2, 1, 64, 4)
optimizer = torch.optim.RMSprop(mdrnn.parameters(), lr=2e-3, alpha=0.9)


def get_loss(a, z):
    mus, sigmas, logpi = mdrnn(a[:-1], z[:-1])
    return gmm_loss(z[1:], mus, sigmas, logpi)


for epoch in range(10):
    mdrnn.train()
    cum = 0.0
    parts = torch.randperm(acts.size(1)).split(50)
    for idx in parts:
        optimizer.zero_grad()
        loss = get_loss(acts[:, idx], lats[:, idx])
        loss.backward()
        nn.utils.clip_grad_norm_(mdrnn.parameters(), 1.0)
        optimizer.step()
        cum += loss.item()
    mdrnn.eval()
    with torch.no_grad():
        print(f"epoch {epoch} train {cum / len(parts):.4f} test {get_loss(vacts, vlats).item():.4f}")
