"""Programs whose memory grows, each with the words of the line that keeps it, and healthy ones whose memory may grow.

Each is the body of a training script; ``written`` makes a file of it, so that its lines can be found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
import collections, copy
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
STEPS = 80
data = torch.randn(64, 8)
target = data.sum(1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def batch(i):
    at = torch.arange(16 * i, 16 * i + 16) % 64
    return data[at], target[at]


def step(model, optimizer, i):
    x, y = batch(i)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
"""


@dataclass(frozen=True)
class Leak:
    """A program with a leak."""

    body: str
    kept: str
    """The line that keeps what grows."""
    holder: str
    made: str = ""
    """The line that makes it."""
    mended: str = ""
    graph: bool = True


LEAKS = {
    "losses_appended": Leak(
        """
def train():
    losses = []
    for i in range(STEPS):
        x, y = batch(i)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses

train()
""",
        "losses.append(loss)",
        "losses",
        "loss = F.mse_loss(model(x), y)",
        "losses.append(loss.item())",
    ),
    "running_loss": Leak(
        """
def train():
    total_loss = 0.0
    for i in range(STEPS):
        x, y = batch(i)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss
    print(float(total_loss) / STEPS)

train()
""",
        "total_loss += loss",
        "total_loss",
        "loss = F.mse_loss(model(x), y)",
        "total_loss += loss.item()",
    ),
    "cache_in_forward": Leak(
        """
class Caching(Net):
    def __init__(self):
        super().__init__()
        self.cache = []

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        self.cache.append(h)
        return self.fc2(h)

def main():
    model = Caching()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for i in range(STEPS):
        step(model, optimizer, i)

main()
""",
        "self.cache.append(h)",
        "self.cache",
        "h = torch.relu(self.fc1(x))",
        "self.cache.append(h.detach())",
    ),
    "hidden_state": Leak(
        """
class Memory(Net):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(16)

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        self.state = torch.tanh(self.state + h.mean(0))
        return self.fc2(h + self.state.detach())

def main():
    model = Memory()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for i in range(STEPS):
        step(model, optimizer, i)

main()
""",
        "self.state = torch.tanh(self.state + h.mean(0))",
        "self.state",
    ),
    "outputs_by_step": Leak(
        """
history = {}

def train():
    for i in range(STEPS):
        x, y = batch(i)
        out = model(x)
        history[i] = out
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train()
""",
        "history[i] = out",
        "history[i]",
        "out = model(x)",
        "history[i] = out.detach()",
    ),
    "evaluation_with_graph": Leak(
        """
scores = {"train": [], "val": []}

def evaluate():
    return F.mse_loss(model(data), target)

for i in range(STEPS):
    loss = step(model, optimizer, i)
    scores["train"].append(loss.item())
    value = evaluate()
    scores["val"].append(value)
""",
        "scores['val'].append(value)".replace("'", '"'),
        "scores['val']",
        "value = evaluate()",
        "scores['val'].append(value.item())",
    ),
    "hooks_pile_up": Leak(
        """
seen = collections.deque(maxlen=4)
for i in range(STEPS):
    model.fc1.register_forward_hook(lambda module, args, out: seen.append(out.detach().mean().item()))
    step(model, optimizer, i)
""",
        "model.fc1.register_forward_hook(lambda module, args, out: seen.append(out.detach().mean().item()))",
        "model.fc1",
        graph=False,
    ),
    "losses_of_each_epoch": Leak(
        """
for epoch in range(2):
    losses = []
    for i in range(STEPS):
        x, y = batch(i)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss)
        optimizer.step()
    print(torch.stack(losses).mean().item())
""",
        "losses.append(loss)",
        "losses",
        "loss = F.mse_loss(model(x), y)",
        "losses.append(loss.item())",
    ),
    "running_mean": Leak(
        """
class Trainer:
    def __init__(self):
        self.average = torch.zeros(())

    def fit(self):
        for i in range(STEPS):
            loss = step(model, optimizer, i)
            self.average = 0.9 * self.average + 0.1 * loss

Trainer().fit()
""",
        "self.average = 0.9 * self.average + 0.1 * loss",
        "self.average",
        "loss = step(model, optimizer, i)",
    ),
    "hidden_carried_by_the_loop": Leak(
        """
cell = nn.GRUCell(8, 16)
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD(head.parameters(), 1e-2)
hidden = torch.zeros(16, 16)
for i in range(STEPS):
    x, y = batch(i)
    hidden = cell(x, hidden)
    loss = F.mse_loss(head(hidden), y)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
""",
        "hidden = cell(x, hidden)",
        "hidden",
        "",
        "hidden = cell(x, hidden).detach()",
    ),
    "tuples_in_an_object": Leak(
        """
class Log:
    def __init__(self):
        self.rows = []

    def add(self, i, loss):
        self.rows.append((i, loss))

log = Log()
for i in range(STEPS):
    log.add(i, step(model, optimizer, i))
""",
        "self.rows.append((i, loss))",
        "self.rows",
    ),
    "arrays_kept": Leak(
        """
activations = []

def train():
    for i in range(STEPS):
        loss = step(model, optimizer, i)
        array = model(data).detach().numpy()
        activations.append(array)

train()
""",
        "activations.append(array)",
        "activations",
        "array = model(data).detach().numpy()",
        graph=False,
    ),
    "features_detached": Leak(
        """
class Caching(Net):
    def __init__(self):
        super().__init__()
        self.features = []

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        self.features.append(h.detach())
        return self.fc2(h)

model = Caching()
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for i in range(STEPS):
    step(model, optimizer, i)
""",
        "self.features.append(h.detach())",
        "self.features",
        "h = torch.relu(self.fc1(x))",
        graph=False,
    ),
}

