import os
import torch
import torch.nn as nn

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)


class FusedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["step"] = 0
                    st["m"] = torch.zeros(p.numel())
                    st["v"] = torch.zeros(p.numel())
                st["step"] += 1
                flat, g = p.data.contiguous().view(-1), p.grad.contiguous().view(-1)
                st["m"].mul_(b1).add_(g, alpha=1 - b1)
                st["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
                denom = (st["v"] / (1 - b2 ** st["step"])).sqrt_().add_(group["eps"])
                flat.addcdiv_(st["m"], denom, value=-group["lr"] / (1 - b1 ** st["step"]))


class SparseAutoencoder(nn.Module):
    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.encoder = nn.Linear(d_model, d_hidden)
        self.decoder = nn.Linear(d_hidden, d_model)
        self.decoder.weight.data /= self.decoder.weight.data.norm(dim=0, keepdim=True)
        self.encoder.weight.data = self.decoder.weight.data.T.clone()
        self.encoder.bias.data.zero_()

    def forward(self, x):
        z = torch.relu(self.encoder(x - self.decoder.bias))
        return self.decoder(z), z


gen = torch.Generator().manual_seed(SEED)
dictionary = nn.functional.normalize(torch.randn(60, 24, generator=gen), dim=1)


def activations(n):
    code = torch.rand(n, 60, generator=gen) * (torch.rand(n, 60, generator=gen) < 0.06)
    return code @ dictionary


sae = SparseAutoencoder(24, 64)
opt = FusedAdam(sae.parameters(), lr=3e-3)
for step in range(601):
    x = activations(128)
    recon, z = sae(x)
    mse = (recon - x).pow(2).sum(-1).mean()
    l1 = z.abs().sum(-1).mean()
    loss = mse + 0.02 * l1
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(f"{step}: loss {loss.item():.4f} mse {mse.item():.4f} l0 {(z > 1e-3).float().sum(-1).mean().item():.1f}")
