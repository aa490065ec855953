"""Trainings with one known change: the first difference must be where that change first shows."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.compare.paired_trainings import STEPS, Net, Plan, changed, train
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.compare import compare
from neuraldbg.nouns import column
from neuraldbg.show.comparison import meanings


@pytest.fixture(scope="module")
def base():
    return train(Plan())


def first(base, **what):
    found = compare(base, changed(**what))
    assert found.verdict == "diverged"
    assert found.first is not None
    return found


def steps_of(found):
    return {kind.kind: kind.first for kind in found.kinds}


def test_the_same_training_twice_is_identical(base):
    found = compare(base, train(Plan()))
    assert (found.verdict, found.first, found.earliest, found.settings, found.health) == (
        "identical",
        None,
        None,
        (),
        (),
    )
    assert found.compared.read == found.compared.scalars == STEPS
    assert found.compared.sites == len(base.layout.sites)
    assert found.compared.share == 1.0
    assert all(kind.largest == 0 and kind.first is None for kind in found.kinds)
    assert f"{len(base.layout.sites)} sites over {STEPS} steps" in found.summary


def test_another_order_of_the_data_is_told_from_another_computation(base):
    found = first(base, order=9)
    assert (found.first.step, found.first.kind, found.first.since) == (0, "input", None)
    assert "other data" in found.first.reading
    assert "weights differ in the same step" not in found.first.reading
    assert steps_of(found)["param"] == 1  # the weights began equal


def test_a_learning_rate_changed_by_a_scheduler_shows_in_the_update_of_that_step(base):
    found = first(base, drop_at=7)
    assert (found.first.step, found.first.kind, found.first.since) == (7, "update", 6)
    assert found.first.layer == "fc1"
    assert found.first.one == pytest.approx(10 * found.first.other, rel=1e-3)
    assert found.first.relative == pytest.approx(0.9, abs=1e-3)
    (setting,) = [s for s in found.settings if s.name == "learning rate"]
    assert (setting.one, setting.other, setting.step) == (0.1, pytest.approx(0.01), 7)
    assert found.settings[0] == setting
    assert steps_of(found) == {
        "input": None, "param": 8, "activation": 8, "output_grad": 8, "param_grad": 8, "update": 7, "loss": 8,
    }  # fmt: skip
    assert "identical for 7 steps" in found.summary
    assert "at step 7 the update of 'fc1." in found.summary


def test_another_initialisation_of_one_layer_shows_in_its_weights(base):
    found = first(base, ready=lambda model: nn.init.normal_(model.fc2.weight, std=0.3))
    assert (found.first.step, found.first.kind, found.first.site) == (0, "param", "fc2.weight")
    assert "initialisation" in found.first.reading
    layers = {span.layer: span.first for span in found.layers}
    assert layers["fc2"] == 0
    assert layers["(input)"] is None
    rows = base.layout.rows("param", "fc2", "weight")
    weight = Net()  # an oracle apart from the tables: the statistics of the tensors themselves
    torch.manual_seed(0)
    weight = Net().fc2.weight.detach().double()
    assert found.first.one == pytest.approx(float(weight.square().mean().sqrt()), rel=1e-6)
    assert found.first.one == base.history.row(0)[rows[0], column("rms")]


class Buggy(Net):
    """From its sixth call on the middle layer's output is a tenth too large."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        hidden = self.drop(self.act(self.fc1(x)))
        if self.calls > 5:
            hidden = 1.1 * hidden
        return self.head(F.relu(self.fc2(hidden)))


def test_a_bug_in_the_middle_of_the_forward_pass_shows_in_the_layer_behind_it(base):
    found = first(base, make=Buggy, settings={"capture": {"probes": False}})
    assert (found.first.step, found.first.kind, found.first.layer, found.first.since) == (5, "activation", "fc2", 4)
    assert "computes something else" in found.first.reading
    assert found.first.also > 5
    spans = {span.layer: span.first for span in found.layers}
    assert (spans["fc2"], spans["head"]) == (5, 5)
    told = [s for s in found.settings if s.name != "layer" and not s.name.startswith("line")]
    assert [s.name for s in told if not s.name.startswith("code of ")] == []
    assert any("forward" in s.name for s in told)  # it is the code that was changed


