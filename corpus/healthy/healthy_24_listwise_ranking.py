"""Learning to rank: variable number of documents a query, listwise softmax loss, padded and masked."""
import torch
from torch import nn
torch.manual_seed(99)
Q, L, D = 1500, 15, 16
feats = torch.randn(Q, L, D)
length = torch.randint(4, L + 1, (Q,))
mask = torch.arange(L)[None] < length[:, None]
w = torch.randn(D) / D ** 0.5
util = 1.5 * (feats @ w) + 0.8 * feats[..., 0] * feats[..., 1] + 0.7 * torch.randn(Q, L)
rel = torch.bucketize(util, torch.tensor([0.0, 1.0, 2.0])).float()     # graded 0..3
feats = feats * mask[..., None]
rel = rel * mask

scorer = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1, bias=False))

def list_loss(s, rel, mask):
    s = s.masked_fill(~mask, -1e4)
    t = (2 ** rel - 1) * mask
    keep = t.sum(1) > 0                       # a query with no relevant document says nothing
    t = t[keep] / t[keep].sum(1, keepdim=True)
    return -(t * torch.log_softmax(s[keep], 1)).sum(1).mean()

def ndcg(s, rel, mask, k=10):
    s = s.masked_fill(~mask, -1e4)
    disc = 1 / torch.log2(torch.arange(k) + 2.0)
    g = (2 ** rel - 1) * mask
    dcg = (g.gather(1, s.argsort(1, descending=True))[:, :k] * disc).sum(1)
    ideal = (g.sort(1, descending=True).values[:, :k] * disc).sum(1)
    ok = ideal > 0
    return (dcg[ok] / ideal[ok]).mean().item()

opt = torch.optim.Adam(scorer.parameters(), lr=2e-3)
tr = torch.arange(1200); te = torch.arange(1200, Q)
print("untrained ndcg@10", round(ndcg(scorer(feats[te]).squeeze(-1).detach(), rel[te], mask[te]), 3))
for epoch in range(16):
    running = 0.0
    for b in tr[torch.randperm(1200)].split(40):
        out = scorer(feats[b]).squeeze(-1)
        loss = list_loss(out, rel[b], mask[b])
        opt.zero_grad(); loss.backward(); opt.step()
        running += loss.item() / 30
    if epoch % 3 == 0:
        with torch.no_grad():
            s = scorer(feats[te]).squeeze(-1)
        print(epoch, "train", round(running, 3), "test", round(list_loss(s, rel[te], mask[te]).item(), 3), "ndcg@10", round(ndcg(s, rel[te], mask[te]), 3))
noiseless = (1.5 * (feats @ w) + 0.8 * feats[..., 0] * feats[..., 1])[te]
print("noise-free utility ndcg", round(ndcg(noiseless, rel[te], mask[te]), 3))
