"""PPO (clipped) on a vectorised 1-D reach task with 3 discrete actions."""
import torch, torch.nn as nn
from torch.distributions import Categorical
torch.manual_seed(8)

class Reach:
    """state: position, velocity, goal; reward: minus distance; fixed length of 32 steps, time is part of the state"""
    def __init__(self, n): self.n = n
    def reset(self):
        self.p = torch.rand(self.n) * 2 - 1; self.v = torch.zeros(self.n); self.g = torch.rand(self.n) * 2 - 1; self.t = 0
        return self.obs()
    def obs(self):
        return torch.stack([self.p, self.v * 3, self.g, self.g - self.p, torch.full((self.n,), self.t / 16 - 1)], 1)
    def step(self, a):
        self.v = 0.8 * self.v + 0.1 * (a.float() - 1)
        self.p = (self.p + self.v).clamp(-2, 2); self.t += 1
        return self.obs(), -(self.p - self.g).abs()

class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        self.vf = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 2 ** 0.5); nn.init.zeros_(m.bias)
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)
        nn.init.orthogonal_(self.vf[-1].weight, 1.0)

env, net, T = Reach(32), AC(), 32
opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
GAMMA, LAM, CLIP, SCALE = 0.97, 0.95, 0.2, 0.2       # SCALE keeps value targets of order 1
for update in range(30):
    ob, buf = env.reset(), {k: [] for k in "o a lp r v".split()}
    with torch.no_grad():
        for _ in range(T):
            d = Categorical(logits=net.pi(ob)); a = d.sample()
            nxt, r = env.step(a)
            for k, val in zip("o a lp r v".split(), (ob, a, d.log_prob(a), r * SCALE, net.vf(ob).squeeze(-1))):
                buf[k].append(val)
            ob = nxt
        B = {k: torch.stack(v) for k, v in buf.items()}
        adv, last = torch.zeros(T, env.n), torch.zeros(env.n)
        nv = torch.zeros(env.n)                       # true end of the episode: no bootstrap
        for t in reversed(range(T)):
            delta = B["r"][t] + GAMMA * nv - B["v"][t]
            last = delta + GAMMA * LAM * last
            adv[t], nv = last, B["v"][t]
        ret = adv + B["v"]
    flat = lambda z: z.reshape(-1, *z.shape[2:])
    O, A, LP, ADV, RET = map(flat, (B["o"], B["a"], B["lp"], adv, ret))
    for _ in range(4):
        for i in torch.randperm(len(O)).split(256):
            d = Categorical(logits=net.pi(O[i]))
            ad = (ADV[i] - ADV[i].mean()) / (ADV[i].std() + 1e-8)
            ratio = (d.log_prob(A[i]) - LP[i]).exp()
            pg = -torch.min(ratio * ad, ratio.clamp(1 - CLIP, 1 + CLIP) * ad).mean()
            vl = 0.5 * (net.vf(O[i]).squeeze(-1) - RET[i]).pow(2).mean()
            loss = pg + vl - 0.01 * d.entropy().mean()
            opt.zero_grad(); loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
    if update % 5 == 4 or update == 0:
        print(update, "return %.2f entropy %.2f value loss %.3f" % (B["r"].sum(0).mean().item() / SCALE, d.entropy().mean().item(), vl.item()))
# hand-written controller as a yardstick
env.n = 2000; ob = env.reset(); tot = 0
for _ in range(T):
    e = env.g - env.p - 4 * 0.8 * env.v
    ob, r = env.step(1 + torch.where(e.abs() < 0.05, torch.zeros_like(e), e.sign())); tot += r.mean().item()
print("bang-bang controller %.2f" % tot)