def test_labels_changed_at_one_step_show_in_the_loss(base):
    def target(y, step):
        return (y + 1) % 3 if step == 4 else y

    found = first(base, target=target)
    assert (found.first.step, found.first.kind, found.first.since) == (4, "loss", 3)
    assert "targets" in found.first.reading
    assert found.losses[0].parts == 4


def test_weights_changed_between_steps_are_no_update(base):
    def nudge(model, step):
        if step == 6:
            with torch.no_grad():
                model.fc2.weight *= 1.5

    found = first(base, before=nudge)
    assert (found.first.step, found.first.kind, found.first.site) == (6, "param", "fc2.weight")
    assert found.first.one * 1.5 == pytest.approx(found.first.other, rel=1e-5)
    assert "no update" in found.first.reading


def test_another_scale_of_the_loss_shows_in_the_loss_and_not_before(base):
    found = first(base, scale=2.0)
    assert (found.first.step, found.first.kind) == (0, "loss")
    assert found.first.relative == pytest.approx(0.5)


def test_momentum_shows_in_the_second_update(base):
    found = first(base, momentum=0.9)
    assert (found.first.step, found.first.kind) == (1, "update")
    assert "optimizer" in found.first.reading
    assert ("optimizer momentum", 0, 0.9, 0) in [(s.name, s.one, s.other, s.step) for s in found.settings]


def test_another_seed_of_dropout_shows_in_the_dropout():
    one, other = (train(Plan(make=lambda: Net(0.5), dice=dice)) for dice in (2, 5))
    found = compare(one, other)
    assert (found.first.step, found.first.kind, found.first.layer) == (0, "activation", "drop")
    assert "random numbers" in found.first.reading


def test_another_batch_size_is_told_as_such(base):
    found = first(base, batch=8)
    assert (found.first.step, found.first.kind, found.first.stat) == (0, "input", "total")
    assert (found.first.one, found.first.other) == (16 * 8, 8 * 8)
    assert ("batch size", 16, 8) in [(s.name, s.one, s.other) for s in found.settings]


def test_another_activation_function_at_the_same_place(base):
    class Other(Net):
        def __init__(self):
            super().__init__()
            self.act = nn.Sigmoid()

    found = first(base, make=Other)
    assert (found.first.step, found.first.kind, found.first.layer) == (0, "activation", "act")
    assert [(p.one, p.how, p.types) for p in found.paired if p.one] == [("act", "type", ("Tanh", "Sigmoid"))]
    assert ("layer", "Tanh", "Sigmoid", "act") in [(s.name, s.one, s.other, s.layer) for s in found.settings]


# ---------------------------------------------------------------- precision


def test_bfloat16_against_float32_is_within_what_bfloat16_rounds(base):
    found = compare(base, changed(autocast=True))
    assert found.tolerance.rtol == 1.6e-2
    assert "bfloat16" in found.tolerance.source
    origin = found.earliest or found.first
    assert (origin.step, origin.kind, origin.layer) == (0, "activation", "fc1")
    assert 1e-4 < origin.relative < 2**-7  # a unit in the last place of bfloat16
    assert "float32 against bfloat16" in origin.reading
    assert ("autocast", "off", "bfloat16") in [(s.name, s.one, s.other) for s in found.settings]


def test_the_tolerance_can_be_given(base):
    other = changed(autocast=True)
    strict, loose = compare(base, other, rtol=1e-6), compare(base, other, rtol=0.5)
    assert strict.verdict == "diverged"
    assert (strict.first.step, strict.first.layer) == (0, "fc1")
    assert strict.earliest is None
    assert loose.verdict == "close"
    assert loose.first is None
    assert loose.earliest.layer == "fc1"
    assert compare(base, other, rtol=0.0, atol=1e9).verdict == "close"


