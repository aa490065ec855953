import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

SEED = int(os.environ.get("SEED", 0))
torch.manual_seed(SEED)
STATES, ACTIONS, BATCH = 6, 4, 64
gen = torch.Generator().manual_seed(SEED)
GOOD = torch.randn(STATES, ACTIONS, generator=gen)
OFFSET = 3 * torch.randn(STATES, generator=gen)


def play(policy, n):
    s = torch.randn(n, STATES, generator=gen)
    with torch.no_grad():
        probs = F.softmax(policy(s), dim=1)
    a = torch.multinomial(probs, 1, generator=gen).squeeze(1)
    target = (s @ GOOD).argmax(1)
    r = (a == target).float() + s @ OFFSET
    return s, a, r, (a == target).float().mean().item()


net_policy = nn.Sequential(nn.Linear(STATES, 64), nn.ReLU(), nn.Linear(64, ACTIONS))
net_value = nn.Sequential(nn.Linear(STATES, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = optim.Adam(list(net_policy.parameters()) + list(net_value.parameters()), lr=5e-3)
ENTROPY_BETA = 0.01

for step_idx in range(600):
    states_v, actions_t, vals_ref_v, hit = play(net_policy, BATCH)
    optimizer.zero_grad()
    logits_v = net_policy(states_v)
    if True:
        value_v = net_value(states_v)
        loss_value_v = F.mse_loss(value_v, vals_ref_v)
        adv_v = vals_ref_v - value_v.detach()
    log_prob_v = F.log_softmax(logits_v, dim=1)
    log_prob_actions_v = adv_v * log_prob_v[range(BATCH), actions_t]
    loss_policy_v = -log_prob_actions_v.mean()
    prob_v = F.softmax(logits_v, dim=1)
    entropy_loss_v = ENTROPY_BETA * (prob_v * log_prob_v).sum(dim=1).mean()
    loss_v = loss_policy_v + entropy_loss_v + loss_value_v
    loss_v.backward()
    nn.utils.clip_grad_norm_(net_policy.parameters(), 5.0)
    optimizer.step()
    if step_idx % 75 == 0 or step_idx == 599:
        print(f"{step_idx}: value loss {loss_value_v.item():.3f} policy {loss_policy_v.item():.3f} hit rate {hit:.2f}")
