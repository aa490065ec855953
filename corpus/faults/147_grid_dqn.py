"""Deep Q-learning on a small grid from a replay buffer of random walks."""
import torch
import torch.nn as nn

SIZE, GAMMA = 5, 0.8
GOAL = (4, 4)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def env_step(s, a):
    r, c = s
    r = min(max(r + MOVES[a][0], 0), SIZE - 1)
    c = min(max(c + MOVES[a][1], 0), SIZE - 1)
    done = (r, c) == GOAL
    return (r, c), (5.0 if done else -0.2), done


def onehot(s):
    x = torch.zeros(2 * SIZE)
    x[s[0]] = 1
    x[SIZE + s[1]] = 1
    return x


class QNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.fc1 = nn.Linear(2 * SIZE, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 4)

    def forward(self, x):
        return self.out(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Policy:
    def __init__(self, args):
        self.args = args
        self.eval_q_net = QNet()
        self.target_q_net = QNet()
        self.target_q_net.load_state_dict(self.eval_q_net.state_dict())
        self.optimizer = torch.optim.Adam(self.eval_q_net.parameters(), lr=args["lr"])

    def learn(self, batch, train_step):
        s, a, r, s2, done = batch
        q_evals = self.eval_q_net(s).gather(1, a)
        with torch.no_grad():
            q_targets = self.target_q_net(s2).max(1, keepdim=True).values
            targets = r + GAMMA * (1 - done) * q_targets
        loss = ((q_evals - targets) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.eval_q_net.parameters(), self.args["grad_norm_clip"])
        self.optimizer.step()
        if train_step > 0 and train_step % self.args["target_update_cycle"] == 0:
            self.target_q_net.load_state_dict(self.target_q_net.state_dict())
        return loss.item()


def collect(n):
    rows, s = [], (0, 0)
    for _ in range(n):
        a = int(torch.randint(4, (1,)))
        s2, r, done = env_step(s, a)
        rows.append((onehot(s), a, r, onehot(s2), float(done)))
        s = s2
        if done or torch.rand(1) < 0.25:
            s = tuple(torch.randint(SIZE, (2,)).tolist())
            while s == GOAL:
                s = tuple(torch.randint(SIZE, (2,)).tolist())
    s, a, r, s2, d = zip(*rows)
    col = lambda v, t: torch.tensor(v, dtype=t)[:, None]
    return torch.stack(s), col(a, torch.long), col(r, torch.float), torch.stack(s2), col(d, torch.float)


@torch.no_grad()
def evaluate(policy):
    """share of start cells from which the greedy walk reaches the goal, value of the first cell"""
    ok = 0
    for k in range(SIZE * SIZE - 1):
        s = (k // SIZE, k % SIZE)
        for _ in range(12):
            s, _, done = env_step(s, int(policy.eval_q_net(onehot(s)).argmax()))
            if done:
                ok += 1
                break
    return ok / (SIZE * SIZE - 1), policy.eval_q_net(onehot((0, 0))).max().item()


def main():
    torch.manual_seed(0)
    args = {"lr": 2e-3, "grad_norm_clip": 10, "target_update_cycle": 15}
    policy = Policy(args)
    buffer = collect(4000)
    for train_step in range(600):
        idx = torch.randint(4000, (128,))
        loss = policy.learn([v[idx] for v in buffer], train_step)
        if train_step % 60 == 59 or train_step == 0:
            reach, v0 = evaluate(policy)
            print("step %d loss %.4f | reaches the goal %.2f  value at start %.2f" % (train_step + 1, loss, reach, v0))


main()
