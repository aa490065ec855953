import torch
import torch.nn as nn
from sklearn.datasets import load_digits
# masked autoencoder: 16 patches of 2x2 pixels, 10 of them hidden; loss on the hidden patches only
torch.manual_seed(4)
img = torch.tensor(load_digits().images, dtype=torch.float32)
patches = img.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(img), 16, 4)
mu, sd = patches[:1500].mean(), patches[:1500].std()
patches = (patches - mu) / sd
train, val = patches[:1500], patches[1500:]
D, KEEP = 32, 6


def block_stack(n):
    layer = nn.TransformerEncoderLayer(D, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, n, norm=nn.LayerNorm(D), enable_nested_tensor=False)


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, D)
        self.pos = nn.Parameter(torch.randn(16, D) * 0.02)
        self.dpos = nn.Parameter(torch.randn(16, D) * 0.02)
        self.hole = nn.Parameter(torch.zeros(D))
        self.enc, self.dec = block_stack(1), block_stack(1)
        self.head = nn.Linear(D, 4)

    def forward(self, p):
        b = p.size(0)
        order = torch.rand(b, 16, device=p.device).argsort(1)
        keep, hide = order[:, :KEEP], order[:, KEEP:]
        vis = p.gather(1, keep[..., None].expand(-1, -1, 4))
        h = self.enc(self.embed(vis) + self.pos[keep])
        full = self.hole.expand(b, 16, D).scatter(1, keep[..., None].expand(-1, -1, D), h)
        rec = self.head(self.dec(full + self.dpos))
        sel = hide[..., None].expand(-1, -1, 4)
        return (rec.gather(1, sel) - p.gather(1, sel)).pow(2).mean()


net = MAE()
decay = [p for p in net.parameters() if p.ndim >= 2 and p is not net.pos and p is not net.dpos]
ids = {id(p) for p in decay}
rest = [p for p in net.parameters() if id(p) not in ids]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=6e-3)
TOTAL, WARM = 420, 30
sch = torch.optim.lr_scheduler.SequentialLR(opt, [
    torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, WARM),
    torch.optim.lr_scheduler.CosineAnnealingLR(opt, TOTAL - WARM, eta_min=1e-4)], [WARM])
for step in range(TOTAL):
    net.train()
    loss = net(train[torch.randint(0, 1500, (64,))])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sch.step()
    if step % 70 == 69:
        net.eval()
        with torch.no_grad():
            v = net(val)
        print(step + 1, f"train {loss.item():.3f} val {v:.3f}")
mean_img = train.mean(0)
print("per-pixel mean as a guess:", round((val - mean_img).pow(2).mean().item(), 3))
