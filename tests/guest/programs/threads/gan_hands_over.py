"""Generator and discriminator are trained by two threads that hand over to each other after each step."""

import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
turn_d, turn_g = threading.Semaphore(1), threading.Semaphore(0)
bce = nn.functional.binary_cross_entropy_with_logits
gl, dl = [], []
gen = torch.Generator().manual_seed(1)


def train_d():
    for _ in range(80):
        turn_d.acquire()
        od.zero_grad()
        real = torch.randn(32, 2, generator=gen)
        fake = G(torch.randn(32, 8, generator=gen)).detach()
        loss = bce(D(real), torch.ones(32, 1)) + bce(D(fake), torch.zeros(32, 1))
        loss.backward()
        od.step()
        dl.append(loss.item())
        turn_g.release()


def train_g():
    for _ in range(80):
        turn_g.acquire()
        og.zero_grad()
        loss = bce(D(G(torch.randn(32, 8, generator=gen))), torch.ones(32, 1))
        loss.backward()
        og.step()
        gl.append(loss.item())
        turn_d.release()


ts = [threading.Thread(target=train_d, name="disc"), threading.Thread(target=train_g, name="gen")]
for t in ts:
    t.start()
for t in ts:
    t.join()
del turn_d, turn_g, ts
print(gl[-1], dl[-1])
