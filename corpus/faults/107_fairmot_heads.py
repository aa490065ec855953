"""Joint detection and re-identification with learned task weights."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GRID, N_ID = 12, 12


def render(n, rng, glyphs):
    img = 0.1 * rng.standard_normal((n, 1, GRID, GRID))
    hm = np.zeros((n, 1, GRID, GRID))
    ids = np.zeros(n, dtype=np.int64)
    pos = rng.integers(2, GRID - 2, (n, 2))
    for i, (r, c) in enumerate(pos):
        ids[i] = rng.integers(0, N_ID)
        img[i, 0, r - 2:r + 3, c - 2:c + 3] += glyphs[ids[i]]
        hm[i, 0, r, c] = 1
    return (torch.tensor(img, dtype=torch.float32), torch.tensor(hm, dtype=torch.float32), torch.tensor(pos), torch.tensor(ids))


class JointNet(nn.Module):
    def __init__(self, ch=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU())
        self.hm = nn.Conv2d(ch, 1, 1)
        self.emb = nn.Conv2d(ch, 48, 3, padding=1)
        nn.init.constant_(self.hm.bias, -3.0)

    def forward(self, x):
        z = self.backbone(x)
        return self.hm(z), self.emb(z)


class MotLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(48, N_ID)
        self.s_det = nn.Parameter(-1.85 * torch.ones(1))
        self.s_id = nn.Parameter(-1.05 * torch.ones(1))

    def forward(self, hm, emb, target):
        t_hm, pos, ids = target
        hm_loss = F.binary_cross_entropy_with_logits(hm, t_hm, pos_weight=torch.tensor(20.0))
        feat = emb[torch.arange(len(ids)), :, pos[:, 0], pos[:, 1]]
        logits = self.classifier(feat)
        id_loss = F.cross_entropy(logits, ids)
        loss = 0.5 * (torch.exp(-self.s_det) * hm_loss + torch.exp(-self.s_id) * id_loss + self.s_det + self.s_id)
        return loss.squeeze(), hm_loss.detach(), id_loss.detach(), logits.detach()


class BaseTrainer:
    def __init__(self, model):
        self.model, self.loss = model, MotLoss()
        self.optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": self.loss.classifier.parameters()}], lr=2e-3)

    def run_epoch(self, data, batch_size=32):
        self.model.train()
        self.loss.train()
        img, *target = data
        for idx in torch.randperm(len(img)).split(batch_size):
            loss, h, i, _ = self.loss(*self.model(img[idx]), [t[idx] for t in target])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item(), h.item(), i.item()

    @torch.no_grad()
    def val(self, data):
        self.model.eval()
        self.loss.eval()
        img, *target = data
        hm, emb = self.model(img)
        loss, _, _, logits = self.loss(hm, emb, target)
        peak = hm.flatten(1).argmax(1)
        det = (peak == target[1][:, 0] * GRID + target[1][:, 1]).float().mean().item()
        return loss.item(), det, (logits.argmax(1) == target[2]).float().mean().item()


torch.manual_seed(9)
rng = np.random.default_rng(9)
glyphs = (rng.random((N_ID, 5, 5)) < 0.5).astype(float)
train_set, val_set = render(1600, rng, glyphs), render(300, rng, glyphs)
trainer = BaseTrainer(JointNet())
for epoch in range(8):
    l, h, i = trainer.run_epoch(train_set)
    v, det, ident = trainer.val(val_set)
    print(f"epoch {epoch} loss {l:.3f} hm {h:.3f} id {i:.3f} | val {v:.3f} det {det:.3f} id acc {ident:.3f} "
          f"s {trainer.loss.s_det.item():.2f} {trainer.loss.s_id.item():.2f}")
