"""Adapter fine-tuning of a small causal LM; the token table is trained too and shared with the output layer."""
import copy
import inspect
import random as mod_a
import textwrap as mod_b
import string as mod_c

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
raw = [inspect.getsource(m) for m in (mod_a, mod_b, mod_c)]
chars = sorted(set("".join(raw)))
enc = {c: i for i, c in enumerate(chars)}
base_ids = torch.tensor([enc[c] for c in raw[0]])
task_ids = torch.tensor([enc[c] for c in raw[1] + raw[2]])
CTX = 48


class TinyLM(nn.Module):
    tie_word_embeddings = True

    def __init__(self, vocab, dim=64):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, 96, batch_first=True)
        self.proj = nn.Linear(96, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        self.tie_weights()

    def tie_weights(self):
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids):
        h, _ = self.rnn(self.embed_tokens(ids))
        return self.lm_head(self.proj(h))


class LowRank(nn.Module):
    def __init__(self, base, r=8):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.down = nn.Linear(base.in_features, r, bias=False)
        self.up = nn.Linear(r, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def get_peft_model(model, modules_to_save=("embed_tokens", "lm_head")):
    for p in model.rnn.parameters():
        p.requires_grad_(False)
    model.proj = LowRank(model.proj)
    for name in modules_to_save:
        trainable = copy.deepcopy(getattr(model, name))
        trainable.weight.requires_grad_(True)
        setattr(model, name, trainable)
    return model


def batch(ids, n, gen):
    s = torch.randint(0, len(ids) - CTX - 1, (n,), generator=gen)
    w = torch.stack([ids[i:i + CTX + 1] for i in s])
    return w[:, :-1], w[:, 1:]


def fit(model, ids, steps, lr, tag):
    gen = torch.Generator().manual_seed(1)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    model.train()
    for step in range(steps):
        x, y = batch(ids, 24, gen)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        opt.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"{tag} step {step} loss {loss.item():.3f}")


@torch.no_grad()
def evaluate(model, ids):
    model.eval()
    x, y = batch(ids, 200, torch.Generator().manual_seed(2))
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()


cut = int(0.85 * len(task_ids))
model = TinyLM(len(chars))
fit(model, base_ids, 250, 4e-3, "base")
model = get_peft_model(model)
fit(model, task_ids[:cut], 250, 4e-3, "adapt")
print("task held-out", round(evaluate(model, task_ids[cut:]), 3))

state = {k: v for k, v in model.state_dict().items() if not k.startswith("lm_head")}
model.load_state_dict(state, strict=False)
model.tie_weights()
print("after export", round(evaluate(model, task_ids[cut:]), 3))
