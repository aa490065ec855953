"""The promise about time, on a clock of the test's own: who pays what, when it is read in full, and what follows."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from neuraldbg.capture.steps.overhead_budget import ALARM, AT_ONCE, BURST, LONGEST, PACED, SHORT, STRETCH, Governor

LIGHT, FULL = 10e-6, 500e-6
"""What a light and a full step cost here, in seconds."""


def ride(governor: Governor, steps: int, training: float, *, full: bool = True, noise: float = 0.0) -> list[bool]:
    """Run steps of ``training`` seconds each. Returns which were full."""
    draw = random.Random(0)
    read = []
    for _ in range(steps):
        read.append(full)
        own = (FULL if full else LIGHT) * (1 + noise * draw.random())
        governor.book(training * (1 + noise * draw.random()) + own, own, full=full)
        full = governor.decide()
    return read


def spent(governor: Governor) -> float:
    return governor.own / governor.training


@pytest.mark.parametrize("training", [2e-3, 20e-3, 200e-3])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_budget_is_kept_and_used(training: float, noise: float) -> None:
    governor = Governor(0.01, allowance=0.0)
    read = ride(governor, 20_000, training, noise=noise)
    assert spent(governor) <= 0.0101
    possible = min(1.0, (0.01 * training - LIGHT) / (FULL - LIGHT))
    assert sum(read) / len(read) >= 0.5 * possible


def test_without_a_budget_every_step_is_full() -> None:
    assert all(ride(Governor(None, allowance=0.0), 1000, 1e-3))


def test_the_allowance_comes_first_and_once() -> None:
    governor = Governor(0.01, allowance=0.1)
    read = ride(governor, 50_000, 10e-3)  # watching takes a twentieth of such steps
    first = read.index(False)
    assert first == pytest.approx(0.1 / (FULL - 0.01 * 10e-3), abs=2)
    assert governor.own <= 0.1 + 0.0101 * governor.training
    later = ride(governor, 10_000, 10e-3, full=False)
    assert max(run_lengths(later)) <= BURST


@pytest.mark.parametrize("training", [0.2e-3, 1e-3, 1.9e-3, 5e-3])
def test_a_short_run_pays_a_quarter_of_its_time_at_most(training: float) -> None:
    allowance = 1.6
    for steps in (50, 500, 2000):
        governor = Governor(0.01, allowance=allowance)
        read = ride(governor, steps, training)
        granted = max(allowance * AT_ONCE, SHORT * governor.training)
        assert governor.own <= granted + LIGHT * steps + BURST * FULL
        possible = min(1.0, max(allowance * AT_ONCE, SHORT * governor.training) / (steps * FULL))
        assert sum(read) / steps >= 0.9 * possible - LIGHT / FULL
        assert all(read[: round(allowance * AT_ONCE / FULL) - 1])
    if training < FULL / SHORT:
        assert min(run_lengths(read)[1:-1], default=BURST) >= BURST, "some questions are about two steps in a row"


def test_suspicion_is_paid_on_credit_in_a_short_run_too() -> None:
    governor = Governor(0.01, allowance=0.1)
    ride(governor, 500, 0.5e-3)
    governor.alarm()
    assert ALARM in run_lengths(ride(governor, 40, 0.5e-3, full=False))
    for _ in range(5000):
        governor.alarm()
        full = governor.decide()
        own = FULL if full else LIGHT
        governor.book(0.5e-3 + own, own, full=full)
    assert governor.own <= SHORT * governor.training + 0.55  # the debt is bounded


def run_lengths(read: list[bool], of: bool = True) -> list[int]:
    lengths, now = [], 0
    for full in [*read, not of]:
        if full is of:
            now += 1
        elif now:
            lengths.append(now)
            now = 0
    return lengths


def test_bursts_come_at_an_even_pace() -> None:
    governor = Governor(0.01, allowance=0.0)
    ride(governor, 5_000, 2e-3)
    gaps = run_lengths(ride(governor, 50_000, 2e-3, full=False), of=False)[1:-1]
    assert len(gaps) > 20
    assert max(gaps) - min(gaps) <= 1  # no oscillation


def paced(governor: Governor, steps: int, training: float, *, first: float = FULL) -> tuple[list[bool], list[int]]:
    """Run steps of ``training`` seconds each, the first of which costs ``first``. Returns which were full, and those
    whose facts the governor asks for.
    """
    read, asked, full = [], [], True
    for step in range(steps):
        read.append(full)
        own = first if step == 0 else FULL if full else LIGHT
        governor.book(training + own, own, full=full)
        full = governor.decide()
        if governor.paced:
            governor.paced = False
            asked.append(step + 1)
    return read, asked


def test_every_fourth_burst_begins_with_facts() -> None:
    read, asked = paced(Governor(0.01, allowance=0.0), 40_000, 20e-3)
    begun = [step for step in range(1, len(read)) if read[step] and not read[step - 1]]
    assert len(begun) > 400
    assert asked[: len(begun) // PACED] == begun[PACED - 1 :: PACED]


def test_first_steps_that_were_far_dearer_than_allowed_leave_a_look_now_and_then() -> None:
    _, asked = paced(Governor(0.01, allowance=2.0), 20_000, 0.2e-3, first=1.7)
    gaps = [b - a for a, b in itertools.pairwise([0, *asked, 20_000])]
    assert max(gaps) <= LONGEST + BURST


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_tenfold_change_of_the_step_is_followed_at_once(factor: float) -> None:
    governor = Governor(0.01, allowance=0.0)
    before = 20e-3
    ride(governor, 2_000, before)
    own, training = governor.own, governor.training
    for steps in (10, 100, 1000):  # within ten steps the new steps are read at their own pace
        ride(governor, steps, before * factor, full=False)
        burst = BURST * FULL  # what may be under way when the change comes
        assert governor.own - own <= 0.0101 * (governor.training - training) + 3 * burst
    if factor > 1:
        assert any(ride(governor, 10, before * factor, full=False))


def test_suspicion_buys_full_steps_on_credit_and_repays() -> None:
    governor = Governor(0.01, allowance=0.0)
    ride(governor, 5_000, 2e-3)
    governor.alarm()
    read = ride(governor, 60, 2e-3, full=False)
    assert ALARM in run_lengths(read)
    own, training = governor.own, governor.training
    ride(governor, 20_000, 2e-3, full=False)
    assert (governor.own - own) / (governor.training - training) <= 0.0101


def test_a_run_that_is_odd_at_every_step_does_not_cost_for_ever() -> None:
    governor = Governor(0.01, allowance=0.0)
    full, read = True, []
    for _ in range(50_000):
        own = FULL if full else LIGHT
        governor.alarm()
        governor.book(2e-3 + own, own, full=full)
        full = governor.decide()
        read.append(full)
    assert governor.own <= 0.0101 * governor.training + 0.6  # the debt is bounded


def test_a_light_step_dearer_than_the_budget_still_leaves_a_look_now_and_then() -> None:
    governor = Governor(0.001, allowance=0.0)
    read = ride(governor, 30_000, 1e-3)
    assert sum(read[5000:]) >= BURST
    assert spent(governor) < 0.02


@pytest.mark.parametrize("bad", [math.nan, math.inf, 40.0])
def test_what_is_far_from_usual_is_suspicious(bad: float) -> None:
    governor = Governor(0.01, allowance=0.0)
    draw = random.Random(0)
    for _ in range(200):
        assert not governor.watch(2.0 + 0.1 * draw.random(), 1.0 + 0.1 * draw.random())
    assert governor.watch(bad, 1.0)
    assert governor.watch(2.0, bad)
    assert not governor.watch(2.05, 1.05)
    assert 2.2 < governor.usual[0] < 5


def test_a_noisy_loss_that_falls_is_not_suspicious() -> None:
    governor = Governor(0.01, allowance=0.0)
    draw = random.Random(0)
    odd = [governor.watch(3 * math.exp(-i / 300) * (1 + 0.3 * draw.gauss(0, 1)) + 1, None) for i in range(3000)]
    assert sum(odd) <= 3


def test_gradients_are_due_at_some_light_step_whatever_the_rest_costs() -> None:
    """No gradient was read yet (0 s), and all that is not a reading already takes more than its share."""
    governor = Governor(0.01, allowance=0.0)
    for _ in range(50):
        governor.book(2.0, 1.0, full=False)
    assert governor.norms_every(0.0) == 1
    assert governor.norms_every(0.5) > 1


# ---------------------------------------------------------------- the layers of light steps

SIGHTED = 100e-6
"""What a step takes here whose layers are read without facts, in seconds."""


def sail(governor: Governor, steps: int, training: float, *, full: float = FULL, light: float = LIGHT) -> list[str]:
    """Run steps whose layers could be read without facts, each as the governor decides: F, S or l."""
    read, sees, until = [], False, 0
    for step in range(steps):
        governor.sights = governor.past(step)
        if governor.decide():
            governor.book(training + full, full, full=True)
            read.append("F")
            sees, until = False, 0
            continue
        many = max(governor.stretch(), until - step)
        sees, until = many > 0, step + many if many > 0 else 0
        own = SIGHTED if sees else light
        governor.book(training + own, own, full=sees, sighted=sees)
        read.append("S" if sees else "l")
    return read


@pytest.mark.parametrize("training", [5e-3, 20e-3, 200e-3])
def test_the_budget_is_kept_with_layers_and_used_for_them(training: float) -> None:
    governor = Governor(0.01, allowance=0.0)
    full = FULL if training < 100e-3 else 20 * FULL
    read = sail(governor, 20_000, training, full=full)
    assert spent(governor) <= 0.0102
    assert governor.sighted_steps == read.count("S")
    assert governor.on_full_s == pytest.approx(full * read.count("F"))
    assert governor.on_sighted_s == pytest.approx(SIGHTED * read.count("S"))
    pays_for = (0.01 * training - LIGHT) * 3 / 4 / (SIGHTED - LIGHT)
    assert read.count("S") / len(read) >= 0.7 * min(1.0, pays_for)
    if training == 200e-3:
        assert "l" not in read[100:], "each step of a model that takes long is read"


def test_full_steps_go_on_at_a_quarter_of_the_budget_and_all_have_facts() -> None:
    governor = Governor(0.01, allowance=0.0)
    read = sail(governor, 20_000, 5e-3)
    assert governor.on_full_s / governor.training == pytest.approx((0.01 - LIGHT / 5e-3) / PACED, rel=0.3)
    before, governor.paced = read.count("F"), False
    for _ in range(3000):
        governor.sights = True
        if governor.decide():
            assert governor.paced, "each burst begins with facts"
            break
        governor.book(5e-3, LIGHT, full=False)
    else:
        pytest.fail(f"no burst after {before} full steps")


def test_layers_are_read_though_facts_have_overdrawn_the_account_or_light_steps_alone_do() -> None:
    governor = Governor(0.01, allowance=0.0)
    for _ in range(3):
        governor.book(5e-3 + 0.3, 0.3, full=True)  # facts that took long
    read = sail(governor, 4000, 5e-3)
    assert "F" not in read, "the debt is not paid yet"
    assert read.count("S") / len(read) == pytest.approx((0.01 * 5e-3 - LIGHT) / 2 / (SIGHTED - LIGHT), rel=0.3)
    gaps = run_lengths([one == "S" for one in read], of=False)[8:-1]
    assert max(gaps) <= 1.3 * min(gaps), "at an even pace"
    poor = Governor(0.01, allowance=0.0)
    read = sail(poor, 4000, 1e-3, light=30e-6)
    assert read[500:].count("S") >= 60


def test_while_the_allowance_lasts_full_steps_get_half_of_it_and_the_layers_of_others_are_read() -> None:
    governor = Governor(0.01, allowance=2.0)
    read = sail(governor, 3000, 2e-3, full=2e-3)
    assert governor.own <= 2.0 + 0.0102 * governor.training
    later = read[1300:]
    assert later.count("l") < 0.05 * len(later)
    assert governor.on_full_s <= max(2.0 * AT_ONCE, SHORT / 2 * governor.training) + BURST * 2e-3
    assert set(read[:50]) == {"F"}, "the first steps are for facts"


def test_a_stretch_of_layers_is_that_of_the_budget() -> None:
    governor = Governor(None, allowance=0.0)
    assert governor.stretch() > STRETCH
    bare = Governor(0.01, allowance=0.0)
    ride(bare, 100, 2e-3)
    assert bare.stretch() == 0, "where native code cannot read them"


def test_what_handing_on_takes_is_a_part_of_the_price() -> None:
    counts = []
    for handing in (0.0, 2 * SIGHTED):
        governor = Governor(0.01, allowance=0.0)
        governor.handing_s = handing
        for _ in range(3):
            governor.book(5e-3 + 0.3, 0.3, full=True)
        counts.append(sail(governor, 4000, 5e-3).count("S"))
    assert counts[0] > 2 * counts[1] > 0


def rounds(governor: Governor, steps: int, training: float, *, turn: float, handed: float) -> int:
    """Run steps of which each change between kinds takes ``turn`` seconds, and the first of a stretch also what the
    steps before it take to be handed on. Returns how many were read without facts.
    """
    sees, until, read = False, 0, 0
    for step in range(steps):
        governor.sights = governor.past(step)
        if governor.decide():
            governor.book(training + FULL, FULL, full=True)
            sees, until = False, 0
            continue
        many = max(governor.stretch(), until - step)
        first = (many > 0) is not sees
        sees, until = many > 0, step + many if many > 0 else 0
        own = SIGHTED if sees else LIGHT / 4
        if first:
            governor.turned(turn)
            own += turn + handed
        governor.book(training + own, own, full=sees, sighted=sees)
        read += sees
    return read


def test_what_the_first_of_a_stretch_hands_on_is_not_its_price() -> None:
    quiet, laden = Governor(0.01, allowance=0.0), Governor(0.01, allowance=0.0)
    few = rounds(quiet, 20_000, 2e-3, turn=0.0, handed=0.0)
    assert rounds(laden, 20_000, 2e-3, turn=0.0, handed=1e-3) > 0.2 * few > 0


def test_layers_pay_for_the_changes_between_the_kinds_of_steps() -> None:
    governor = Governor(0.01, allowance=0.0)
    rounds(governor, 100_000, 0.5e-3, turn=0.0, handed=0.0)
    dear = Governor(0.01, allowance=0.0)
    read = rounds(dear, 100_000, 0.5e-3, turn=300e-6, handed=0.0)
    own, training = dear.own, dear.training
    assert read > 0
    rounds(dear, 100_000, 0.5e-3, turn=300e-6, handed=0.0)
    assert (dear.own - own) / (dear.training - training) <= 0.0105
