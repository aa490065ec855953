"""Small causal language model on the source of two stdlib modules (CPU)."""
import argparse
import textwrap
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def causal_lm_loss(logits, labels, vocab_size, ignore_index=-100):
    logits = logits.float()
    labels = F.pad(labels, (0, 1), value=ignore_index)
    labels = labels[..., 1:].contiguous()
    return F.cross_entropy(logits.reshape(-1, vocab_size), labels.reshape(-1),
                           ignore_index=ignore_index)


class MoeLikeForCausalLM(nn.Module):
    def __init__(self, vocab_size, hidden=112):
        super().__init__()
        self.vocab_size = vocab_size
        self.embed_tokens = nn.Embedding(vocab_size, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocab_size, bias=False)
        self.loss_function = causal_lm_loss

    def forward(self, input_ids, labels=None):
        h, _ = self.rnn(self.embed_tokens(input_ids))
        logits = self.lm_head(self.norm(h))
        loss = None
        if labels is not None:
            shift_logits = logits[..., :-1, :].contiguous()
            shift_labels = labels[..., 1:].contiguous()
            loss = self.loss_function(shift_logits, shift_labels, self.vocab_size)
        return loss, logits


def load_corpus():
    with open(argparse.__file__) as f:
        text = f.read()
    with open(textwrap.__file__) as f:
        text += f.read()
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([stoi[c] for c in text])
    return ids, chars


def sample_batch(ids, n, length, gen):
    starts = torch.randint(0, len(ids) - length - 1, (n,), generator=gen)
    return torch.stack([ids[s:s + length] for s in starts.tolist()])


@torch.no_grad()
def evaluate(model, ids, gen):
    model.eval()
    hits = total = 0
    for _ in range(10):
        batch = sample_batch(ids, 32, 64, gen)
        _, logits = model(batch)
        pred = logits[:, :-1].argmax(-1)
        hits += (pred == batch[:, 1:]).sum().item()
        total += pred.numel()
    model.train()
    return hits / total


def main():
    random.seed(0)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    ids, chars = load_corpus()
    split = int(0.9 * len(ids))
    train_ids, val_ids = ids[:split], ids[split:]
    model = MoeLikeForCausalLM(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(220):
        batch = sample_batch(train_ids, 32, 64, gen)
        loss, _ = model(batch, labels=batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    print(f"next-char accuracy (held out): {evaluate(model, val_ids, gen):.3f}")


if __name__ == "__main__":
    main()
