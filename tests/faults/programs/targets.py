"""Losses and targets that do not belong together, and trainings that only look so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
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

EARLY = ("healthy", "inconclusive")


def even_digits() -> tuple[Tensor, Tensor]:
    """Pictures, and whether the digit is even, shape (N, 1)."""
    x, y = flat_digits()
    return x, (y % 2 == 0).float()[:, None]


def fields(count: int = 2000) -> tuple[Tensor, Tensor]:
    """Two variables that depend on each other smoothly."""
    x = torch.randn(count, 6)
    return x, (x[:, :1] * 1.5 + torch.sin(2 * x[:, 1:2]) + 0.1 * torch.randn(count, 1))


def padded_text(steps: int, size: int = 16, length: int = 32, pad: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Snippets of different lengths, filled up with a padding token: inputs and next tokens (B, T)."""
    found = []
    for x, y in char_batches(steps, size, length):
        short = torch.arange(length)[None] >= torch.randint(4, length // 2, (size, 1))
        found.append((x.masked_fill(short, pad), y.masked_fill(short, pad)))
    return found


# --- a sigmoid too many -------------------------------------------------------------------------------------------


@program("mlp", "double_sigmoid", layer="1", step=0)
def sigmoid_module_before_logits_loss() -> None:
    model = nn.Sequential(Mlp(outputs=1), nn.Sigmoid())
    fit(model, adam(model, 2e-3), batches(even_digits(), 150), nn.BCEWithLogitsLoss())


@program("convnet", "double_sigmoid", layer="fc", step=0)
def functional_sigmoid_multilabel() -> None:
    x, y = digits()
    model = ConvNet()
    labels = torch.stack([y % 2 == 0, y > 4, y % 3 == 0, *[y == i for i in range(7)]], 1).float()
    fit(
        model,
        adam(model, 2e-3),
        batches((x, labels), 60),
        lambda out, y: F.binary_cross_entropy_with_logits(torch.sigmoid(out), y),
    )


@program("mlp")
def gated_logits() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.gate, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.relu(self.body(x)) * torch.sigmoid(self.gate(x)))
            return out * torch.sigmoid(out / 4)  # a gate on the score itself: no probability

    model = Gated()
    fit(model, adam(model, 2e-3), batches(even_digits(), 200), nn.BCEWithLogitsLoss())


@program("mlp")
def focal_loss() -> None:
    model = Mlp(outputs=1)

    def focal(out: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(out)
        weight = torch.where(y > 0.5, 1 - p, p).pow(2)
        return (weight * F.binary_cross_entropy_with_logits(out, y, reduction="none")).mean()

    fit(model, adam(model, 2e-3), batches(even_digits(), 200), focal)


# --- no logarithm -------------------------------------------------------------------------------------------------


@program("mlp", "missing_log_softmax", layer="head", step=0)
def raw_scores_in_nll() -> None:
    model = Mlp()
    fit(model, sgd(model, 0.01), batches(flat_digits(), 100), F.nll_loss)


@program("lstm", "missing_log_softmax", layer="1", step=0)
def probabilities_in_nll() -> None:
    model = nn.Sequential(RowLstm(), nn.Softmax(1))
    fit(model, adam(model, 2e-3), batches(digits(), 100), nn.NLLLoss())


@program("mlp", ("missing_log_softmax", "batch_axis_mixup"), step=0)
def log_softmax_over_the_batch() -> None:
    model = nn.Sequential(Mlp(), nn.LogSoftmax(dim=0))
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150), nn.NLLLoss())


@program("mlp", "missing_log_softmax", layer="head", step=0)
def probabilities_in_kl_div() -> None:
    x, y = flat_digits()
    model, soft = Mlp(), F.one_hot(y, 10).float() * 0.9 + 0.01
    loss = nn.KLDivLoss(reduction="batchmean")
    fit(model, adam(model, 2e-3), batches((x, soft), 150), lambda out, t: loss(F.softmax(out, 1), t))


@program("transformer")
def nll_on_flattened_log_softmax() -> None:
    model = CharGpt()
    fit(
        model,
        torch.optim.AdamW(model.parameters(), 3e-3),
        char_batches(80),
        lambda out, y: F.nll_loss(F.log_softmax(out, -1).view(-1, 128), y.reshape(-1)),
    )


