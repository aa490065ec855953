"""Sequence-to-sequence LSTM with attention; training goes on from a saved checkpoint."""
import argparse
import io

import torch
import torch.nn as nn

PAD, BOS, EOS, V = 0, 1, 2, 24

parser = argparse.ArgumentParser()
parser.add_argument("-rnn_size", type=int, default=64)
parser.add_argument("-learning_rate", type=float, default=0.008)
parser.add_argument("-max_grad_norm", type=float, default=5)
parser.add_argument("-batch_size", type=int, default=32)
parser.add_argument("-adam_beta2", type=float, default=0.999)
opt = parser.parse_args([])


class Optim(object):
    def __init__(self, method, lr, max_grad_norm, beta2):
        self.method, self.lr, self.max_grad_norm = method, lr, max_grad_norm
        self.betas = [0.9, beta2]
        self._step = 0

    def set_parameters(self, params):
        self.params = [p for p in params if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.params, lr=self.lr, betas=tuple(self.betas), eps=1e-9)

    def step(self):
        self._step += 1
        nn.utils.clip_grad_norm_(self.params, self.max_grad_norm)
        self.optimizer.step()


class NMTModel(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.src_emb = nn.Embedding(V, 32, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(V, 32, padding_idx=PAD)
        self.encoder = nn.LSTM(32, h // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(32, h, batch_first=True)
        self.linear_in = nn.Linear(h, h, bias=False)
        self.linear_out = nn.Linear(2 * h, h)
        self.generator = nn.Linear(h, V)

    def forward(self, src, tgt):
        mem, (h, c) = self.encoder(self.src_emb(src))
        h0 = torch.cat([h[0], h[1]], -1)[None]
        c0 = torch.cat([c[0], c[1]], -1)[None]
        out, _ = self.decoder(self.tgt_emb(tgt), (h0, c0))
        align = self.linear_in(out) @ mem.transpose(1, 2)
        ctx = torch.softmax(align, -1) @ mem
        return self.generator(torch.tanh(self.linear_out(torch.cat([ctx, out], -1))))


table = torch.randperm(V - 3, generator=torch.Generator().manual_seed(7)) + 3


def batches(n, seed):
    """source words in order, target: translated words in reverse order"""
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        src = torch.randint(3, V, (opt.batch_size, 8), generator=g)
        words = table[src - 3].flip(1)
        bos = torch.full((opt.batch_size, 1), BOS)
        eos = torch.full((opt.batch_size, 1), EOS)
        yield src, torch.cat([bos, words], 1), torch.cat([words, eos], 1)


def build_model(checkpoint=None):
    model = NMTModel(opt.rnn_size)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
    return model


def build_optim(model, checkpoint):
    if checkpoint is not None:
        print("Loading optimizer from checkpoint.")
        optim = checkpoint["optim"]
    else:
        optim = Optim("adam", opt.learning_rate, opt.max_grad_norm, opt.adam_beta2)
    optim.set_parameters(model.parameters())
    return optim


def train_model(model, optim, data, crit, start):
    for i, (src, tgt_in, tgt_out) in enumerate(data):
        logits = model(src, tgt_in)
        loss = crit(logits.reshape(-1, V), tgt_out.reshape(-1))
        optim.optimizer.zero_grad()
        loss.backward()
        optim.step()
        if i % 20 == 0 or i < 6:
            print("step %d; xent %.4f; lr %g" % (start + i, loss.item(), optim.lr))


def main():
    torch.manual_seed(3)
    crit = nn.CrossEntropyLoss(ignore_index=PAD)
    model = build_model()
    optim = build_optim(model, None)
    train_model(model, optim, batches(240, 1), crit, 0)
    buf = io.BytesIO()
    torch.save({"model": model.state_dict(), "optim": optim}, buf)
    buf.seek(0)

    # next job of the queue: -train_from
    checkpoint = torch.load(buf, weights_only=False)
    model = build_model(checkpoint)
    optim = build_optim(model, checkpoint)
    train_model(model, optim, batches(120, 2), crit, 240)


if __name__ == "__main__":
    main()
