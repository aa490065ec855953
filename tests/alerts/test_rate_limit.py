"""The rate limit, by a clock that the test sets: the first at once, then one in so many seconds, and none is lost."""

from __future__ import annotations

from neuraldbg.alerts.rate_limit import KEPT, RateLimit
from neuraldbg.nouns.alert import Alert


def alert(step: int) -> Alert:
    return Alert("warning", "loss > 5", f"at step {step}", step)


def test_the_first_is_told_and_the_next_says_how_many_were_held_back():
    now = [100.0]
    limit = RateLimit(lambda: now[0])
    told = []
    for step in range(36):
        now[0] = 100.0 + step
        if (one := limit.admit("loss > 5", alert(step), 10.0)) is not None:
            told.append((one.step, one.held_back))
    assert told == [(0, 0), (10, 9), (20, 9), (30, 9)]
    assert [(one.step, one.held_back) for one in limit.rest()] == [(35, 4)]
    assert limit.rest() == []


def test_each_kind_has_a_limit_of_its_own():
    limit = RateLimit(lambda: 0.0)
    assert limit.admit("a", alert(0), 60.0)
    assert limit.admit("b", alert(0), 60.0)
    assert not limit.admit("a", alert(1), 60.0)
    assert limit.admit("a", alert(2), 0.0), "a limit of 0 tells all"
    assert limit.rest() == []


def test_a_clock_that_stands_still_or_jumps_is_no_trouble():
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    limit.admit("a", alert(0), 60.0)
    now[0] = 1e9
    assert limit.admit("a", alert(1), 60.0).held_back == 0


def test_memory_is_bounded_whatever_rules_are_called():
    limit = RateLimit(lambda: 0.0)
    for number in range(5 * KEPT):
        limit.admit(f"loss is {number}", alert(number), 60.0)
        limit.admit(f"loss is {number}", alert(number), 60.0)
    assert len(limit.rest()) <= KEPT