@program("mlp")
def log_of_mixed_probabilities() -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Mlp(), Mlp(width=32)

        def forward(self, x: Tensor) -> Tensor:
            return torch.log((self.one(x).softmax(1) + self.two(x).softmax(1)) / 2 + 1e-8)

    model = Mixture()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 150), F.nll_loss)


# --- a head that cannot say it ------------------------------------------------------------------------------------


@program("mlp", "output_activation_mismatch", layer="1", step=0)
def sigmoid_on_standardised_targets() -> None:
    model = nn.Sequential(Mlp(10, 1), nn.Sigmoid())
    fit(model, adam(model, 2e-3), batches(diabetes(), 200), F.mse_loss)


@program("mlp", "output_activation_mismatch", layer="head", step=0)
def relu_on_signed_targets_by_hand() -> None:
    model = Mlp(10, 1)
    fit(model, sgd(model, 0.02), batches(diabetes(), 200), lambda out, y: ((y - F.relu(out)) ** 2).mean())


@program("mlp", ("output_activation_mismatch", "input_ignored"), step=0)
def softmax_over_one_unit() -> None:
    model = nn.Sequential(Mlp(outputs=1), nn.Softmax(dim=1))
    fit(model, adam(model, 2e-3), batches(even_digits(), 150), F.binary_cross_entropy)


@program("mlp", "output_activation_mismatch", layer="head", step=0)
def cross_entropy_over_one_class() -> None:
    x, _ = flat_digits()
    model = Mlp(outputs=1)
    fit(model, adam(model, 2e-3), batches((x, torch.zeros(len(x), dtype=torch.long)), 100))


@program("convnet", "output_activation_mismatch", layer="fc", step=0)
def sigmoid_before_cross_entropy() -> None:
    model = ConvNet()
    fit(model, adam(model, 2e-3), batches(digits(), 80), lambda out, y: F.cross_entropy(torch.sigmoid(out), y))


@program("mlp", "output_activation_mismatch", layer="head", step=0)
def relu_before_logits_loss() -> None:
    model = Mlp(outputs=1)
    fit(
        model,
        adam(model, 2e-3),
        batches(even_digits(), 150),
        lambda out, y: F.binary_cross_entropy_with_logits(F.relu(out), y),
    )


@program("autoencoder")
def sigmoid_decoder_of_pixels() -> None:
    x, _ = flat_digits()
    model = nn.Sequential(Mlp(64, 12), Mlp(12, 64), nn.Sigmoid())
    fit(model, adam(model, 3e-3), batches((x, x), 200), F.mse_loss)


@program("mlp")
def tanh_soft_cap_on_logits() -> None:
    model = Mlp()
    fit(
        model,
        adam(model, 2e-3),
        batches(flat_digits(), 150),
        lambda out, y: F.cross_entropy(20 * torch.tanh(out / 20), y),
    )


@program("mlp")
def brier_score() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(
        model,
        adam(model, 3e-3),
        batches((x, F.one_hot(y, 10).float()), 250),
        lambda out, t: F.mse_loss(out.softmax(1), t),
    )


# --- another task's loss ------------------------------------------------------------------------------------------


@program("mlp", "loss_task_mismatch", layer="head", step=0)
def squared_error_on_a_column_of_ids() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, adam(model, 2e-3), batches((x, y.float()[:, None]), 200), F.mse_loss)


@program("mlp", "loss_task_mismatch", layer="head", step=0)
def ids_in_binary_cross_entropy() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=1)
    fit(model, adam(model, 1e-3), batches((x, (y % 3).float()[:, None]), 150), nn.BCEWithLogitsLoss())


@program("mlp", "loss_task_mismatch", layer="head", step=0)
def several_labels_in_cross_entropy() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=6)
    labels = torch.stack([y % 2 == 0, y > 4, y % 3 == 0, y < 8, y != 1, y == 3], 1).float()
    fit(model, adam(model, 2e-3), batches((x, labels), 150), F.cross_entropy)


@program("mlp")
def one_hot_in_binary_cross_entropy() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, adam(model, 3e-3), batches((x, F.one_hot(y, 10).float()), 200), nn.BCEWithLogitsLoss())


@program("mlp")
def counts_regressed() -> None:
    x = torch.rand(1500, 8)
    y = (x > 0.5).sum(1).float()[:, None]
    model = Mlp(8, 1)
    fit(model, adam(model, 5e-3), batches((x, y), 300), F.mse_loss)