def test_float64_against_float32(base):
    found = compare(base, changed(wide=True))
    origin = found.earliest or found.first
    assert origin.relative < 1e-5
    assert {s.name for s in found.settings} >= {"dtype of parameters", "input dtype"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_eager_against_compiled(base, backend, fresh_compiler):
    found = compare(base, changed(compiled=backend))
    assert found.verdict == "identical"
    assert [(s.name, s.one, s.other) for s in found.settings if not s.name.startswith("line")] == [
        ("compiled", False, True)
    ]


def test_gradients_of_eager_runs_are_compared_where_their_dtype_was_not_noted():
    """Older files lack dtypes that were known late: that alone is no sign of a compiled graph."""
    wide = train(Plan(make=lambda: Wide(16)))
    sites = [replace(site, dtype="") if site.kind == "output_grad" else site for site in wide.layout.sites]
    older = replace(wide, layout=replace(wide.layout, sites=tuple(sites)))
    found = compare(wide, older)
    assert found.verdict == "identical"
    assert found.compared.sites == len(sites)
    assert 0 < found.compared.share < 1, "some tensors are large enough to be sampled"
    assert not any("other places" in note for note in found.notes)


def test_the_percentage_follows_from_the_numbers_that_are_shown(base):
    for what in ({"scale": 0.5}, {"seed": 9}, {"order": 9}, {"lr": 0.2}):
        found = first(base, **what)
        shown = re.search(r"([-\d.e]+) against ([-\d.e]+), ([\d.]+)% of the larger", found.summary)
        one, other, share = map(float, shown.groups())
        assert share == pytest.approx(100 * abs(one - other) / max(abs(one), abs(other)), rel=0.02)


# ---------------------------------------------------------------- growth


class Wide(nn.Module):
    """Layers whose outputs are read in part."""

    def __init__(self, times):
        super().__init__()
        self.fc, self.head = nn.Linear(8, 64 * times), nn.Linear(64 * times, 3)

    def forward(self, x):
        return self.head(self.fc(x).tanh())


class Slope(nn.Module):
    """One weight w with the loss (w - 1)**2: a step multiplies w - 1 by 1 - 2 lr."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.line(x)


def descend(start, lr, steps=20):
    model = Slope()
    nn.init.constant_(model.line.weight, start)
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model, overhead=None, probes=False) as dbg:
        for _ in range(steps):
            opt.zero_grad()
            F.mse_loss(model(torch.ones(4, 1)), torch.ones(4, 1)).backward()
            opt.step()
    return dbg.record()


@pytest.mark.parametrize(("lr", "course", "factor"), [(1.1, "grows", 1.2), (0.1, "shrinks", 0.8), (1.0, "stays", 1.0)])
def test_the_trend_is_that_of_a_training_whose_course_is_known(lr, course, factor):
    found = compare(descend(1.0, lr), descend(1.01, lr))
    assert (found.first.step, found.first.site) == (0, "line.weight")
    assert found.trend.course == course
    assert found.trend.factor == pytest.approx(factor, rel=0.01)
    assert (found.trend.first, found.trend.last, found.trend.readings) == (0, 19, 20)
    assert found.trend.begin == pytest.approx(0.01 * factor, rel=0.05)  # the second of the first three
    assert f"{course}" in found.summary


def test_a_difference_that_goes_up_and_down_varies(base):
    found = compare(changed(order=9, lr=1e-6), changed(order=10, lr=1e-6))
    assert (found.first.kind, found.trend.course) == ("input", "varies")
    assert f"the difference varies between {100 * found.trend.low:.3g}% and " in found.summary
    assert found.trend.readings == STEPS


# ---------------------------------------------------------------- not finite


def test_nan_in_one_run_is_a_divergence(base):
    def poison(model, step):
        if step == 9:
            with torch.no_grad():
                model.fc2.bias[0] = math.nan

    one = changed(before=poison)
    found = compare(base, one)
    assert (found.first.step, found.first.kind, found.first.site) == (9, "param", "fc2.bias")
    assert (found.first.stat, found.first.one, found.first.other) == ("nonfinite", 0, 1)
    assert math.isinf(found.first.relative)
    assert found.to_dict()["first"]["relative"] == "Infinity"
    assert np.isinf(found.drift.values).any()
    again = compare(one, changed(before=poison))
    assert again.verdict == "identical"


# ---------------------------------------------------------------- samples


class Image(nn.Module):
    """Inputs, outputs and a weight of more than 4,096 elements, of which so many are read."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.head(hidden.mean((2, 3)))


def see(layout=torch.contiguous_format, gain=1.0, lr=0.01):
    torch.manual_seed(0)
    model = Image().to(memory_format=layout)
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model, overhead=None, probes=False) as dbg:
        for _ in range(4):
            x = torch.randn(32, 3, 8, 8).to(memory_format=layout)
            opt.zero_grad()
            (F.cross_entropy(model(gain * x), torch.arange(32) % 3)).backward()
            opt.step()
    return dbg.record()


