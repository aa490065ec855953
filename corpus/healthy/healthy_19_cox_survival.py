"""Cox proportional hazards with a neural risk score (DeepSurv style), right-censored data."""
import torch, torch.nn as nn
torch.manual_seed(3)

N, P = 3000, 10
x = torch.randn(N, P)
log_hz = 0.8 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * (x[:, 2] ** 2 - 1) * 0.7
t_event = torch.distributions.Exponential(torch.exp(log_hz)).sample()
t_cens = torch.distributions.Exponential(torch.full((N,), 0.8)).sample()
time = torch.minimum(t_event, t_cens)
event = (t_event <= t_cens).float()


def cox_loss(risk, time, event):
    """negative partial log likelihood, mean over observed events (continuous times: no ties)"""
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order]
    log_cum = torch.logcumsumexp(risk, 0)
    return -((risk - log_cum) * event).sum() / event.sum().clamp(min=1)


def c_index(risk, time, event):
    comp = (time[:, None] < time[None, :]) & (event[:, None] == 1)
    good = (risk[:, None] > risk[None, :]) & comp
    return (good.sum() / comp.sum()).item()


# no bias on the last layer: the partial likelihood is invariant to a shift
net = nn.Sequential(nn.Linear(P, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1, bias=False))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
tr, te = slice(0, 2400), slice(2400, N)
B = 300
for epoch in range(25):
    net.train()
    perm = torch.randperm(2400)
    ep = 0.
    for k in range(0, 2400, B):
        j = perm[k:k + B]
        loss = cox_loss(net(x[j])[:, 0], time[j], event[j])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ep += loss.item() * B / 2400
    if epoch % 6 == 0 or epoch == 24:
        net.eval()
        with torch.no_grad():
            r = net(x[te])[:, 0]
            print(epoch, "train %.4f" % ep, "val %.4f" % cox_loss(r, time[te], event[te]),
                  "c-index %.3f" % c_index(r, time[te], event[te]))
print("oracle c-index %.3f val loss %.4f events %.2f" % (
    c_index(log_hz[te], time[te], event[te]), cox_loss(log_hz[te], time[te], event[te]), event.mean()))
