"""What flows where it should not: between samples, backwards in time, between splits and workers; or not at all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    Block,
    CharGpt,
    ConvNet,
    Mlp,
    RowLstm,
    adam,
    batches,
    char_batches,
    char_loss,
    diabetes,
    digits,
    fit,
    flat_digits,
    sgd,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator

# ---------------------------------------------------------------- samples leak into each other


@program("lstm", "batch_axis_mixup", layer="rnn", step=0)
def batch_first_forgotten() -> None:
    class Net(RowLstm):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(8, 48)

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 150))


@program("gru", "batch_axis_mixup", layer="reader", step=0)
def batch_first_forgotten_gru_last_state() -> None:
    class Sentiment(nn.Module):
        """The review is positive if it holds more high words than low ones."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(40, 16)
            self.reader = nn.GRU(16, 32)
            self.out = nn.Linear(32, 1)

        def forward(self, ids: Tensor) -> Tensor:
            states, _ = self.reader(self.words(ids))
            return self.out(states.mean(1)).squeeze(1)

    model = Sentiment()
    optimizer = adam(model, 5e-3)
    for _ in range(150):
        ids = torch.randint(40, (24, 12))
        label = (ids.float().mean(1) > 19.5).float()
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(ids), label).backward()
        optimizer.step()


@program("transformer", "batch_axis_mixup", layer="encoder.layers.0.self_attn", step=0)
def batch_first_forgotten_encoder() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(8, 32)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0), 1)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(self.up(x.squeeze(1))).mean(1))

    model = Rows()
    fit(model, adam(model, 2e-3), batches(digits(), 120))


@program("mlp", "batch_axis_mixup", step=0)
def softmax_over_the_batch() -> None:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(F.softmax(super().forward(x), dim=0) + 1e-9)

    model = Net()
    fit(model, adam(model, 1e-3), batches(flat_digits(), 150))


