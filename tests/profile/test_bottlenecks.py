"""Bottlenecks from facts that were made by hand: what is told, with which number and remedy, and when nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.explain.run_builder import Build

from neuraldbg.nouns import Fact, RunRecord
from neuraldbg.nouns.json import jsonable
from neuraldbg.profile import FINDERS, profile

PLAIN = {
    "steps": 5,
    "first": 2,
    "last": 40,
    "clock": "cpu",
    "step_s": 0.1,
    "data_s": 0.0,
    "forward_s": 0.03,
    "backward_s": 0.06,
    "optimizer_s": 0.005,
    "evaluation_s": 0.0,
    "other_s": 0.005,
    "usual_s": 0.1,
    "flops": 1e9,
    "machine_flops": 2e10,
    "workers": 2,
    "cores": 8,
    "threads": 2,
}


def layer(path: str, own_s: float, flops: float, calls: int = 1) -> dict[str, Any]:
    times = {"forward_s": own_s / 3, "own_forward_s": own_s / 3, "backward_s": own_s * 2 / 3}
    work = {"flops": flops / 3, "backward_flops": flops * 2 / 3}
    return {"layer": path, "calls": calls, **times, "own_backward_s": own_s * 2 / 3, **work}


BALANCED = [layer("a", 0.03, 3e8), layer("b", 0.03, 3e8), layer("c", 0.03, 4e8)]


def run_with(
    optimizer: str = "Adam",
    layers: list[dict[str, Any]] | None = None,
    groups: list[dict[str, Any]] | None = None,
    **changed: Any,
) -> RunRecord:
    timing = {**PLAIN, **changed, "layers": BALANCED if layers is None else layers}
    facts = (
        Fact(
            1, "optimizer", {"stream": 0, "type": optimizer, "owned": 2, "foreign_no_grad": 0, "groups": groups or []}
        ),
        Fact(3, "timing", {**timing, "step_s": 1.0}),
        Fact(5, "timing", timing),
    )
    return replace(Build().build(), facts=facts)


def told(**how: Any) -> dict[str, tuple[str, str]]:
    return {one.kind: (one.text, one.remedy) for one in profile(run_with(**how)).bottlenecks}


def test_a_balanced_run_has_none() -> None:
    assert told() == {}


def test_data_loading_names_the_workers_that_keep_up_and_fit() -> None:
    text, remedy = told(data_s=0.037, other_s=0.0, forward_s=0.02, backward_s=0.038, workers=0)["data_loading"]
    assert text == "37% of the step, 37 ms, waits for the data loader (num_workers=0)"
    assert remedy == "DataLoader(..., num_workers=1, persistent_workers=True)"
    # With one worker a batch takes the whole step, 100 ms, against 20 ms of work: 1.25 times five are needed.
    few = {"data_s": 0.08, "forward_s": 0.01, "backward_s": 0.005, "other_s": 0.0, "workers": 1}
    assert told(**few, clock="cuda")["data_loading"][1] == (
        "DataLoader(..., num_workers=7, persistent_workers=True, pin_memory=True)"
    )
    text, remedy = told(**few, cores=4)["data_loading"]
    assert remedy.startswith(
        "DataLoader(..., num_workers=2, persistent_workers=True); 7 would be needed, and do not fit"
    )
    assert told(**few, cores=2)["data_loading"][1].startswith("More workers do not fit beside the training (2 cores)")
    assert "data_loading" not in told(data_s=0.009)
    assert "data_loading" not in told(data_s=None)


def test_batches_that_are_made_faster_than_handed_over_need_no_workers() -> None:
    short = {"step_s": 0.0024, "usual_s": 0.0024, "data_s": 0.001056, "forward_s": 0.0006, "backward_s": 0.0006}
    text, remedy = told(**short, optimizer_s=0.0001, other_s=0.00004, layers=[], workers=0)["data_loading"]
    assert text == "44% of the step, 1.06 ms, waits for the data loader (num_workers=0)"
    assert "torch.randperm" in remedy
    assert "num_workers=" not in remedy
    _, remedy = told(**short, optimizer_s=0.0001, other_s=0.00004, layers=[], workers=2)["data_loading"]
    assert "num_workers=0 may be faster" in remedy
    # The same share of a longer step is worth a worker.
    _, remedy = told(data_s=0.044, forward_s=0.02, backward_s=0.026, workers=0)["data_loading"]
    assert remedy.startswith("DataLoader(..., num_workers=")


def test_batches_of_gradient_accumulation_are_judged_one_by_one() -> None:
    """Sixteen batches of 0.3 ms are no batch of 4.8 ms: a worker would take longer to hand each over."""
    many = {"step_s": 0.02, "usual_s": 0.02, "data_s": 0.0048, "forward_s": 0.005, "backward_s": 0.01, "other_s": 0.0}
    text, remedy = told(**many, optimizer_s=0.0002, layers=[], workers=0, batches=16)["data_loading"]
    assert text == "24% of the step, 4.8 ms, in 16 batches, waits for the data loader (num_workers=0)"
    assert "torch.randperm" in remedy
    assert "num_workers=" not in remedy
    # Four of 9.25 ms are worth a worker, which makes all four while 63 ms are computed.
    slow = {"data_s": 0.037, "other_s": 0.0, "forward_s": 0.02, "backward_s": 0.038, "workers": 0}
    assert told(**slow, batches=4)["data_loading"][1] == told(**slow)["data_loading"][1]
    assert "make a batch cheaper than 9.25 ms" in told(**slow, batches=4, cores=2)["data_loading"][1]


def test_a_layer_that_takes_more_time_than_its_share_of_the_operations() -> None:
    text, remedy = told(layers=[layer("attn.loop", 0.046, 3e7, calls=64), layer("fc", 0.044, 97e7)])["one_layer"]
    assert text == "'attn.loop' takes 46% of the step and does 3% of the operations, in 64 calls"
    assert remedy == "Call it once with all inputs stacked, instead of once for each."
    text, remedy = told(layers=[layer("embed", 0.05, 0), layer("fc", 0.04, 1e9)])["one_layer"]
    assert text == "'embed' takes 50% of the step and does next to none of the operations"
    assert "loops in Python" in remedy
    assert "one_layer" not in told(layers=[layer("fc1", 0.08, 9e8), layer("fc2", 0.01, 1e8)])
    assert "one_layer" not in told(layers=[layer("a", 0.08, 0), layer("b", 0.01, 0)])  # nothing was counted


def test_an_optimizer_that_is_fused_is_not_told_to_be() -> None:
    costly = {"optimizer_s": 0.05, "forward_s": 0.015, "backward_s": 0.03}
    assert told(**costly)["optimizer"][1].startswith("torch.optim.Adam(..., fused=True); or give more samples")
    assert told(**costly, groups=[{"params": 2, "fused": True}])["optimizer"][1].startswith("Give more samples")
    assert "foreach=True" in told(optimizer="RMSprop", **costly)["optimizer"][1]
    assert "foreach" not in told(optimizer="RMSprop", **costly, groups=[{"params": 2, "foreach": True}])["optimizer"][1]
    assert "foreach" not in told(optimizer="RMSprop", **costly, clock="cuda")["optimizer"][1], (
        "torch takes it by itself there"
    )


def test_small_operations_are_told_by_rate_and_length() -> None:
    layers = [layer(f"l{i}", 9e-5, 1e5) for i in range(10)]
    few = {"forward_s": 4e-4, "backward_s": 5e-4, "step_s": 1e-3, "optimizer_s": 1e-4, "other_s": 0.0}
    text, remedy = told(layers=layers, **few, flops=1e6)["many_small_layers"]
    assert text == (
        "Forward and backward passes reach 1.11 GFLOP/s, 6% of the 20 GFLOP/s of a large matrix product here: 10 calls "
        "of layers take 90 us each"
    )
    assert "batch_size" in remedy
    assert "many_small_layers" not in told(layers=layers, **few, flops=5e6)  # fast enough
    assert "many_small_layers" not in told(flops=1e6)  # slow, but not by the number of calls
    assert "many_small_layers" not in told(layers=layers, **few, flops=1e6, machine_flops=None)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("AdamW", "torch.optim.AdamW(..., fused=True)"),
        ("RMSprop", "torch.optim.RMSprop(..., foreach=True)"),
        ("Lion", "Give more"),
    ],
)
def test_the_optimizer(kind: str, code: str) -> None:
    text, remedy = told(optimizer=kind, optimizer_s=0.031, forward_s=0.01)["optimizer"]
    assert text == f"31% of the step is the optimizer ({kind})"
    assert remedy.startswith(code)


def test_the_rest_of_the_step() -> None:
    text, remedy = told(other_s=0.023)["outside"]
    assert text.startswith("23% of the step is neither data loader, nor model, nor optimizer: the loss function")
    assert "making of batches" not in text
    assert ".item()" not in remedy
    text, remedy = told(other_s=0.023, data_s=None, clock="cuda")["outside"]
    assert "the making of batches" in text
    assert ".item()" in remedy


def with_passes(took: Any, **scalars: Any) -> tuple[list[Any], int]:
    """Return the bottlenecks of evaluation of a run whose steps took so long and had such passes, and its steps."""
    run = run_with()
    history = replace(run.history, scalars={"duration": took, **scalars})
    found = profile(replace(run, history=history)).bottlenecks
    return [one for one in found if one.kind == "evaluation"], len(run.history)


def test_evaluations_are_told_from_the_steps_that_have_them() -> None:
    count = len(run_with().history)
    took, evals = np.full(count, 0.1), np.zeros(count)
    evals[9:40:10], took[9:40:10] = 5, 1.1
    in_eval_mode = np.where(evals > 0, evals, np.nan)
    found, _ = with_passes(took, evals=evals, eval_passes=in_eval_mode)
    share = 4 * 1.0 / (0.1 * (count - 5) + 4 * 1.1)  # the first step is left out
    assert found[0].share == pytest.approx(share, rel=1e-6)
    assert found[0].text == (
        f"{share:.0%} of the time of the steps that were read in full is evaluation: 4 of {count - 1} have one before "
        "them, of 1 s on average"
    )
    # A model without dropout and batch norm needs no eval mode: then the loss tells.
    assert with_passes(took, evals=evals, eval_loss=np.where(evals > 0, 0.7, np.nan))[0] == found
    # What we take is no evaluation, and a step of which no passes are known is compared with none.
    assert not with_passes(took, evals=evals, eval_passes=in_eval_mode, overhead=np.where(evals > 0, 1.0, 0.0))[0]
    few = np.where(np.arange(count) % 10 == 9, evals, np.nan)
    assert not with_passes(took, evals=few, eval_passes=in_eval_mode)[0]


def test_passes_without_gradients_that_the_algorithm_needs_are_no_evaluation() -> None:
    count = len(run_with().history)
    took, evals = np.full(count, 0.1), np.ones(count)
    took[::3] = 1.1
    assert not with_passes(took, evals=evals)[0]  # fake samples for a critic, in training mode
    assert not with_passes(took, evals=evals, eval_passes=evals)[0]  # a teacher in eval mode, in each step
    rollouts = np.where(np.arange(count) % 16 == 5, 17.0, 0.0)
    assert not with_passes(np.where(rollouts > 0, 2.0, 0.1), evals=rollouts)[0]  # a policy acts, then many updates


def test_the_largest_share_comes_first_and_all_of_it_is_json_text_and_html() -> None:
    found = profile(run_with(data_s=0.2, step_s=1.0, usual_s=1.0, other_s=0.5, optimizer_s=0.3))
    assert [one.kind for one in found.bottlenecks] == ["outside", "optimizer", "data_loading"]
    assert "outside, optimizer, data_loading" in repr(found)
    assert all(one.text in str(found) for one in found.bottlenecks)
    plain = json.loads(found.to_json())
    assert plain["schema"] == "neuraldbg.profile/1"
    assert plain["timing"]["layers"] == jsonable(found.timing.layers)
    assert found._repr_html_().count("<tr>") == 4
    assert [name for name, _, _ in found.parts()] == ["data", "forward", "backward", "optimizer", "other"]


def test_what_was_not_measured_is_said() -> None:
    empty = profile(replace(run_with(), facts=()))
    assert empty.timing is None
    assert empty.notes == (
        "No step was timed: the run was made without a profile, or no optimizer of torch stepped its model.",
    )
    assert "no step was timed" in repr(empty)
    notes = " ".join(profile(run_with(flops=None, usual_s=0.05, data_s=None, backward_split=False)).notes)
    for said in ("not split", "not counted", "2.0 times as long", "No data loader"):
        assert said in notes
    assert profile(run_with()).notes == ()


def test_shares_are_not_told_of_sampled_steps_that_were_no_ordinary_ones() -> None:
    slow = {"data_s": 0.5, "other_s": 0.3, "step_s": 0.92, "usual_s": 0.1}
    for changed, said in (
        (slow, "A sampled step took 9.2 times as long as others: the shares"),
        ({**PLAIN, "other_s": 0.05, "steps": 1}, "Only one step was sampled: the shares"),
    ):
        found = profile(run_with(**{**changed, "machine_flops": None}))
        assert found.bottlenecks == ()
        assert list(found.parts()) == []
        assert found.notes[0].startswith(said)
        assert "neuraldbg run --profile" in found.notes[0]
        assert str(found).splitlines()[1] == found.notes[0]
    asked = profile(run_with(**slow))
    assert "longer run" in asked.notes[0]
    slower = profile(run_with(**{**slow, "usual_s": 0.5}))
    assert slower.notes[0].startswith("A sampled step took 1.8 times as long as others: shares of the smallest")
    assert [one.kind for one in slower.bottlenecks] == ["data_loading", "outside"]
    assert "500 ms a step" in repr(slower)


def test_finders_are_sorted_by_name() -> None:
    names = [finder.__module__ for finder in FINDERS]
    assert names == sorted(names)