@program("mlp")
def mixed_up_labels() -> None:
    x, y = flat_digits()
    model, hot = Mlp(), F.one_hot(y, 10).float()
    optimizer = adam(model, 2e-3)
    for _ in range(200):
        i, j, share = torch.randint(1797, (64,)), torch.randint(1797, (64,)), torch.rand(64, 1)
        loss = F.cross_entropy(model(share * x[i] + (1 - share) * x[j]), share * hot[i] + (1 - share) * hot[j])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- labels out of range ------------------------------------------------------------------------------------------


@program("mlp", "target_out_of_range", layer="head", step=0)
def minus_one_and_one_in_logits_loss() -> None:
    x, y = even_digits()
    model = Mlp(outputs=1)
    fit(model, adam(model, 1e-3), batches((x, 2 * y - 1), 150), nn.BCEWithLogitsLoss())


@program("convnet", "target_out_of_range", layer="2", step=0)
def masks_of_255() -> None:
    x, _ = digits()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    fit(model, adam(model, 1e-3), batches((x, (x > 0.5).float() * 255), 100), nn.BCEWithLogitsLoss())


@program("mlp", "target_out_of_range", layer="head", step=0)
def zeros_in_soft_margin() -> None:
    model = Mlp(outputs=1)
    fit(model, adam(model, 1e-3), batches(even_digits(), 150), nn.SoftMarginLoss())


@program("mlp", "target_out_of_range", step=40)
def a_batch_of_ignored_labels() -> None:
    x, y = flat_digits()
    model, seen = Mlp(), []

    def loss(out: Tensor, y: Tensor) -> Tensor:
        seen.append(1)
        known = torch.rand(len(y)) < (0.5 if len(seen) != 41 else 0.0)
        return F.cross_entropy(out, torch.where(known, y, -100))

    fit(model, adam(model, 2e-3), batches((x, y), 80), loss)


@program("gan")
def softened_critic_labels() -> None:
    x, _ = flat_digits()
    generator, critic = Mlp(16, 64), Mlp(64, 1, act=nn.LeakyReLU)
    g, d = adam(generator, 2e-4), adam(critic, 2e-4)
    judge = F.binary_cross_entropy_with_logits
    for _ in range(120):
        real, fake = x[torch.randint(1797, (64,))], generator(torch.randn(64, 16))
        d.zero_grad()
        judge(critic(real), 0.7 + 0.5 * torch.rand(64, 1)).backward()
        judge(critic(fake.detach()), 0.3 * torch.rand(64, 1)).backward()
        d.step()
        g.zero_grad()
        judge(critic(fake), torch.ones(64, 1)).backward()
        g.step()


# --- labels that say nothing --------------------------------------------------------------------------------------