LEAKS |= {
    "history_with_setdefault": Leak(
        """
history = {}
for i in range(STEPS):
    loss = step(model, optimizer, i)
    history.setdefault("train", []).append(loss)
""",
        'history.setdefault("train", []).append(loss)',
        "history['train']",
        "loss = step(model, optimizer, i)",
        "history.setdefault('train', []).append(loss.item())",
    ),
    "predictions_concatenated": Leak(
        """
every = torch.zeros(0, 1)
for i in range(STEPS):
    out = model(data)
    every = torch.cat([every, out.detach()])
    step(model, optimizer, i)
""",
        "every = torch.cat([every, out.detach()])",
        "every",
        graph=False,
    ),
    "array_appended": Leak(
        """
class Log:
    def __init__(self):
        self.every = np.zeros((0, 8), np.float32)

    def add(self, x):
        self.every = np.append(self.every, x.numpy(), axis=0)

log = Log()
for i in range(STEPS):
    log.add(data)
    step(model, optimizer, i)
""",
        "self.every = np.append(self.every, x.numpy(), axis=0)",
        "self.every",
        graph=False,
    ),
    "namespace": Leak(
        """
import types

state = types.SimpleNamespace(losses=[], n=0)
for i in range(STEPS):
    loss = step(model, optimizer, i)
    state.losses.append(loss)
""",
        "state.losses.append(loss)",
        "state.losses",
        "loss = step(model, optimizer, i)",
        "state.losses.append(loss.item())",
    ),
    "slots": Leak(
        """
class Log:
    __slots__ = ("rows",)

    def __init__(self):
        self.rows = []

log = Log()
for i in range(STEPS):
    loss = step(model, optimizer, i)
    log.rows.append(loss)
""",
        "log.rows.append(loss)",
        "log.rows",
        "loss = step(model, optimizer, i)",
        "log.rows.append(loss.item())",
    ),
    "queue_that_nobody_reads": Leak(
        """
import queue

waiting = queue.Queue()
for i in range(STEPS):
    loss = step(model, optimizer, i)
    waiting.put(loss)
""",
        "waiting.put(loss)",
        "waiting",
        "loss = step(model, optimizer, i)",
        "waiting.put(loss.item())",
    ),
}

