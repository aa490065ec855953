"""Readings that only one run has, groups added to an optimizer, and lines that moved: what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.compare.paired_trainings import changed
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.capture.statistics import operation
from neuraldbg.compare import compare
from neuraldbg.compare.code_lines import changes
from neuraldbg.compare.measure import rounded
from neuraldbg.nouns import column
from neuraldbg.nouns.accumulators import derived
from neuraldbg.nouns.comparison import KindSpan, LossPair
from neuraldbg.show import comparison as say

UNFREEZE = 6
FACTS = 8
"""The next step at which the settings of an optimizer are read."""


def finetuned(*, group: bool):
    """Train the head, then the whole model; without ``group`` its body is thawed but in no optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model[0].requires_grad_(requires_grad=False)
    opt = torch.optim.Adam(model[2].parameters(), lr=1e-2)
    with NeuralDbg(model, opt, overhead=None, probes=False) as dbg:
        for step in range(12):
            if step == UNFREEZE:
                model[0].requires_grad_(requires_grad=True)
                if group:
                    opt.add_param_group({"params": list(model[0].parameters()), "lr": 2e-3})
            opt.zero_grad()
            F.cross_entropy(model(torch.randn(6, 4)), torch.arange(6) % 3).backward()
            opt.step()
    return dbg.record()


@pytest.fixture(scope="module")
def unlike():
    return compare(finetuned(group=False), finetuned(group=True), names=("without", "with"))


def test_a_weight_that_only_one_optimizer_holds_is_in_both_runs(unlike):
    assert unlike.first.stat != "count"
    assert " only with has " not in f" {unlike.summary} "
    kinds = {kind.kind: kind for kind in unlike.kinds}
    assert kinds["param"].largest < 0.5
    assert kinds["param_grad"].largest < 1


def test_an_added_group_of_the_optimizer_is_listed_with_its_learning_rate(unlike):
    told = {s.name: s for s in unlike.settings}
    groups = told["optimizer groups"]
    assert (groups.one, groups.other) == (1, 2)
    assert UNFREEZE <= groups.step <= FACTS
    rate = told["optimizer lr (group 1)"]
    assert (rate.one, rate.other, rate.step) == ("none", 2e-3, groups.step)


def test_a_row_says_up_to_which_step_it_was_compared():
    part = KindSpan("activation", 14, 0, None, 0.0, 72, (0, 129))
    assert say.kind_row(part, 237)[1] == "identical (read in steps 0 to 129)"
    assert say.kind_row(part, 72)[1] == "identical"


def test_losses_that_differ_from_the_first_step_on_but_meet_are_counted():
    pair = LossPair(0, (637.0, 0.02), (0.02, 0.01), (87.0, 0.5), 0, 388, 0, 353, 400)
    assert say.apart(pair) == "they differ by more than 10% in 353 of 400 steps, first at step 0"
    once = LossPair(0, (1.0, 0.02), (0.02, 0.01), (87.0, 0.5), 0, 7, 7, 393, 400)
    assert say.apart(once) == "they differ by more than 10% from step 7 on"


LOOP = ["for x in data:", "    opt.step()", "    sched.step()", "    tot += loss.item()"]


def test_a_line_that_left_the_loop_is_the_only_change():
    found = changes(LOOP, [*LOOP[:2], LOOP[3], "sched.step()"])
    assert found == [(["sched.step() (after opt.step())"], ["sched.step() (after tot += loss.item())"])]


def test_another_indentation_alone_is_a_change():
    found = changes(LOOP, [*LOOP[:3], "tot += loss.item()"])
    assert found == [(["tot += loss.item() (indented by 4)"], ["tot += loss.item() (indented by 0)"])]


def test_lines_that_a_new_block_holds_are_no_changes():
    inside = [LOOP[0], "    with autocast():", *(f"    {line}" for line in LOOP[1:])]
    assert changes(LOOP, inside) == [([], ["with autocast():"])]
    assert changes([line.strip() for line in LOOP], LOOP) == []  # of an older version


def test_one_element_has_no_standard_deviation():
    raw = operation.BLANK.copy()[None]
    x = float(np.float32(0.3))
    raw[0, [operation.COUNT, operation.TOTAL]] = 1
    raw[0, operation.SUM], raw[0, operation.SQUARES] = x, x * x + 1e-11
    raw[0, [operation.MIN, operation.MAX]] = x
    assert derived(raw)[0, column("std")] == 0


def test_the_rounding_of_a_mean_square_is_no_difference():
    size = np.array([0.3])
    assert rounded(np.array([5.277e-6]), np.array([0.0]), size, 1.3e-6).all()
    assert not rounded(np.array([0.3]), np.array([0.3001]), size, 1.3e-6).any()


@pytest.mark.parametrize("profiles", [(False, True), (True, True), (None, False)])
def test_times_and_memory_of_this_moment_are_no_difference(profiles):
    runs = [changed(profile=profile) for profile in profiles]
    assert any(fact.key == "timing" for run in runs for fact in run.facts)
    comparison = compare(*runs)
    assert comparison.verdict == "identical"
    assert comparison.settings == ()
    assert comparison.first is None
