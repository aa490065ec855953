import copy, random, torch, torch.nn as nn, torch.nn.functional as F
# DQN on a 5x5 grid, goal in the corner; target net copied every 100 steps (the loss jumps then, as it should)
random.seed(2); torch.manual_seed(2)
S, GAMMA = 5, 0.9
MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]

def onehot(states):
    x = torch.zeros(len(states), 2 * S)
    for i, (r, c) in enumerate(states):
        x[i, r] = 1.0; x[i, S + c] = 1.0
    return x

def env_step(s, a):
    r, c = s[0] + MOVES[a][0], s[1] + MOVES[a][1]
    s2 = (min(max(r, 0), S - 1), min(max(c, 0), S - 1))
    return s2, float(s2 == (S - 1, S - 1)), s2 == (S - 1, S - 1)

q = nn.Sequential(nn.Linear(2 * S, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
q_target = copy.deepcopy(q)
for p in q_target.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
replay, s = [], (0, 0)
start = lambda: (random.randrange(S), random.randrange(S - 1))

def act(s, eps):
    if random.random() < eps:
        return random.randrange(4)
    with torch.no_grad():
        return int(q(onehot([s])).argmax())

def check():
    grid = [(r, c) for r in range(S) for c in range(S) if (r, c) != (S - 1, S - 1)]
    true = torch.tensor([GAMMA ** (2 * (S - 1) - r - c - 1) for r, c in grid])
    with torch.no_grad():
        v = q(onehot(grid)).max(1).values
    return (v - true).abs().mean().item()

while len(replay) < 500:                                  # random policy first
    a = random.randrange(4); s2, r, done = env_step(s, a)
    replay.append((s, a, r, s2, done)); s = start() if done else s2
for step in range(1, 801):
    for _ in range(2):
        a = act(s, max(0.1, 1 - step / 500)); s2, r, done = env_step(s, a)
        replay.append((s, a, r, s2, done)); s = start() if done else s2
    bs, ba, br, bn, bd = zip(*random.sample(replay, 64))
    with torch.no_grad():
        tgt = torch.tensor(br) + GAMMA * (1 - torch.tensor(bd).float()) * q_target(onehot(bn)).max(1).values
    pred = q(onehot(bs)).gather(1, torch.tensor(ba)[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(pred, tgt)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 100 == 0:
        print(step, f"td loss {loss.item():.5f} mean |V - V*| {check():.3f}")
        q_target.load_state_dict(q.state_dict())