HEALTHY = {
    "floats": """
losses, total = [], 0.0
for i in range(STEPS):
    loss = step(model, optimizer, i)
    losses.append(loss.item())
    total += loss.item()
""",
    "replay_buffer": """
class Replay:
    def __init__(self, capacity):
        self.capacity, self.items, self.at = capacity, [], 0

    def push(self, x):
        if len(self.items) < self.capacity:
            self.items.append(x)
        else:
            self.items[self.at] = x
            self.at = (self.at + 1) % self.capacity

replay = Replay(1000)
for i in range(STEPS):
    replay.push((data[i % 64].clone(), torch.rand(())))
    step(model, optimizer, i)
""",
    "window_of_losses": """
recent = collections.deque(maxlen=1000)
kept = []
for i in range(STEPS):
    loss = step(model, optimizer, i)
    recent.append(loss.detach())
    kept.append(loss)
    if len(kept) > 3:
        kept.pop(0)
""",
    "averaged_copy": """
average = copy.deepcopy(model)
snapshots = []
for i in range(STEPS):
    step(model, optimizer, i)
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.1)
    if i % 40 == 0:
        snapshots.append(copy.deepcopy(model.state_dict()))
""",
    "limited_cache": """
class Cached(Net):
    def __init__(self):
        super().__init__()
        self.cache = collections.OrderedDict()

    def forward(self, x):
        key = float(x[0, 0])
        if key not in self.cache:
            self.cache[key] = x.clone()
            if len(self.cache) > 500:
                self.cache.popitem(last=False)
        return super().forward(self.cache[key])

model = Cached()
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for i in range(STEPS):
    step(model, optimizer, i)
""",
    "predictions_of_an_epoch": """
for epoch in range(2):
    predictions = []
    for i in range(STEPS):
        x, y = batch(i)
        out = model(x)
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        predictions.append(out.detach())
    print(torch.cat(predictions).std().item())
""",
    "evaluation_drops_predictions": """
def evaluate():
    found = []
    with torch.no_grad():
        for i in range(8):
            found.append(model(batch(i)[0]))
    return torch.cat(found).mean().item()

for i in range(STEPS):
    step(model, optimizer, i)
    evaluate()
""",
    "sequences_grow": """
embed, head = nn.Embedding(32, 16), nn.Linear(16, 32)
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], 1e-2)
for i in range(STEPS):
    ids = torch.arange(4 + 2 * i).remainder(32).unsqueeze(0)
    loss = F.cross_entropy(head(embed(ids))[0], ids[0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "loader": """
from torch.utils.data import DataLoader, TensorDataset
for epoch in range(STEPS // 4):
    for x, y in DataLoader(TensorDataset(data, target), 16, shuffle=True):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    "state_detached": """
cell, head = nn.LSTM(8, 16), nn.Linear(16, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], 1e-2)
state = None
for i in range(STEPS):
    x, y = batch(i)
    out, state = cell(x.unsqueeze(0), state)
    state = tuple(s.detach() for s in state)
    loss = F.mse_loss(head(out[0]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "accumulation": """
for i in range(STEPS):
    total = 0.0
    for j in range(4):
        x, y = batch(i + j)
        total = total + F.mse_loss(model(x), y) / 4
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
""",
    "policy_gradient": """
for i in range(STEPS):
    log_probs, rewards = [], []
    for t in range(6):
        action = torch.distributions.Normal(model(data[t : t + 1]), 1.0)
        drawn = action.sample()
        log_probs.append(action.log_prob(drawn).sum())
        rewards.append(-drawn.square().sum())
    loss = -torch.stack([p * r for p, r in zip(log_probs, rewards)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "dataset_cached_in_the_first_epoch": """
class Lazy(torch.utils.data.Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = torch.randn(8)
        return self.cache[i]

dataset = Lazy()
for i in range(STEPS):
    x = torch.stack([dataset[4 * i + j] for j in range(4)])
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
}

HEALTHY |= {
    "cache_asked_with_get": """
cache = {}

def feature(i):
    found = cache.get(i)
    if found is None:
        found = cache[i] = torch.randn(64, 8)
    return found

for i in range(STEPS):
    feature(i)
    step(model, optimizer, i)
""",
    "cache_asked_in_try": """
cache = {}

def feature(i):
    try:
        return cache[i]
    except KeyError:
        cache[i] = torch.randn(64, 8)
        return cache[i]

for i in range(STEPS):
    feature(i)
    step(model, optimizer, i)
""",
    "cache_with_setdefault": """
cache = {}

for i in range(STEPS):
    cache.setdefault(i, torch.randn(64, 8))
    step(model, optimizer, i)
""",
    "best_in_a_heap": """
import heapq

best = []
for i in range(STEPS):
    loss = step(model, optimizer, i)
    heapq.heappush(best, (-loss.item(), i, torch.randn(64, 8), loss))
    if i > 200:
        heapq.heappop(best)
""",
    "losses_detached": """
losses, lrs, means = [], [], {}
for i in range(STEPS):
    loss = step(model, optimizer, i)
    losses.append(loss.detach())
    lrs.append(np.array([0.1]))
    means[i] = (i, loss.detach().mean())
""",
    "best_kept_by_a_filter": """
kept = []
for i in range(STEPS):
    loss = step(model, optimizer, i)
    kept.append((i, torch.randn(64, 8)))
    kept = [one for one in kept if one[0] > i - 500]
""",
    "best_sorted": """
best = []
for i in range(STEPS):
    best.append((step(model, optimizer, i).item(), i, torch.randn(64, 8)))
    best = sorted(best, key=lambda one: one[0])[:500]
""",
    "ring_by_remainder": """
ring = {}
for i in range(STEPS):
    ring[i % 500] = torch.randn(64, 8)
    step(model, optimizer, i)
""",
    "queue_that_is_read": """
import queue

waiting = queue.Queue()
for i in range(STEPS):
    waiting.put(torch.randn(64, 8))
    step(model, optimizer, i)
    if i > 500:
        waiting.get()
""",
    "window_of_a_tensor": """
window = torch.zeros(0, 8)
for i in range(STEPS):
    window = torch.cat([window, data])[-100_000:]
    step(model, optimizer, i)
""",
}

OVER = {
    "losses_of_a_warm_up": """
first = []

for i in range(160):
    loss = step(model, optimizer, i)
    if i < 60:
        first.append(loss)
""",
    "losses_of_a_first_phase": """
def pretrain():
    first = []
    for i in range(60):
        first.append(step(model, optimizer, i))

def train():
    for i in range(120):
        step(model, optimizer, i)

pretrain()
train()
""",
    "cleared_by_another_name": """
losses = []
log = losses

for i in range(160):
    losses.append(step(model, optimizer, i))
    if i % 50 == 49:
        log.clear()
""",
}


def written(body: str, folder: Path, name: str) -> Path:
    """Write a program to a file, and return its path."""
    file = folder / f"{name}.py"
    file.write_text(HEAD + body, encoding="utf-8")
    return file
