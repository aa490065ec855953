"""Trainings that are sound for hundreds of steps: what goes wrong then is dated and explained, and what does no harm
raises no alarm. Default settings, so that most steps are light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import golden
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg import Diagnosis

STEPS, AT = 1200, 811


class Loop:
    """A classifier on tabular data; each fault changes one thing at step AT."""

    def __init__(self) -> None:
        rng = torch.Generator().manual_seed(1)
        self.x = torch.randn(1600, 20, generator=rng)
        self.y = (torch.tanh(self.x) @ torch.randn(20, 5, generator=rng)).argmax(1)
        self.model = nn.Sequential(
            nn.Linear(20, 48), nn.ReLU(), nn.Dropout(0.05), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 5)
        )
        self.opt: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0
        self.size = 64

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y)

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(self.x), (self.size,))
        return self.x[rows], self.y[rows]

    def at(self) -> None:
        """Change one thing."""

    def train(self) -> None:
        for self.step in range(STEPS):
            if self.step == AT:
                self.at()
            x, y = self.batch()
            loss = self.loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


class Rate(Loop):
    def at(self) -> None:
        self.opt.param_groups[0]["lr"] *= 50


class Momentum(Loop):
    def at(self) -> None:
        self.opt.param_groups[0]["momentum"] = 0.9995


class Decay(Loop):
    def at(self) -> None:
        self.opt.param_groups[0]["weight_decay"] = 0.5


class Dropout(Loop):
    def at(self) -> None:
        self.model[2].p = 0.97


class Labels(Loop):
    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x, y[torch.randperm(len(y))] if self.step >= AT else y


class Net(nn.Module):
    """Two layers before a head, one beside it, and a cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(20, 48), nn.Linear(48, 48), nn.Linear(48, 5)
        self.beside = nn.Linear(48, 5)
        self.cut = False

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.second(self.first(x).relu()).relu()
        hidden = hidden.detach() if self.cut else hidden
        return self.head(hidden), self.beside(hidden)


class Auxiliary(Loop):
    """A second head helps at first, and is left out of the loss later."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def loss(self, out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return sum(F.cross_entropy(each, y) for each in out[: 2 if self.step < AT else 1])


class Detached(Auxiliary):
    def loss(self, out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(out[0], y) + F.cross_entropy(out[1], y)

    def at(self) -> None:
        self.model.cut = True


class CutOff(Loop):
    """From step AT on the loss is made of a number."""

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        loss = super().loss(out, y)
        return loss if self.step < AT else torch.tensor(loss.item(), requires_grad=True)


class Rewritten(Loop):
    def at(self) -> None:
        with torch.no_grad():
            for p in self.model.parameters():
                p.mul_(20.0)


class Averaged(Loop):
    """Evaluations with averaged weights, which are swapped in and out again."""

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step % 50 == 49:
            held = [p.detach().clone() for p in self.model.parameters()]
            with torch.no_grad():
                for p in self.model.parameters():
                    p.mul_(0.5)
                self.model.eval()
                self.model(self.x[:200])
                self.model.train()
                for p, old in zip(self.model.parameters(), held, strict=True):
                    p.copy_(old)
        return super().batch()


class Zeros(Loop):
    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x * float(self.step < AT), y


class OneLabel(Loop):
    """The labels become one class, and the inputs stay what they are."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x, torch.full_like(y, 3) if self.step >= AT else y


class OneClass(Loop):
    """Batches come from a part of the data that holds one class, which is the most frequent one."""

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step < AT:
            return super().batch()
        rows = (self.y == self.y.mode().values).nonzero()[:, 0]
        rows = rows[torch.randint(len(rows), (self.size,))]
        return self.x[rows], self.y[rows]