def test_samples_of_another_memory_format_are_no_difference():
    """The blocks that are read lie at other places of the image; what is read as a whole tells that nothing differs."""
    one, other = see(), see(torch.channels_last)
    rows = [run.layout.rows("activation", "conv1")[0] for run in (one, other)]
    rms = [run.history.row(0)[row][column("rms")] for run, row in zip((one, other), rows, strict=True)]
    assert abs(rms[0] - rms[1]) > 1e-3 * rms[0], "the samples must differ for the test to mean something"
    found = compare(one, other, rtol=1e-4)
    assert found.verdict in ("identical", "close")
    assert any("the samples seem to be of other places" in note for note in found.notes)
    assert compare(see(), see()).compared.sites == len(one.layout.sites)


def test_a_difference_that_samples_show_is_not_taken_for_another_memory_format():
    found = compare(see(), see(gain=1.01), rtol=1e-4)
    assert (found.first.kind, found.first.relative) == ("input", pytest.approx(1 - 1 / 1.01, rel=1e-3))
    assert not any("memory format" in note for note in found.notes)
    found = compare(see(), see(lr=0.02))
    assert (found.first.kind, found.first.relative) == ("update", pytest.approx(0.5, rel=1e-3))
    assert not any("memory format" in note for note in found.notes)


def test_a_run_that_becomes_nan_is_said_to_and_no_number_stands_for_it(base):
    def poison(model, step):
        if step == 7:
            with torch.no_grad():
                model.fc1.weight.fill_(torch.nan)

    def judged(*runs):
        return compare(*runs, names=("fine", "lost") if runs[0] is base else ("lost", "fine"))

    lost = changed(lr=0.11, before=poison)
    for found, who in ((judged(base, lost), 1), (judged(lost, base), 0)):
        for trend in (found.trend, found.overall):
            assert (trend.course, trend.broke, trend.broken) == ("grows", 7, who)
            assert 0 < trend.begin < 2
            assert 0 < trend.end < 2
            assert 0.2 < trend.factor < 5
        assert "the difference grows: lost becomes NaN or infinite at step 7" in found.summary
        said = meanings(found.first, found)[-1]
        assert "it grows: in half of them or more lost becomes NaN or infinite at step 7" in said
        assert "000,000" not in said + found.summary


def test_a_run_that_is_nan_from_the_first_difference_on_has_no_number_either(base):
    def poison(model, step):
        if step == 7:
            with torch.no_grad():
                model.fc1.weight.fill_(torch.nan)

    found = compare(base, changed(before=poison))
    assert (found.first.step, found.trend.broke, found.trend.begin, found.trend.end) == (7, None, math.inf, math.inf)
    assert found.trend.factor == 1.0
    assert found.summary.endswith("differs first (0 against 128 NaN or infinite elements).")  # nothing of a course
    assert "1,000,000" not in " ".join(meanings(found.first, found))


class Attention(nn.Module):
    """Calls a layer whose projection is never called as a layer: it has no dtype, as if it had been compiled."""

    def __init__(self):
        super().__init__()
        self.fc1, self.attn, self.head = nn.Linear(8, 16), nn.MultiheadAttention(16, 2), nn.Linear(16, 3)

    def forward(self, x):
        h = self.fc1(x)
        return self.head(self.attn(h, h, h)[0])


def test_what_was_never_seen_to_be_compiled_is_no_difference(base):
    attention, nothing = train(Plan(make=Attention)), train(Plan(steps=0))
    assert any(s.kind == "activation" and not s.dtype for s in attention.layout.sites)
    for pair in ((base, attention), (attention, base), (base, nothing), (nothing, attention)):
        assert "compiled" not in {setting.name for setting in compare(*pair).settings}