@program("mlp", "labels_degenerate", layer="head", step=0)
def labels_divided_away() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, sgd(model, 0.1), batches((x, y // 10), 120))


@program("mlp", "labels_degenerate", layer="head", step=0)
def only_negatives() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=1)
    fit(model, adam(model, 1e-3), batches((x, (y > 9).float()[:, None]), 120), nn.BCEWithLogitsLoss())


@program("contrastive")
def queue_of_negatives() -> None:
    x, _ = flat_digits()
    model = Mlp(64, 16)
    optimizer = adam(model, 1e-3)
    queue = F.normalize(model(x[:128]).detach(), dim=1)
    for step in range(150):
        a = x[torch.randint(1797, (64,))]
        q = F.normalize(model(a + 0.05 * torch.randn_like(a)), dim=1)
        with torch.no_grad():
            k = F.normalize(model(a + 0.05 * torch.randn_like(a)), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(64, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[(step % 2) * 64 : (step % 2) * 64 + 64] = k


@program("mlp")
def many_outputs_few_classes() -> None:
    x, y = flat_digits()
    model = Mlp(outputs=200)  # a head that was trained on more
    fit(model, adam(model, 2e-3), batches((x, y), 200))


# --- uphill -------------------------------------------------------------------------------------------------------


@program("mlp", "loss_sign_flip", layer="head", step=0)
def negated_cross_entropy() -> None:
    model = Mlp()
    fit(model, adam(model, 2e-3), batches(flat_digits(), 120), lambda out, y: -F.cross_entropy(out, y))


@program("mlp", "loss_sign_flip", layer="head", step=0)
def optimizer_that_maximises() -> None:
    model = Mlp(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, maximize=True)
    fit(model, optimizer, batches(diabetes(), 60), F.mse_loss)


@program("mlp", "loss_sign_flip", layer="head", step=0)
def likelihood_without_minus() -> None:
    model = Mlp()
    fit(
        model,
        sgd(model, 0.05),
        batches(flat_digits(), 100),
        lambda out, y: F.log_softmax(out, 1)[torch.arange(len(y)), y].mean(),
    )


@program("vae")
def lower_bound_with_two_minus_signs() -> None:
    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.dec = nn.Linear(64, 16), Mlp(8, 64, depth=2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mu, logvar = self.enc(x).chunk(2, 1)
            return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar

    model = Vae()
    optimizer = adam(model, 2e-3)
    for x, _ in batches(flat_digits(), 200):
        out, mu, logvar = model(x)
        likelihood = -F.binary_cross_entropy_with_logits(out, x, reduction="sum") / len(x)
        divergence = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum() / len(x)
        loss = -(likelihood - divergence)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program("mlp", verdict=(*EARLY, "suspect", "failing"))
def trained_perturbation() -> None:
    x, y = flat_digits()
    model = Mlp()
    fit(model, adam(model, 3e-3), batches((x, y), 120))
    delta = torch.zeros(64, 64, requires_grad=True)
    attack = torch.optim.SGD([delta], 0.1)
    for _ in range(20):
        loss = -F.cross_entropy(model(x[:64] + delta), y[:64])
        attack.zero_grad()
        loss.backward()
        attack.step()


# --- what counts --------------------------------------------------------------------------------------------------


@program("transformer", "loss_mask_error", layer="head")
def padding_counts() -> None:
    model = CharGpt()
    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), iter(padded_text(80)), char_loss)


@program("transformer", "loss_mask_error", layer="head")
def mask_the_wrong_way_round() -> None:
    model = CharGpt()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="none")
        mask = (y.flatten() == 0).float()
        return (each * mask).sum() / mask.sum()

    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), iter(padded_text(80)), loss)


@program("transformer")
def padding_ignored() -> None:
    model = CharGpt()
    loss = nn.CrossEntropyLoss(ignore_index=0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    fit(model, optimizer, iter(padded_text(100)), lambda out, y: loss(out.flatten(0, 1), y.flatten()))


@program("transformer")
def padding_masked() -> None:
    model = CharGpt()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(out.transpose(1, 2), y, reduction="none")
        mask = (y != 0).float()
        return (each * mask).sum() / mask.sum()

    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), iter(padded_text(100)), loss)


@program("convnet")
def segmentation_with_background() -> None:
    x, _ = digits()
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
    labels = (x[:, 0] > 0.3).long() + (x[:, 0] > 0.8).long()
    fit(model, adam(model, 5e-3), batches((x, labels), 120))


# --- pairs that do not belong together ----------------------------------------------------------------------------


@program("mlp", "target_misaligned", layer="head", step=0)
def targets_reversed() -> None:
    model = Mlp()
    fit(model, adam(model, 1e-3), batches(flat_digits(), 150), lambda out, y: F.cross_entropy(out, y.flip(0)))


@program("mlp", "target_misaligned", layer="head", step=0)
def targets_one_row_off() -> None:
    x, y = fields()
    model = Mlp(6, 1)
    fit(model, adam(model, 1e-3), batches((x, y), 150), lambda out, t: F.mse_loss(out, t.roll(1, 0)))


@program("transformer", "target_misaligned", layer="head", step=0)
def targets_not_shifted() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    fit(model, optimizer, ((x, x) for x, _ in char_batches(150)), char_loss)


@program("transformer", "target_misaligned", layer="head", step=0)
def targets_shifted_twice() -> None:
    model = CharGpt()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    fit(model, optimizer, ((x[:, :-1], y[:, 1:]) for x, y in char_batches(80)), char_loss)


@program("mlp", ("label_noise", "target_misaligned"))
def labels_shuffled_alone() -> None:
    x, y = flat_digits()
    model = Mlp(width=32)
    fit(model, sgd(model, 0.05), batches((x, y[torch.randperm(len(y))]), 200))