class Ordered(Loop):
    """Batches hold one class each, now one and now another."""

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step < AT:
            return super().batch()
        rows = (self.y == self.step // 20 % 5).nonzero()[:, 0]
        rows = rows[torch.randint(len(rows), (self.size,))]
        return self.x[rows], self.y[rows]


class HeadReplaced(Loop):
    def at(self) -> None:
        self.model[5] = nn.Linear(48, 5)


class PartStepped(Loop):
    """A new optimizer is made of the biases alone."""

    def at(self) -> None:
        self.opt = torch.optim.SGD([p for p in self.model.parameters() if p.dim() == 1], lr=0.05, momentum=0.9)


class Epsilon(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def at(self) -> None:
        self.opt.param_groups[0]["eps"] = 100.0


class Clipped(Loop):
    """The gradients are clipped from step AT on, to next to nothing."""

    limit = 1e-6

    def train(self) -> None:
        for self.step in range(STEPS):
            x, y = self.batch()
            self.opt.zero_grad()
            self.loss(self.model(x), y).backward()
            if self.step >= AT:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            self.opt.step()


class ClippedSanely(Clipped):
    limit = 5.0


class Noise(Loop):
    """Noise is added to the weights after each step from AT on."""

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step > AT:
            with torch.no_grad():
                for p in self.model.parameters():
                    p.add_(0.05 * torch.randn_like(p))
        return super().batch()


class Unstepped(Loop):
    """A counter that runs out: from step AT on the optimizer is cleared and not stepped."""

    def at(self) -> None:
        self.opt.step = lambda: None


class Single(Loop):
    def at(self) -> None:
        self.size = 1


class SetLow(Loop):
    def at(self) -> None:
        self.opt.param_groups[0]["lr"] *= 1e-6


class Climbs(Loop):
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None

    def at(self) -> None:
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.opt, gamma=1.05)

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.schedule is not None:
            self.schedule.step()
        return super().batch()


class Absurd(Loop):
    """One batch comes in other units, and the training does not get over it."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x * (1e5 if self.step == AT else 1.0), y


class Softmax(Loop):
    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return super().loss(out.softmax(1) if self.step >= AT else out, y)


class Shard(Loop):
    """The rest of the data was never normalised, and a norm after the first layer hides it."""

    def __init__(self) -> None:
        super().__init__()
        self.model.insert(1, nn.BatchNorm1d(48))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return 100 * x + 50 if self.step >= AT else x, y


class Reloaded(Loop):
    """A checkpoint is loaded again after each step."""

    saved: dict[str, Tensor] | None = None

    def at(self) -> None:
        self.saved = {name: value.clone() for name, value in self.model.state_dict().items()}

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.saved is not None:
            self.model.load_state_dict(self.saved)
        return super().batch()


class HeadReset(Loop):
    """The last layer begins anew, and is learnt again by the end."""

    def at(self) -> None:
        self.model[5].reset_parameters()
        self.model[5].weight.data.mul_(30.0)


class Flipped(Loop):
    """The loss is maximised, within bounds that keep it finite."""

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return super().loss(3 * torch.tanh(out / 3), y) * (1.0 if self.step < AT else -1.0)


class MostlyOneClass(OneClass):
    """A shard of one class, but for a few samples."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        if self.step >= AT:
            rows = torch.randint(len(self.x), (self.size // 64,))
            x[: len(rows)], y[: len(rows)] = self.x[rows], self.y[rows]
        return x, y


class Regression(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.y = torch.tanh(self.x) @ torch.randn(20, 1)
        self.model[5] = nn.Linear(48, 1)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, y)


class Sorted(Regression):
    """Batches come sorted by their target."""

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step < AT:
            return super().batch()
        at = (self.step * self.size) % (len(self.x) - self.size)
        rows = self.y[:, 0].argsort()[at : at + self.size]
        return self.x[rows], self.y[rows]


class OneValue(Regression):
    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x, torch.full_like(y, 3.0) if self.step >= AT else y


class Harder(Regression):
    """Some noise on the inputs, as an augmentation that is switched on."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x + (0.1 * torch.randn_like(x) if self.step >= AT else 0.0), y


class AttackedAtTheEnd(Loop):
    """Gradients of evaluation batches after the training, for adversarial examples; also in training mode."""

    def train(self) -> None:
        super().train()
        for training in (False, True):
            self.model.train(training)
            for _ in range(30):
                x = self.x[:64].clone().requires_grad_()
                self.model.zero_grad()
                super().loss(self.model(x), self.y[:64]).backward()


class Pruned(Loop):
    """Half, then two thirds of a weight are set to 0, and kept there."""

    mask: Tensor | None = None

    def batch(self) -> tuple[Tensor, Tensor]:
        weight = self.model[3].weight
        with torch.no_grad():
            if self.step in {AT, AT + 100}:
                share = 0.5 if self.step == AT else 0.67
                self.mask = weight.abs() > weight.abs().quantile(share)
            if self.mask is not None:
                weight.mul_(self.mask)
        return super().batch()


class RestsAtTheEnd(Loop):
    """The last steps are taken at a rate of next to nothing, to settle what is averaged."""

    def at(self) -> None:
        self.opt.param_groups[0]["lr"] = 1e-3

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step == STEPS - 100:
            self.opt.param_groups[0]["lr"] = 1e-8
        return super().batch()


class BiasesTuned(Loop):
    """A second phase on other data, of the biases alone, which are all that its optimizer holds."""

    def at(self) -> None:
        self.opt = torch.optim.Adam([p for p in self.model.parameters() if p.dim() == 1], lr=1e-2)
        self.y = (self.y + (self.x[:, 0] > 1.0)) % 5


class Segments(Loop):
    """Pixels of two classes, and batches of two pictures: many of them show the background alone."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.0), nn.Conv2d(8, 2, 1))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def batch(self) -> tuple[Tensor, Tensor]:
        y = torch.zeros(2, 12, 12, dtype=torch.long)
        for picture in y:
            if torch.rand(()) < 0.4:
                row, column = torch.randint(8, (2,)).tolist()
                picture[row : row + 4, column : column + 4] = 1
        return y[:, None] + 0.3 * torch.randn(2, 1, 12, 12), y


class Restarts(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.opt, 400)

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.step:
            self.schedule.step()
        return super().batch()


class Smoothed(Loop):
    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y, label_smoothing=0.1 if self.step >= AT else 0.0)


class Thawed(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.model[0].requires_grad_(False)

    def at(self) -> None:
        self.model[0].requires_grad_(True)
        self.model[2].p = 0.0
        self.size = 128


def watch(loop: Callable[[], Loop]) -> Diagnosis:
    return record(Program(loop.__name__, lambda: loop().train(), "late", golden(""), "late"))[1]


QUICK = (Momentum, OneLabel, Rate, Restarts)
"""Those that every run of the tests makes."""


def some(loops):
    """Mark all but the quick ones as slow."""
    return [pytest.param(one, marks=[] if one in QUICK else pytest.mark.slow, id=one.__name__) for one in loops]


FAULTS = {
    Rate: "lr_too_high", Momentum: "momentum_too_high", Decay: "weight_decay_too_high", Dropout: "dropout_too_high",
    Labels: "label_noise", Zeros: "input_ignored", Rewritten: "weights_overwritten",
}  # fmt: skip


@pytest.mark.parametrize("loop", some(FAULTS))
def test_the_change_that_ruined_a_training_is_its_cause(loop):
    found = watch(loop)
    assert found.verdict == "failing"
    top = found.hypotheses[0]
    assert (top.cause, top.confidence > 0.5) == (FAULTS[loop], True), found.summary
    # A change lies where it is dated: at that step, or between two of them.
    assert top.step is not None
    since = top.since if top.since is not None else top.step - 1
    assert since < AT <= max(top.step, AT)
    assert top.step <= AT + 400
    assert "then jumped to" in found.summary or "then rose to" in found.summary
    assert "fell to 0." in found.summary  # the level before
    if loop is Rewritten:
        assert f"something that is no optimizer changed 0.weight, 3.weight and 5.weight at step {AT}" in found.summary
        assert (top.step, top.since) == (AT, None)
        assert [(place.code.strip(), place.what) for place in top.places] == [
            ("p.mul_(20.0)", "weights are written to")
        ]
        assert "Look at the line that can write to them: p.mul_(20.0)" in top.remedy.text
    if loop is Rate:
        assert f"a learning rate of 2.5 with SGD, which rose from 0.05 to 2.5 at step {AT}" in found.summary
        assert (top.step, top.since) == (AT, None)


@pytest.mark.parametrize(
    ("loop", "verdict", "said"),
    [
        pytest.param(Detached, "suspect", "a graph that is cut between 'second' and", id="Detached"),
        pytest.param(CutOff, "failing", "a loss that is cut off from the model", id="CutOff", marks=pytest.mark.slow),
    ],
)
def test_a_graph_that_is_cut_from_a_step_on_is_named_with_the_step(loop, verdict, said):
    found = watch(loop)
    assert (found.verdict, [one.cause for one in found.hypotheses]) == (verdict, ["detached_graph"]), found.summary
    top = found.hypotheses[0]
    assert said in top.sentence
    since = top.since if top.since is not None else top.step - 1
    assert since < AT <= top.step <= since + 32
    if loop is Detached:
        assert [place.what for place in top.places] == ["the graph ends"]
        assert "hidden.detach() if self.cut" in top.places[0].code


QUIET = {
    OneLabel: "labels_degenerate", OneClass: "class_imbalance", Ordered: "unshuffled_data",
    HeadReplaced: "optimizer_stale_params", PartStepped: "param_not_in_optimizer", Epsilon: "adam_epsilon",
    Clipped: "clip_too_tight", Noise: "weights_overwritten", Single: "batch_too_small", SetLow: "lr_too_low",
    Unstepped: "optimizer_step_missing", Climbs: "schedule_error", Absurd: "bad_batch", Softmax: "double_softmax",
    Shard: "unnormalised_inputs", Reloaded: "update_lost", HeadReset: "weights_overwritten", Flipped: "loss_sign_flip",
    MostlyOneClass: "class_imbalance", Sorted: "unshuffled_data", OneValue: "labels_degenerate",
}  # fmt: skip
"""Changes after which a loss may look well, with their causes."""


@pytest.mark.parametrize("loop", some(QUIET))
def test_a_change_that_hurts_is_named_with_its_step_whatever_the_loss_does(loop):
    found = watch(loop)
    assert found.verdict in {"suspect", "failing"}, found.summary
    top = found.hypotheses[0]
    assert (top.cause, top.confidence > 0.5) == (QUIET[loop], True), found.summary
    assert top.step is not None
    since = top.since if top.since is not None else top.step - 2
    assert since < AT <= top.step + 2, (top.since, top.step)
    assert top.step <= AT + 300
    if loop is Absurd:
        assert "the batch of step 811 has" in " ".join(one.statement for one in top.evidence)


@pytest.mark.parametrize(
    "loop",
    some(
        [
            Restarts,
            Smoothed,
            Thawed,
            Averaged,
            Auxiliary,
            ClippedSanely,
            AttackedAtTheEnd,
            Pruned,
            RestsAtTheEnd,
            BiasesTuned,
            Segments,
            Harder,
        ]
    ),
)
def test_a_change_that_does_no_harm_is_no_alarm(loop):
    found = watch(loop)
    assert found.verdict == "healthy", found.summary
