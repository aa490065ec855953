"""Pairs of trainings with one thing changed: the first thing said is that one, and nothing equal is listed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.compare.paired_trainings import Plan, changed, train
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.compare import compare
from neuraldbg.compare.trend import trend_of
from neuraldbg.nouns import Outcome, RunRecord
from neuraldbg.nouns.comparison import Setting
from neuraldbg.show import comparison as say


class Words(nn.Module):
    """An embedding, a recurrent layer and a head, with the options of the recurrent layer."""

    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.lstm = nn.LSTM(8, 16, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 12)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


class Pixels(nn.Module):
    """A small convolutional net, with the options of its layers."""

    def __init__(self, padding=1, ceil_mode=False, approximate="none", eps=1e-5, momentum=0.1):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=padding)
        self.norm = nn.BatchNorm2d(4, eps=eps, momentum=momentum)
        self.act = nn.GELU(approximate=approximate)
        self.pool = nn.AvgPool2d(2, ceil_mode=ceil_mode)
        self.head = nn.Linear(4, 12)

    def forward(self, x):
        return self.head(self.pool(self.act(self.norm(self.conv(x)))).mean((2, 3)))


class Attends(nn.Module):
    """A block of a transformer, with its options."""

    def __init__(self, norm_first=False, activation="relu", dropout=0.0, nhead=2):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.block = nn.TransformerEncoderLayer(
            8, nhead, 16, dropout, activation=activation, batch_first=True, norm_first=norm_first
        )
        self.head = nn.Linear(8, 12)

    def forward(self, x):
        return self.head(self.block(self.embedding(x)))


def learn(make, *, image=False, steps=4, overhead=None, **options):
    torch.manual_seed(0)
    model = make(**options)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(1)
    with NeuralDbg(model, overhead=overhead, probes=False) as dbg:
        for _ in range(steps):
            x = torch.randn(6, 1, 7, 7, generator=data) if image else torch.randint(12, (6, 5), generator=data)
            y = torch.randint(12, (6,) if image else (6, 5), generator=data)
            opt.zero_grad()
            F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            opt.step()
    return dbg.record()


@pytest.mark.parametrize(
    ("make", "layer", "name", "usual", "other"),
    [
        (Words, "lstm", "batch_first", False, True),
        (Words, "lstm", "bidirectional", False, True),
        (Words, "lstm", "num_layers", 1, 2),
        (Pixels, "conv", "padding", 1, 0),
        (Pixels, "norm", "eps", 1e-5, 1e-2),
        (Pixels, "norm", "momentum", 0.1, None),
        (Pixels, "act", "approximate", "none", "tanh"),
        (Pixels, "pool", "ceil_mode", False, True),
        (Attends, "block", "norm_first", False, True),
        (Attends, "block", "activation", "relu", "gelu"),
        (Attends, "block.dropout", "p", 0.0, 0.5),
        (Attends, "block.self_attn", "num_heads", 2, 4),
    ],
)
def test_an_option_of_a_built_in_layer(make, layer, name, usual, other):
    argument = {"p": "dropout", "num_heads": "nhead"}.get(name, name)
    one, two = (learn(make, image=make is Pixels, **{argument: value}) for value in (usual, other))
    found = compare(one, two)
    said = {(s.name, s.layer): (s.one, s.other) for s in found.settings}
    values = (f"{usual}x{usual}", f"{other}x{other}") if name == "padding" else (usual, other)
    assert said[f"layer {name}", layer] == (values[0], "None" if other is None else values[1])
    if name != "momentum":  # that of running statistics changes nothing in training
        assert found.summary.startswith("Changed: layer "), found.summary
        assert name in found.summary


def test_an_option_that_one_record_does_not_have_is_not_known():
    """An older version of NeuralDBG kept fewer options."""
    one = learn(Words)
    old = replace(one, layout=replace(one.layout, layers=tuple(
        replace(x, settings={k: v for k, v in x.settings.items() if k != "batch_first"}) for x in one.layout.layers
    )))  # fmt: skip
    assert compare(old, one).settings == ()


# ---------------------------------------------------------------- the optimizer


@pytest.fixture(scope="module")
def base():
    return train(Plan(momentum=0.9))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"lr": 0.01}, "Changed: learning rate 0.1 -> 0.01. At step 0 the update of "),
        ({"momentum": 0.0}, "Changed: optimizer momentum 0.9 -> 0. The runs are identical for 1 step; at step 1 the "),
        ({"drop_at": 7}, "Changed: learning rate 0.1 -> 0.01 from step 7, schedule milestones 10000 -> 7. "),
        ({"batch": 8}, "Changed: batch size 16 -> 8. At step 0 the input differs first (128 against 64 elements)"),
        ({"order": 9}, "At step 0 the input differs first (rms "),
        ({"seed": 5}, "At step 0 the weight 'fc1.weight' differs first ("),
        ({"scale": 2.0}, "At step 0 the loss differs first ("),
    ],
)
def test_the_changed_thing_is_said_first(base, what, said):
    found = compare(base, changed(momentum=what.pop("momentum", 0.9), **what))
    assert found.summary.startswith(said)


def test_a_frozen_layer(base):
    def freeze(model):
        model.fc1.requires_grad_(requires_grad=False)

    found = compare(base, changed(momentum=0.9, ready=freeze), names=("free", "frozen"))
    frozen = "Changed: parameters frozen none -> fc1.weight, fc1.bias. "
    assert found.summary.startswith(f"{frozen}At step 0 only free has the ")


def without_gradients(*, trained=True, decay=0.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=decay)
    with NeuralDbg(model, opt, overhead=None, probes=False) as dbg:
        for _ in range(6):
            opt.zero_grad()
            loss = F.cross_entropy(model(torch.randn(6, 4)), torch.arange(6) % 3)
            if trained:
                loss.backward()
            opt.step()
    return dbg.record()


def test_a_run_without_any_gradient_is_said_to_have_none():
    found = compare(without_gradients(), without_gradients(trained=False), names=("one", "two"))
    assert found.summary.startswith("Changed: backward passes a step 1 -> 0. ")
    assert found.first.reading == "no gradients at all in two: no backward pass reached its weights"
    assert "optimizer" not in " ".join([found.summary, *say.meanings(found.first, found)])
    assert {s.name for s in found.settings} <= {"backward passes a step", "order of the loop"}
    swapped = compare(without_gradients(trained=False), without_gradients(), names=("one", "two"))
    assert swapped.first.reading.startswith("no gradients at all in one: ")


def test_gradients_that_both_runs_have_leave_the_optimizer():
    found = compare(without_gradients(), without_gradients(decay=0.1))
    assert found.first.kind == "update"
    assert "the optimizer's settings are not" in found.first.reading


# ---------------------------------------------------------------- batches


def epochs(size, *, drop_last=False, passes=1, samples=70):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(samples, 4), torch.arange(samples) % 3)
    loader = torch.utils.data.DataLoader(data, batch_size=size, drop_last=drop_last)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, opt, overhead=None, probes=False) as dbg:
        for _ in range(2):
            for x, y in loader:
                opt.zero_grad()
                sum(F.cross_entropy(model(x), y) for _ in range(passes)).backward()
                opt.step()
    return dbg.record()


def told(found):
    return {s.name: (s.one, s.other) for s in found.settings}


def test_the_last_batch_of_an_epoch_is_no_batch_size():
    found = compare(epochs(16), epochs(16, drop_last=True), names=("all", "full"))
    assert "batch size" not in told(found)
    assert (found.first.step, found.first.kind) == (4, "input")
    assert found.first.reading.startswith(
        "the batch of this step has 6 samples in all and 16 samples in full, but 16 in most steps of both"
    )


def test_two_passes_over_a_batch_are_no_batch_of_twice_the_size():
    said = told(compare(epochs(14), epochs(14, passes=2)))
    assert said["forward passes a step"] == (1, 2)
    assert "batch size" not in said
    assert told(compare(epochs(14), epochs(7)))["batch size"] == (14, 7)


# ---------------------------------------------------------------- words


def test_nothing_equal_is_listed(base):
    others = [changed(momentum=0.9, **what) for what in ({"lr": 0.1000001}, {"batch": 8}, {"steps": 0}, {"dice": 4})]
    for other in [*others, without_gradients(), without_gradients(trained=False)]:
        found = compare(base, other)
        for setting in found.settings:
            assert setting.one != setting.other
            one, two = say.both(setting)
            assert one != two
        assert not [row for row in say.settings(found.settings) if "none -> none" in row[1]]


def test_values_that_round_alike_keep_the_digits_that_differ():
    assert say.both(Setting("learning rate", 0.1, 0.100004, 0)) == ("0.1", "0.100004")


def test_the_same_change_of_several_layers_is_one_row():
    found = [Setting("layer eps", 1e-5, 1e-3, 0, f"blocks.{k}.norm") for k in range(3)]
    assert say.settings(found) == [("layer eps (blocks.0.norm and 2 more)", "1e-5 -> 0.001", "step 0")]


def test_the_words_of_a_trend_agree_with_its_numbers():
    """A difference that rises in the first steps and then stays up has grown, whatever the median slope is."""
    rng = np.random.default_rng(0)
    steps = np.arange(60)
    noise = np.exp(0.05 * rng.normal(size=60))
    rises = np.where(steps < 5, 0.01 * 1.5**steps, 0.08) * noise
    cases = {
        "grows": rises,
        "shrinks": rises[::-1],
        "stays": 0.08 * noise,
        "varies": 0.08 * np.exp(rng.normal(size=60)),
    }
    for course, values in cases.items():
        trend = trend_of(steps, values)
        assert trend.course == course
        assert trend.low == values.min()
        assert trend.high == values.max()
    grown = trend_of(steps, rises)
    assert grown.factor == pytest.approx(1.0, abs=0.01)
    assert grown.end / grown.begin > 4
    assert trend_of(steps, np.zeros(60)).course == "stays"


def test_no_sentence_calls_a_growth_a_stay(base):
    for what in ({"lr": 0.05}, {"order": 9}, {"seed": 5}, {"dice": 4}):
        found = compare(base, changed(momentum=0.9, **what))
        if found.overall is not None and found.overall.course == "stays":
            assert found.overall.end < 1.5 * found.overall.begin
        said = " ".join([found.summary, *say.meanings(found.first, found)] if found.first else [found.summary])
        assert "factor of" not in said


def test_other_settings_with_the_same_numbers():
    clipped = replace(without_gradients(), facts=without_gradients().facts)
    found = compare(clipped, replace(clipped, info=replace(clipped.info, seed=7)))
    assert found.verdict == "identical"
    assert "though the settings differ (seed " in found.summary
    assert compare(RunRecord(), RunRecord()).settings == ()


# ---------------------------------------------------------------- runs that are hardly alike


def test_different_models_are_called_that_and_no_setting_is_made_the_reason():
    found = compare(learn(Words), without_gradients(), names=("words", "numbers"))
    assert found.summary.startswith("The models are different: 0 of 3 and 3 layers match. At step 0 the loss differs ")
    assert "Changed" not in found.summary
    assert "equal" not in found.first.reading


def test_a_run_without_steps_has_no_layers_that_could_be_missing(base):
    found = compare(base, changed(steps=0), names=("done", "begun"))
    assert found.verdict == "incomparable"
    assert found.summary == "Nothing can be compared: begun has no recorded step."
    assert found.only == ((), ())


def test_a_run_that_has_not_ended_is_said_to_go_on(base):
    going = replace(base, info=replace(base.info, outcome=Outcome("running")))
    found = compare(base, going, names=("done", "going"))
    assert found.verdict == "identical"
    assert found.notes[0] == "going had not ended when it was read: it is still going on, or it was killed"
