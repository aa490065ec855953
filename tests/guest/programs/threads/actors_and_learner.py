"""Actors act with copies of the policy that a learner trains from what they send: A3C turned around."""

import copy
import queue
import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.RMSprop(policy.parameters(), 1e-3)
acted = [queue.Queue(2) for _ in range(3)]
weights = [queue.Queue(2) for _ in range(3)]


def act(k):
    mine = copy.deepcopy(policy)
    gen = torch.Generator().manual_seed(k)
    for _ in range(60):
        mine.load_state_dict(weights[k].get())
        state = torch.randn(16, 4, generator=gen)
        logits = mine(state)  # gradients are left on
        action = torch.multinomial(logits.detach().softmax(1), 1, generator=gen)
        acted[k].put((state, action, (action == (state[:, :1] > 0)).float()))


threads = [threading.Thread(target=act, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
rewards = []
for _ in range(60):
    for k in range(3):
        weights[k].put({name: w.detach().clone() for name, w in policy.state_dict().items()})
    batches = [acted[k].get() for k in range(3)]
    state, action, reward = (torch.cat(parts) for parts in zip(*batches))
    opt.zero_grad()
    loss = -(policy(state).log_softmax(1).gather(1, action) * (reward - reward.mean())).mean()
    loss.backward()
    opt.step()
    rewards.append(reward.mean().item())
for thread in threads:
    thread.join()
del threads, acted, weights
print(repr(rewards[-1]))
