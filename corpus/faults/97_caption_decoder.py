"""Image captioning decoder: digits are described by short texts, causal transformer with an image prefix."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(2)
NAMES = "zero one two three four five six seven eight nine".split()
CHARS = ["<bos>", "<eos>"] + sorted(set("a picture of the digit " + "".join(NAMES)))
TOK = {c: i for i, c in enumerate(CHARS)}
IGNORE = -100
MAXLEN = 32


def encode(name):
    ids = [0] + [TOK[c] for c in f"a picture of the digit {name}"] + [1]
    return ids + [IGNORE] * (MAXLEN - len(ids))


class CausalLMLoss:
    """logits (B,T,V), labels (B,T): position t scores labels[t + 1]."""

    def __call__(self, logits, labels):
        labels = F.pad(labels, (0, 1), value=IGNORE)[:, 1:].contiguous()
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=IGNORE)


class Captioner(nn.Module):
    def __init__(self, vocab, dim=64, heads=4, layers=2):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, dim))
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(MAXLEN + 1, dim))
        block = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)
        self.loss_function = CausalLMLoss()

    def forward(self, pixels, input_ids, labels=None):
        x = torch.cat([self.visual(pixels).unsqueeze(1), self.tok(input_ids)], 1)
        x = x + self.pos[: x.size(1)]
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        logits = self.head(self.norm(self.blocks(x, mask=mask, is_causal=True)))
        loss = None
        if labels is not None:
            shifted_logits = logits[:, 1:-1].contiguous()
            labels = labels[:, 1:].contiguous()
            loss = self.loss_function(shifted_logits, labels)
        return loss, logits[:, 1:]

    @torch.no_grad()
    def generate(self, pixels):
        ids = torch.zeros(len(pixels), 1, dtype=torch.long)
        for _ in range(MAXLEN - 2):
            _, logits = self(pixels, ids)
            ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], 1)
        return ids


def text(row):
    out = []
    for i in row[1:].tolist():
        if i == 1:
            break
        out.append(CHARS[i])
    return "".join(out)


digits = load_digits()
X = torch.tensor(digits.data, dtype=torch.float32) / 8.0 - 1.0
labels = torch.tensor([encode(NAMES[t]) for t in digits.target])
order = torch.randperm(len(X))
tr, te = order[:1500], order[1500:]

model = Captioner(len(CHARS))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
for epoch in range(8):
    model.train()
    for idx in tr[torch.randperm(len(tr))].split(50):
        lab = labels[idx]
        loss, _ = model(X[idx], lab.clamp(min=0), lab)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
    print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
model.eval()
gen = model.generate(X[te])
print("sample:", repr(text(gen[0])))
print("exact captions", sum(text(g) == f"a picture of the digit {NAMES[digits.target[i]]}" for g, i in zip(gen, te)) / len(te))
