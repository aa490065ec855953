"""Tagging with a lattice criterion: score of the supervision path against all paths."""
import numpy as np
import torch
import torch.nn as nn

NUM_TAGS, VOCAB, LEN = 5, 40, 14
NEG = -1e4


class _GetTotScoresFunction(torch.autograd.Function):
    """Total (log-sum) score over all paths of a lattice, one value for each sequence.

    emissions: (B, T, K) scores of the states; transitions: (K, K).
    """

    @staticmethod
    def forward(ctx, emissions, transitions):
        B, T, K = emissions.shape
        alpha = emissions.new_empty(B, T, K)
        alpha[:, 0] = emissions[:, 0]
        for t in range(1, T):
            alpha[:, t] = torch.logsumexp(alpha[:, t - 1, :, None] + transitions, 1) + emissions[:, t]
        tot = torch.logsumexp(alpha[:, -1], 1)
        ctx.save_for_backward(emissions, transitions, alpha, tot)
        return tot

    @staticmethod
    def backward(ctx, tot_scores_grad):
        emissions, transitions, alpha, tot = ctx.saved_tensors
        B, T, K = emissions.shape
        beta = torch.zeros(B, T, K)
        arcs = torch.zeros(B, K, K)
        for t in range(T - 2, -1, -1):
            nxt = emissions[:, t + 1] + beta[:, t + 1]
            beta[:, t] = torch.logsumexp(transitions + nxt[:, None, :], 2)
            arc = alpha[:, t, :, None] + transitions + nxt[:, None, :] - tot[:, None, None]
            arcs += arc.exp()
        state_post = (alpha + beta - tot[:, None, None]).exp()
        return state_post, arcs.sum(0)


class LatticeLoss(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))

    def forward(self, emissions, tags):
        allowed = torch.nn.functional.one_hot(tags, emissions.shape[-1]).bool()
        num = emissions.masked_fill(~allowed, NEG)
        num_scores = _GetTotScoresFunction.apply(num, self.transitions)
        den_scores = _GetTotScoresFunction.apply(emissions, self.transitions)
        return (den_scores - num_scores).mean()

    @torch.no_grad()
    def decode(self, emissions):
        score, back = emissions[:, 0], []
        for t in range(1, emissions.shape[1]):
            best, idx = (score[:, :, None] + self.transitions).max(1)
            score = best + emissions[:, t]
            back.append(idx)
        path = [score.argmax(1)]
        for idx in reversed(back):
            path.append(idx.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.rnn = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(48, NUM_TAGS)
        self.crit = LatticeLoss(NUM_TAGS)

    def emissions(self, x):
        return self.proj(self.rnn(self.emb(x))[0])

    def forward(self, x, y):
        return self.crit(self.emissions(x), y)


def make_data(n, rs):
    # hidden tag chain, words of a tag overlap with those of the next one
    trans = np.full((NUM_TAGS, NUM_TAGS), 0.05)
    for k in range(NUM_TAGS):
        trans[k, (k + 1) % NUM_TAGS] = 0.8
    y = np.zeros((n, LEN), dtype=int)
    y[:, 0] = rs.randint(NUM_TAGS, size=n)
    for t in range(1, LEN):
        y[:, t] = [rs.choice(NUM_TAGS, p=trans[k] / trans[k].sum()) for k in y[:, t - 1]]
    x = (y * 8 + rs.randint(0, 12, y.shape)) % VOCAB
    return torch.tensor(x), torch.tensor(y)


def main():
    torch.manual_seed(1)
    rs = np.random.RandomState(1)
    xtr, ytr = make_data(960, rs)
    xva, yva = make_data(200, rs)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(6):
        perm = torch.randperm(len(xtr))
        losses = []
        for k in range(0, len(xtr), 32):
            i = perm[k:k + 32]
            loss = model(xtr[i], ytr[i])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.item())
        acc = (model.crit.decode(model.emissions(xva)) == yva).float().mean().item()
        print("epoch %d: objective %.4f  tag accuracy %.3f" % (epoch, np.mean(losses), acc))


if __name__ == "__main__":
    main()
