"""Event sequences: a history encoder and a small VAE as decoder for each next event."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class VAEDecoder(nn.Module):
    def __init__(self, feat, hist, latent=3, hidden=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(feat + hist, hidden), nn.Tanh())
        self.fc_mean = nn.Linear(hidden, latent)
        self.fc_var = nn.Linear(hidden, latent)
        self.dec = nn.Sequential(nn.Linear(latent + hist, hidden), nn.Tanh(), nn.Linear(hidden, feat))

    def forward(self, x, history, seq_onehots):
        h = self.enc(torch.cat([x, history], -1))
        mean, log_var = self.fc_mean(h), self.fc_var(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        recon = self.dec(torch.cat([z, history], -1))
        recon_loss = 0.5 * ((recon - x) ** 2 / 0.1).sum(-1) * seq_onehots
        kl_loss = (- 0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())) * seq_onehots
        return recon_loss, kl_loss, mean, recon


class EventModel(nn.Module):
    def __init__(self, feat=8, hist=16):
        super().__init__()
        self.hist_encoder = nn.GRU(feat, hist, batch_first=True)
        self.prob_decoder = VAEDecoder(feat, hist)

    def forward(self, events, mask):
        history, _ = self.hist_encoder(events[:, :-1])
        history = F.pad(history, (0, 0, 1, 0))
        return self.prob_decoder(events, history, mask)


def simulate(n, length, gen):
    """events live on a curved two dimensional surface in eight features"""
    basis = torch.randn(4, 8, generator=torch.Generator().manual_seed(123))
    s = torch.randn(n, length, 2, generator=gen)
    f = torch.stack([s[..., 0], s[..., 1], torch.sin(2 * s[..., 0]), s[..., 0] * s[..., 1]], -1)
    ev = f @ basis / 2 + 0.1 * torch.randn(n, length, 8, generator=gen)
    lens = torch.randint(4, length + 1, (n, 1), generator=gen)
    mask = (torch.arange(length) < lens).float()
    return ev * mask[..., None], mask


def run():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    train_ev, train_mask = simulate(512, 12, gen)
    test_ev, test_mask = simulate(128, 12, gen)
    model = EventModel()
    optim = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(24):
        perm = torch.randperm(512)
        tot_r = tot_k = 0.0
        for k in range(0, 512, 32):
            ev, mask = train_ev[perm[k:k + 32]], train_mask[perm[k:k + 32]]
            recon_loss, kl_loss, _, _ = model(ev, mask)
            r, kl = recon_loss.sum() / mask.sum(), kl_loss.sum() / mask.sum()
            loss = r + kl
            optim.zero_grad()
            loss.backward()
            optim.step()
            tot_r += r.item() / 16
            tot_k += kl.item() / 16
        if epoch % 4 == 3:
            with torch.no_grad():
                _, _, mean, recon = model(test_ev, test_mask)
                err = (((recon - test_ev) ** 2).mean(-1) * test_mask).sum() / test_mask.sum()
            print("epoch %2d recon %.3f kl %.3f | test mse %.4f latent std %.3f" % (
                epoch, tot_r, tot_k, err.item(), mean.std().item()))


run()
