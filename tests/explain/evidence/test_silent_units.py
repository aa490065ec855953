"""Dead units as evidence: their share, the rows in which they were silent, and since when."""

from __future__ import annotations

from tests.explain.run_builder import Build, flat

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.silent_units import dead_units


def act2(b: Build):
    case = Case(b.build())
    (row,) = [r for r in case.layout.rows("activation") if case.layout.sites[r].module == "act2"]
    return dead_units(case, row)


def silent(b: Build, dead: float, at: slice, since: int, rows: float) -> Build:
    for stat, value in {"dead": dead, "dead_since": since, "dead_rows": rows}.items():
        b.stat("activation", "act2", stat, value, at)
    return b


def test_silence_begins_where_the_units_fired_last():
    found = act2(silent(Build(), 48, slice(40, None), 17, 1280))
    assert float(found.share[-1]) == 0.75
    assert found.since(len(found) - 1) == 17
    assert found.since(0) == 0  # nothing is dead there


def test_steps_at_which_dead_units_are_unknown_are_left_out():
    found = act2(Build().stat("activation", "act2", "units", 0, slice(0, 19)))
    assert found.steps.tolist() == list(range(19, 60))


def test_a_layer_that_is_zero_as_a_whole_is_dead_before_enough_rows_were_read():
    b = Build().stat("activation", "act2", "units", 0)
    b.stat("activation", "act2", "zeros", 1 << 30, slice(12, None))
    found = act2(b)
    assert found.steps.tolist() == list(range(12, 60))
    assert set(found.share.tolist()) == {1.0}
    assert found.since(len(found) - 1) == 12


def test_the_cause_says_rows_and_steps_and_not_from_the_first_step_on():
    b = silent(Build().loss(flat(60)), 60, slice(40, None), 17, 1280).event("loss_plateau", 0)
    (found,) = [h for h in diagnose(b.build()).hypotheses if h.cause == "dead_relu"]
    said = [one.statement for one in found.evidence]
    assert "94% of the units of act2 were positive in none of the 1,280 rows read in steps 17 to 59" in said
    assert not any("from the first step" in one for one in said)
    assert found.step == 17


def test_units_that_were_never_positive_were_dead_from_the_first_step_on():
    b = silent(Build().loss(flat(60)), 64, slice(19, None), 0, 640).stat("activation", "act2", "units", 0, slice(0, 19))
    (found,) = [h for h in diagnose(b.build()).hypotheses if h.cause == "dead_relu"]
    assert "they were dead from the first step on" in [one.statement for one in found.evidence]
    assert found.step == 0