@program("convnet", "batch_axis_mixup", step=0)
def view_in_the_place_of_transpose() -> None:
    class Net(nn.Module):
        """Time first inside, and back by view: rows of different pictures are put together."""

        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(8, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            n = x.shape[0]
            rows = self.up(x.squeeze(1)).relu().transpose(0, 1)  # (8, n, 32)
            return self.head(rows.reshape(n, 8, 32).mean(1))

    model = Net()
    fit(model, adam(model, 3e-3), batches(digits(), 150))


class Chars(nn.Module):
    """A recurrent model of the next character."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.rnn, self.out = nn.Embedding(128, 24), nn.LSTM(24, 32, batch_first=True), nn.Linear(32, 128)

    def states(self, ids: Tensor) -> Tensor:
        states: Tensor = self.rnn(self.tok(ids))[0]
        return states

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.out(self.states(ids))
        return out


class Turned(Chars):
    """Time and samples change places, and the shape is what it was."""

    def forward(self, ids: Tensor) -> Tensor:
        states = self.states(ids)
        out: Tensor = self.out(states.transpose(0, 1).reshape(states.shape))
        return out


@program("lstm", "batch_axis_mixup", layer="out", step=0)
def states_of_characters_turned_and_reshaped() -> None:
    model = Turned()
    fit(model, adam(model, 3e-3), char_batches(150, 24), char_loss)


@program("lstm", "batch_axis_mixup", step=0)
def as_many_samples_as_characters_turned() -> None:
    model = Turned()
    fit(model, adam(model, 3e-3), char_batches(150, 32), char_loss)


@program("lstm")
def as_many_samples_as_characters_time_first() -> None:
    """The output is (time, batch, classes), and the loss turns it back."""

    class TimeFirst(Chars):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).transpose(0, 1)

    model = TimeFirst()
    fit(model, adam(model, 3e-3), char_batches(150, 32), lambda out, y: char_loss(out.transpose(0, 1), y))


@program("lstm")
def time_first_on_purpose() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(8, 48), nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][-1])

    model = Net()
    optimizer = adam(model, 3e-3)
    for x, y in batches(digits(), 150, size=32):
        optimizer.zero_grad()
        F.cross_entropy(model(x.squeeze(1).transpose(0, 1)), y).backward()
        optimizer.step()


@program("lstm")
def one_long_series_at_a_time() -> None:
    """A tagger of single sentences: axis 0 is time, the batch is one."""
    model = nn.ModuleDict({"words": nn.Embedding(30, 16), "rnn": nn.LSTM(16, 24), "tags": nn.Linear(24, 3)})

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, ids: Tensor) -> Tensor:
            states, _ = self.parts["rnn"](self.parts["words"](ids).view(len(ids), 1, -1))
            return self.parts["tags"](states.view(len(ids), -1))

    tagger = Tagger()
    optimizer = adam(tagger, 1e-2)
    for _ in range(200):
        ids = torch.randint(30, (14,))
        before = torch.cat([ids.new_zeros(1), ids[:-1]])
        optimizer.zero_grad()
        F.cross_entropy(tagger(ids), (ids > 14).long() + (before > 14).long()).backward()
        optimizer.step()


@program("contrastive")
def similarities_within_the_batch() -> None:
    class Clip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = Mlp(32, 16), Mlp(32, 16)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return F.normalize(self.left(a), dim=1) @ F.normalize(self.right(b), dim=1).T / 0.2

    x, _ = flat_digits()
    model = Clip()
    optimizer = adam(model, 1e-3)
    for _ in range(150):
        chosen = torch.randint(len(x), (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[chosen, :32], x[chosen, 32:]), torch.arange(32)).backward()
        optimizer.step()


@program("graph")
def messages_on_one_graph() -> None:
    """Two communities; the graph is a buffer, nodes are axis 0."""

    class Gcn(nn.Module):
        def __init__(self, edges: Tensor) -> None:
            super().__init__()
            self.register_buffer("edges", edges)
            self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.edges @ self.one(self.edges @ x).relu())

    label = (torch.arange(80) >= 40).long()
    near = (torch.rand(80, 80) < torch.where(label[:, None] == label, 0.2, 0.02)).float()
    near = ((near + near.T + torch.eye(80)) > 0).float()
    model = Gcn(near / near.sum(1, keepdim=True))
    x = torch.randn(80, 12) + label[:, None]
    optimizer = adam(model, 1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        F.cross_entropy(model(x), label).backward()
        optimizer.step()


@program("gan")
def spread_of_the_batch_as_a_feature() -> None:
    """A minibatch standard deviation, as discriminators have it: every sample sees a statistic of all."""

    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            spread = x.std(0).mean().expand(len(x), 1)
            return super().forward(torch.cat([x[:, :-1], spread], 1))

    model = Net()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150))


# ---------------------------------------------------------------- the future is visible


@program("transformer", "mask_error", layer="blocks.0", step=0)
def causal_mask_forgotten() -> None:
    class Open(Block):
        def forward(self, x: Tensor) -> Tensor:
            b, t, d = x.shape
            q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
            out: Tensor = x + self.down(F.gelu(self.up(self.ln2(x))))
            return out

    model = CharGpt()
    model.blocks = nn.ModuleList([Open(32, 4), Open(32, 4)])
    fit(model, adam(model, 3e-3), char_batches(150), char_loss)


@program("transformer", "mask_error", layer="encoder.layers.0.self_attn", step=0)
def mask_of_the_wrong_triangle() -> None:
    class Lm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.pos = nn.Embedding(128, 32), nn.Embedding(64, 32)
            block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
            self.out = nn.Linear(32, 128)

        def forward(self, ids: Tensor) -> Tensor:
            t = ids.shape[1]
            mask = torch.tril(torch.ones(t, t, dtype=torch.bool), -1)  # hides the past
            return self.out(self.encoder(self.tok(ids) + self.pos(torch.arange(t)), mask=mask))

    model = Lm()
    fit(model, adam(model, 3e-3), char_batches(120), char_loss)


@program("lstm", "mask_error", layer="rnn", step=0)
def language_model_that_reads_both_ways() -> None:
    class Lm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok = nn.Embedding(128, 24)
            self.rnn = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
            self.out = nn.Linear(48, 128)

        def forward(self, ids: Tensor) -> Tensor:
            return self.out(self.rnn(self.tok(ids))[0])

    model = Lm()
    fit(model, adam(model, 3e-3), char_batches(120), char_loss)


@program("transformer")
def masked_words_look_both_ways() -> None:
    """Targets are the words under the mask: a bidirectional encoder is what is meant."""
    model = CharGpt()
    encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model.blocks = nn.ModuleList([encoder])
    optimizer = adam(model, 3e-3)
    for ids, _ in char_batches(150):
        hidden = torch.rand(ids.shape) < 0.2
        target = ids.masked_fill(~hidden, -100)
        optimizer.zero_grad()
        logits = model(ids.masked_fill(hidden, 0))
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100).backward()
        optimizer.step()


@program("transformer")
def prefix_that_may_look_ahead() -> None:
    """A prefix model: the first half sees itself whole, and only the second half is trained."""

    class Prefix(CharGpt):
        def forward(self, x: Tensor) -> Tensor:
            t = x.shape[1]
            h = self.tok(x) + self.pos(torch.arange(t))
            first = h[:, : t // 2].mean(1, keepdim=True)
            h = h + first
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h))

    model = Prefix()
    optimizer = adam(model, 3e-3)
    for ids, target in char_batches(120):
        counted = target.clone()
        counted[:, : ids.shape[1] // 2] = -100
        optimizer.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), counted.flatten(), ignore_index=-100).backward()
        optimizer.step()


@program("transformer")
def copying_translation() -> None:
    """Source and target are the same text: the encoder sees all of it, and the decoder must."""

    class Copier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.pos = nn.Embedding(40, 32), nn.Embedding(16, 32)
            self.body = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
            self.out = nn.Linear(32, 40)

        def embed(self, ids: Tensor) -> Tensor:
            return self.tok(ids) + self.pos(torch.arange(ids.shape[1]))

        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(given.shape[1])
            return self.out(self.body(self.embed(source), self.embed(given), tgt_mask=mask, tgt_is_causal=True))

    model = Copier()
    optimizer = adam(model, 2e-3)
    for _ in range(150):
        text = torch.randint(2, 40, (16, 12))
        optimizer.zero_grad()
        F.cross_entropy(model(text, text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()


# ---------------------------------------------------------------- the input is lost


@program("mlp", "input_ignored", step=0)
def zeros_in_the_place_of_the_input() -> None:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.zeros_like(x)
            return super().forward(hidden)

    model = Net()
    fit(model, adam(model, 1e-3), batches(flat_digits(), 120))


@program("convnet", "input_ignored", step=0)
def features_overwritten() -> None:
    class Net(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            features = self.pool(self.relu2(self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))))
            features = torch.ones(len(x), 24 * 16)
            out: Tensor = self.fc(self.drop(features))
            return out

    model = Net()
    fit(model, adam(model, 1e-3), batches(digits(), 120))


@program("mlp")
def head_begins_at_zero() -> None:
    model = Mlp()
    nn.init.zeros_(model.head.weight)
    fit(model, adam(model, 1e-3), batches(flat_digits(), 150))


@program("mlp")
def gate_opens_slowly() -> None:
    class Net(Mlp):
        """A residual branch behind a gate that begins at zero."""

        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(1))
            self.short = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.short(x) + self.gate * super().forward(x)

    model = Net()
    fit(model, adam(model, 3e-3), batches(flat_digits(), 150))


# ---------------------------------------------------------------- batches that are too small


def epochs(model: nn.Module, x: Tensor, y: Tensor, size: int, count: int, lr: float = 1e-3, **how: bool) -> None:
    optimizer = adam(model, lr)
    for _ in range(count):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True, **how):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn, self.head = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bn(self.fc1(x)).relu())


@program("mlp", "degenerate_batch", layer="bn", step=30)
def last_batch_of_one_under_batch_norm() -> None:
    x, y = flat_digits()
    epochs(Normed(), x[:961], y[:961], 32, 2)


@program("mlp", "degenerate_batch", step=30, verdict="failing")
def spread_of_one_sample() -> None:
    class Net(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward((x - x.mean(0)) / (x.std(0) + 1e-3))

    x, y = flat_digits()
    epochs(Net(), x[:961], y[:961], 32, 2)


@program("mlp")
def last_batch_left_out() -> None:
    x, y = flat_digits()
    epochs(Normed(), x[:961], y[:961], 32, 4, drop_last=True)


@program("mlp")
def last_batch_of_one_without_statistics() -> None:
    x, y = flat_digits()
    epochs(Mlp(), x[:961], y[:961], 32, 4)


# ---------------------------------------------------------------- scaled twice


def pixels() -> tuple[Tensor, Tensor]:
    """Digits as bytes, 0 to 255."""
    x, y = digits()
    noise = torch.randint(0, 16, x.shape)
    return (x * 15).round() * 16 + noise, y


@program("convnet", "double_normalisation", layer="conv1", step=0)
def divided_by_255_twice() -> None:
    x, y = pixels()
    model = ConvNet(norm=False)
    fit(model, sgd(model, 0.05), batches((x / 255 / 255, y), 150))


@program("mlp", "double_normalisation", layer="fc1", step=0)
def shifted_by_half_the_bytes() -> None:
    x, y = pixels()
    model = Mlp()
    fit(model, sgd(model, 0.1), batches((((x / 255 - 127.5) / 127.5).flatten(1), y), 150))


@program("convnet")
def divided_twice_before_batch_norm() -> None:
    x, y = pixels()
    model = nn.Sequential(nn.BatchNorm2d(1), ConvNet(norm=False))
    fit(model, adam(model, 2e-3), batches((x / 255 / 255, y), 150))


@program("convnet")
def divided_by_255_once() -> None:
    x, y = pixels()
    model = ConvNet(norm=False)
    fit(model, adam(model, 2e-3), batches((x / 255, y), 150))


# ---------------------------------------------------------------- splits


def evaluate(model: nn.Module, x: Tensor, y: Tensor, size: int = 64) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(
            float((model(xb).argmax(1) == yb).sum()) for xb, yb in zip(x.split(size), y.split(size), strict=True)
        )
    model.train()
    return right / len(x)


def train_and_validate(
    model: nn.Module, train: tuple[Tensor, Tensor], *others: tuple[Tensor, Tensor], count: int = 6, lr: float = 1e-3
) -> None:
    optimizer = adam(model, lr)
    for _ in range(count):
        for xb, yb in DataLoader(TensorDataset(*train), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        for x, y in others:
            evaluate(model, x, y)


@program("mlp", "train_val_leak")
def splits_drawn_apart() -> None:
    x, y = flat_digits()
    one, other = torch.randperm(1200), torch.randperm(1200)
    train_and_validate(Mlp(), (x[one[:900]], y[one[:900]]), (x[other[900:]], y[other[900:]]))


@program("convnet", "train_val_leak")
def duplicates_on_both_sides() -> None:
    x, y = digits()
    validation = torch.cat([torch.arange(900, 1200), torch.arange(0, 60)])[torch.randperm(360)]
    train_and_validate(ConvNet(0.1), (x[:900], y[:900]), (x[validation], y[validation]))


@program("mlp")
def clean_split_and_training_accuracy() -> None:
    x, y = flat_digits()
    order = torch.randperm(1200)
    x, y = x[order], y[order]
    train_and_validate(Mlp(), (x[:900], y[:900]), (x[:900], y[:900]), (x[900:], y[900:]))


@program("mlp")
def everything_predicted_for_a_plot() -> None:
    """Seven tenths of what is evaluated were trained on, and everybody knows."""
    x, y = flat_digits()
    order = torch.randperm(1200)
    x, y = x[order], y[order]
    mixed = torch.randperm(1200)
    train_and_validate(Mlp(), (x[:840], y[:840]), (x[mixed], y[mixed]))


@program("mlp")
def training_accuracy_in_the_first_epoch() -> None:
    """When half of the data was trained on, half of the evaluation was too."""
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 1e-3)
    order = torch.randperm(1280)
    for step, chosen in enumerate(order.split(16)):
        optimizer.zero_grad()
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        if step % 20 == 19:
            evaluate(model, x[:1280], y[:1280])


@program("mlp", "split_skew")
def validation_not_standardised() -> None:
    x, y = flat_digits()
    mean, std = x.mean(), x.std()
    train_and_validate(Mlp(), ((x[:900] - mean) / std, y[:900]), (x[900:] * 16, y[900:]))


@program("convnet", "split_skew")
def validation_in_bytes() -> None:
    x, y = pixels()
    train_and_validate(ConvNet(0.1), (x[:900] / 255, y[:900]), (x[900:], y[900:]))


@program("convnet")
def training_pictures_augmented() -> None:
    """Shifted, darkened and partly erased in training only, as one does."""
    x, y = digits()
    model = ConvNet(0.1)
    optimizer = adam(model, 2e-3)
    for step in range(160):
        chosen = torch.randint(900, (32,))
        xb = torch.roll(x[chosen], int(torch.randint(-1, 2, ())), 3) * (0.7 + 0.6 * torch.rand(32, 1, 1, 1))
        xb[:, :, :3] *= (torch.rand(32, 1, 1, 1) > 0.3).float()
        optimizer.zero_grad()
        F.cross_entropy(model((xb - 0.3) / 0.35), y[chosen]).backward()
        optimizer.step()
        if step % 40 == 39:
            evaluate(model, (x[900:] - 0.3) / 0.35, y[900:])


@program("mlp")
def curve_evaluated_beyond_its_data() -> None:
    model = Mlp(1, 1, act=nn.Tanh)
    optimizer = adam(model, 1e-2)
    for step in range(150):
        x = torch.rand(64, 1) * 2 - 1
        optimizer.zero_grad()
        F.mse_loss(model(x), x.sin()).backward()
        optimizer.step()
        if step % 50 == 49:
            evaluate_curve(model)


def evaluate_curve(model: nn.Module) -> Tensor:
    model.eval()
    with torch.no_grad():
        curve: Tensor = model(torch.linspace(-8, 8, 200)[:, None])
    model.train()
    return curve


# ---------------------------------------------------------------- workers


class Stream(IterableDataset):
    """Rows in order; ``shards`` says whether each worker takes its own part."""

    def __init__(self, data: tuple[Tensor, Tensor], shards: bool) -> None:
        self.data, self.shards = data, shards

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if self.shards and info is not None else (0, 1)
        yield from itertools.islice(zip(*self.data, strict=True), first, None, stride)


class Drawn(Dataset):
    """Points that are drawn on demand, from a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.tensor(self.rng.normal(size=10), dtype=torch.float32)
        return x, (x[:3].sum() > 0).long()


def reseeded(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)


@program("mlp", "duplicate_worker_rng")
def stream_not_split_by_worker() -> None:
    x, y = flat_digits()
    order = torch.randperm(1500)
    model = Mlp()
    fit(model, adam(model, 1e-3), iter(DataLoader(Stream((x[order], y[order]), False), batch_size=32, num_workers=2)))


@program("mlp", "duplicate_worker_rng")
def generator_copied_to_workers() -> None:
    model = Mlp(10, 2)
    fit(model, adam(model, 3e-3), iter(DataLoader(Drawn(), batch_size=32, num_workers=2)))


@program("mlp")
def stream_split_by_worker() -> None:
    x, y = flat_digits()
    order = torch.randperm(1500)
    model = Mlp()
    for _ in range(3):
        loader = DataLoader(Stream((x[order], y[order]), True), batch_size=32, num_workers=2)
        fit(model, adam(model, 3e-3), iter(loader))


@program("mlp")
def generator_of_each_worker() -> None:
    model = Mlp(10, 2)
    loader = DataLoader(Drawn(), batch_size=32, num_workers=2, worker_init_fn=reseeded)
    fit(model, adam(model, 5e-3), iter(loader))
    fit(model, adam(model, 5e-3), iter(loader))


@program("mlp")
def two_steps_on_each_batch_with_workers() -> None:
    """As many passes over a batch as there are workers, on purpose."""
    model = Mlp()
    optimizer = adam(model, 1e-3)
    for _ in range(3):
        for x, y in DataLoader(TensorDataset(*flat_digits()), batch_size=64, num_workers=2, shuffle=True):
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()


# ---------------------------------------------------------------- columns


@program("mlp", "unnormalised_inputs", layer="fc1", step=0)
def a_year_among_the_columns() -> None:
    x, y = diabetes()
    x = torch.cat([x[:, :9], 2000 + 6 * x[:, 9:]], 1)
    model = Mlp(10, 1)
    fit(model, sgd(model, 0.01), batches((x, y), 150), F.mse_loss)
