import numpy as np
import torch
import torch.nn as nn
from torch.optim import Adam
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(6)
rng = np.random.default_rng(4)
NGENOMES, NSAMPLES, NTNF = 24, 12, 48


def make_contigs(n):
    genome = rng.integers(0, NGENOMES, n)
    profile = np.zeros((NGENOMES, NSAMPLES))
    profile[np.arange(NGENOMES), np.arange(NGENOMES) % NSAMPLES] = 1.0
    depths = profile[genome] * rng.gamma(20, 1 / 20., (n, NSAMPLES))
    depths /= depths.sum(1, keepdims=True)
    centre = rng.normal(size=(NGENOMES, NTNF))
    length = np.exp(rng.normal(7.5, 2.0, n)) + 0.2
    tnf = centre[genome] + rng.normal(size=(n, NTNF)) * np.sqrt(600 / length)[:, None]
    tnf = (tnf - tnf.mean(0)) / tnf.std(0)
    return depths.astype(np.float32), tnf.astype(np.float32), genome


class VAE(nn.Module):
    def __init__(self, nsamples, ntnf, nhiddens=96, nlatent=16, beta=200., alpha=0.15):
        super(VAE, self).__init__()
        self.nsamples, self.ntnf, self.nlatent = nsamples, ntnf, nlatent
        self.beta, self.alpha = beta, alpha
        self.enc1 = nn.Linear(nsamples + ntnf, nhiddens)
        self.enc2 = nn.Linear(nhiddens, nhiddens)
        self.mu = nn.Linear(nhiddens, nlatent)
        self.logsigma = nn.Linear(nhiddens, nlatent)
        self.dec1 = nn.Linear(nlatent, nhiddens)
        self.dec2 = nn.Linear(nhiddens, nhiddens)
        self.outputlayer = nn.Linear(nhiddens, nsamples + ntnf)
        self.relu = nn.LeakyReLU()
        self.softplus = nn.Softplus()

    def encode(self, x):
        x = self.relu(self.enc2(self.relu(self.enc1(x))))
        return self.mu(x), self.softplus(self.logsigma(x)) + 1e-3

    def decode(self, z):
        x = self.outputlayer(self.relu(self.dec2(self.relu(self.dec1(z)))))
        depths_out = torch.softmax(x[:, :self.nsamples], dim=1)
        return depths_out, x[:, self.nsamples:]

    def forward(self, depths, tnf):
        mu, sigma = self.encode(torch.cat((depths, tnf), 1))
        z = mu + torch.randn_like(mu) * sigma
        depths_out, tnf_out = self.decode(z)
        return depths_out, tnf_out, mu, sigma

    def calc_loss(self, depths_in, depths_out, tnf_in, tnf_out, mu, sigma):
        ce = -(torch.log(depths_out) * depths_in).sum(dim=1).mean()
        sse = (tnf_out - tnf_in).pow(2).mean(dim=1).mean()
        kld = -0.5 * (1 + 2 * sigma.log() - mu.pow(2) - sigma.pow(2)).sum(dim=1).mean()
        ce_weight = (1 - self.alpha) / np.log(self.nsamples)
        loss = ce * ce_weight + sse * self.alpha + kld / (self.nlatent * self.beta)
        return loss, ce, sse, kld


depths, tnf, genome = make_contigs(2400)
loader = DataLoader(TensorDataset(torch.from_numpy(depths), torch.from_numpy(tnf)), batch_size=64, shuffle=True)
vae = VAE(NSAMPLES, NTNF)
optimizer = Adam(vae.parameters(), lr=5e-3)

for epoch in range(8):
    sums = np.zeros(4)
    for depths_in, tnf_in in loader:
        optimizer.zero_grad()
        depths_out, tnf_out, mu, sigma = vae(depths_in, tnf_in)
        loss, ce, sse, kld = vae.calc_loss(depths_in, depths_out, tnf_in, tnf_out, mu, sigma)
        loss.backward()
        optimizer.step()
        sums += [loss.item(), ce.item(), sse.item(), kld.item()]
    print('\tEpoch: {}\tLoss: {:.6f}\tCE: {:.7f}\tSSE: {:.6f}\tKLD: {:.4f}'.format(epoch + 1, *(sums / len(loader))))