@program("mlp", ("label_noise", "target_misaligned"))
def random_numbers_as_targets() -> None:
    x, _ = flat_digits()
    model = Mlp(64, 1, width=32)
    fit(model, sgd(model, 0.01), batches((x, torch.randn(len(x), 1)), 200), F.mse_loss)


@program("mlp", ("target_misaligned", "label_noise"))
def labels_shuffled_anew_each_epoch() -> None:
    x, y = (part[:320] for part in flat_digits())
    model = Mlp()
    optimizer = adam(model, 1e-3)
    for _ in range(30):
        for a, b in zip(x[torch.randperm(320)].split(64), y[torch.randperm(320)].split(64), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()


@program("mlp")
def noisy_labels_that_say_something() -> None:
    x, y = flat_digits()
    model = Mlp()
    random = torch.rand(len(y)) < 0.4
    labels = torch.where(random, torch.randint(10, y.shape), y)
    fit(model, adam(model, 1e-3), batches((x, labels), 200))


@program("transformer")
def masked_tokens() -> None:
    class Bert(CharGpt):
        pass

    model = Bert()

    def data() -> object:
        for x, _ in char_batches(120):
            hidden = torch.rand(x.shape) < 0.3
            yield torch.where(hidden, 1, x), torch.where(hidden, x, -100)

    fit(model, torch.optim.AdamW(model.parameters(), 3e-3), data(), char_loss)  # type: ignore[arg-type]


# --- order and balance --------------------------------------------------------------------------------------------


@program("mlp", "class_imbalance", layer="head")
def one_in_thirty() -> None:
    x = torch.randn(4000, 12)
    y = (x[:, :3].sum(1) + 1.5 * torch.randn(4000) > 4.2).long()
    model = Mlp(12, 2, width=16)
    fit(model, sgd(model, 0.05), batches((x, y), 300))


@program("mlp", "class_imbalance", layer="head")
def rare_positives() -> None:
    x = torch.randn(4000, 12)
    y = (x[:, :3].sum(1) + 1.5 * torch.randn(4000) > 4.2).float()[:, None]
    model = Mlp(12, 1, width=16)
    fit(model, adam(model, 5e-4), batches((x, y), 300), nn.BCEWithLogitsLoss())


@program("mlp")
def weighted_rare_class() -> None:
    x = torch.randn(4000, 12)
    y = (x[:, :3].sum(1) + 1.5 * torch.randn(4000) > 4.2).long()
    model = Mlp(12, 2, width=16)
    weight = len(y) / (2 * torch.bincount(y).float())
    fit(model, adam(model, 2e-3), batches((x, y), 300), nn.CrossEntropyLoss(weight=weight))


@program("mlp")
def rare_but_found() -> None:
    x, y = flat_digits()
    keep = (y != 3) | (torch.rand(len(y)) < 0.3)
    model = Mlp(outputs=2)
    fit(model, adam(model, 3e-3), batches((x[keep], (y[keep] == 3).long()), 300))


@program("mlp", "unshuffled_data", verdict=("failing", "suspect"))
def sorted_by_class() -> None:
    x, y = flat_digits()
    order = y.argsort(stable=True)
    model = Mlp()
    optimizer = sgd(model, 0.1)
    for _ in range(6):
        for a, b in zip(x[order].split(32), y[order].split(32), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()


@program("convnet", "unshuffled_data", verdict=("failing", "suspect"))
def folders_read_one_after_the_other() -> None:
    x, y = digits()
    order = y.argsort(stable=True)[:900]
    data = torch.utils.data.TensorDataset(x[order], y[order])
    loader = torch.utils.data.DataLoader(data, batch_size=50)
    model = ConvNet(norm=False)
    optimizer = adam(model, 2e-3)
    for _ in range(5):
        fit(model, optimizer, iter(loader))


@program("mlp")
def fixed_order_of_mixed_classes() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = sgd(model, 0.1)
    for _ in range(6):
        fit(model, optimizer, iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 64)))


@program("mlp")
def few_classes_in_a_batch() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 2e-3)
    for _ in range(200):  # four classes of sixteen samples, as metric learning draws them
        chosen = torch.cat([torch.nonzero(y == c).flatten()[torch.randint(170, (16,))] for c in torch.randperm(10)[:4]])
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
