import os
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))


class TextConditionedDenoiser(nn.Module):
    def __init__(self, vocab=40, dim=64):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, dim)
        self.input = nn.Linear(64, dim)
        self.block = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.out = nn.Linear(dim, 64)

    def forward(self, x, tokens):
        h = self.input(x) + self.token_embedding(tokens).mean(1)
        return self.out(nn.functional.silu(h + self.block(h)))


def convert_to_half(model):
    for p in model.parameters():
        p.data = p.data.half()


def base_train_step(model, batch, optimizer):
    tokens, x = batch
    noise = torch.randn_like(x)
    pred = model((0.8 * x + 0.6 * noise).half(), tokens)
    loss = nn.functional.mse_loss(pred.float(), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(SEED)
    d = load_digits()
    images = torch.tensor(d.data, dtype=torch.float32) / 8 - 1
    captions = torch.stack([torch.tensor(d.target), torch.tensor(d.target) + 10, torch.full((len(d.target),), 20)], 1)
    model = TextConditionedDenoiser()
    convert_to_half(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.0)
    for step in range(300):
        idx = torch.randint(0, len(images), (64,))
        loss = base_train_step(model, (captions[idx], images[idx]), optimizer)
        if step % 30 == 0:
            print(f"step {step} loss {loss:.4f}")


main()
