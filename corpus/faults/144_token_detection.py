"""Replaced-token detection head: which words of the edited sentence are not the original ones."""
import numpy as np
import torch
import torch.nn as nn

PAD, VOCAB, MAX_LEN = 0, 60, 40


def sentences(n, rs):
    """each word is followed by one of three words; most sentences are short"""
    ids = np.zeros((n, MAX_LEN), dtype=int)
    mask = np.zeros((n, MAX_LEN), dtype=int)
    for i in range(n):
        length = min(MAX_LEN, 5 + rs.geometric(0.25))
        w = rs.randint(1, VOCAB)
        for t in range(length):
            ids[i, t], mask[i, t] = w, 1
            w = (w * 3 + rs.randint(0, 3)) % (VOCAB - 1) + 1
    return torch.tensor(ids), torch.tensor(mask)


class Generator(nn.Module):
    """stands for the small masked language model: proposes words at some positions"""

    def forward(self, input_ids, attention_mask):
        pick = (torch.rand(input_ids.shape) < 0.2) & attention_mask.bool()
        words = torch.randint(1, VOCAB, input_ids.shape)
        return torch.where(pick, words, input_ids)


class Discriminator(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embeddings = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(4 * dim, 2 * dim)
        self.prediction = nn.Linear(2 * dim, 2)

    def forward(self, ids):
        h, _ = self.encoder(self.embeddings(ids))
        prev = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        return self.prediction(torch.relu(self.dense(torch.cat([h, prev], -1))))


def rtd_step(generator, discriminator, input_ids, attention_mask, loss_fct):
    with torch.no_grad():
        g_pred = generator(input_ids, attention_mask)
    replaced = (g_pred != input_ids) * attention_mask
    e_inputs = g_pred * attention_mask
    prediction_scores = discriminator(e_inputs)
    e_labels = replaced.long()
    loss = loss_fct(prediction_scores.view(-1, 2), e_labels.view(-1))
    guess = prediction_scores.argmax(-1)
    with torch.no_grad():
        rep = ((guess == 1) & (e_labels == 1) & (attention_mask == 1)).sum() / e_labels.sum().clamp(min=1)
        fix = ((guess == 0) & (e_labels == 0) & (attention_mask == 1)).sum() / ((e_labels == 0) & (attention_mask == 1)).sum()
    return loss, rep.item(), fix.item()


def main():
    torch.manual_seed(5)
    rs = np.random.RandomState(5)
    ids, mask = sentences(3200, rs)
    vids, vmask = sentences(400, rs)
    generator, discriminator = Generator(), Discriminator()
    loss_fct = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.25, momentum=0.9)
    for epoch in range(4):
        order = torch.randperm(len(ids))
        stats = []
        for k in range(0, len(ids), 32):
            idx = order[k:k + 32]
            loss, rep, fix = rtd_step(generator, discriminator, ids[idx], mask[idx], loss_fct)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.append((loss.item(), rep, fix))
        discriminator.eval()
        with torch.no_grad():
            _, rep, fix = rtd_step(generator, discriminator, vids, vmask, loss_fct)
        discriminator.train()
        print("epoch %d loss %.4f | found replaced %.3f  kept original %.3f" % (epoch, np.mean([s[0] for s in stats]), rep, fix))


if __name__ == "__main__":
    main()
