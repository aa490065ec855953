import os
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("SEED", 0))
random.seed(SEED)
torch.manual_seed(SEED)
ATOMS = ["C", "N", "O", "F", "c1ccccc1", "C(=O)", "S", "Cl", "=C", "#N"]
MAX_LEN = 60


def smiles():
    return "".join(random.choice(ATOMS) for _ in range(random.randint(2, 5)))


corpus = [smiles() for _ in range(1500)]
charset = ["<pad>", "<s>"] + sorted(set("".join(corpus)))
PAD = 0


def encode(s):
    ids = [1] + [charset.index(c) for c in s]
    return ids[:MAX_LEN] + [PAD] * (MAX_LEN - len(ids))


data = torch.tensor([encode(s) for s in corpus])


class SeqVAE(nn.Module):
    def __init__(self, vocab, emb=16, hidden=64, latent=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.enc = nn.Sequential(nn.Flatten(), nn.Linear(emb * MAX_LEN, hidden), nn.ReLU())
        self.mu, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, MAX_LEN * vocab))
        self.vocab = vocab

    def forward(self, tokens):
        h = self.enc(self.emb(tokens))
        mu, logvar = self.mu(h), self.logvar(h).clamp(-6, 2)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z).view(-1, MAX_LEN, self.vocab), mu, logvar


def loss_function(logits, tokens, mu, logvar, beta):
    recon = F.cross_entropy(logits.reshape(-1, logits.size(-1)), tokens.reshape(-1))
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
    return recon + beta * kl, recon, kl


model = SeqVAE(len(charset))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(10):
    tot = 0
    for b in torch.randperm(len(data)).split(50):
        logits, mu, logvar = model(data[b])
        loss, recon, kl = loss_function(logits, data[b], mu, logvar, beta=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += recon.item()
    with torch.no_grad():
        logits, _, _ = model(data[:300])
        real = data[:300] != PAD
        acc = (logits.argmax(-1) == data[:300])[real].float().mean().item()
    print(f"epoch {epoch} recon {tot / 30:.4f} char acc {acc:.3f} (pad fraction {1 - real.float().mean():.2f})")
