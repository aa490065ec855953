"""A loss that has left its level, though no single value is far from it."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.capture.parameters.usual_norm import RUN, SLOW, Level, Usual


def losses(level: float, count: int, seed: int = 0) -> list[float]:
    return (level + 0.1 * np.random.default_rng(seed).standard_normal(count)).tolist()


def left(level: Level, values: list[float]) -> list[int]:
    return [at for at, value in enumerate(values) if level.left(value)]


def test_a_level_is_left_by_numbers_in_a_row_none_of_which_is_unusual() -> None:
    values, level, usual = losses(1.0, 300), Level(), Usual()
    assert not left(level, values)
    assert not any(usual.odd(value) for value in values)

    shifted = losses(1.45, 60, seed=1)
    assert not any(usual.odd(value) for value in shifted)
    assert left(level, shifted) == [RUN - 1]  # once: the new level is the level from then on


def test_single_numbers_and_a_loss_that_falls_leave_no_level() -> None:
    level = Level()
    spikes = losses(1.0, 600)
    spikes[SLOW :: RUN - 1] = [50.0] * len(spikes[SLOW :: RUN - 1])
    assert not left(level, spikes)

    falling = [float(value + 5 * math.exp(-at / 200)) for at, value in enumerate(losses(1.0, 2000))]
    assert not left(Level(), falling)


def test_what_is_not_finite_is_no_level() -> None:
    level = Level()
    assert not left(level, losses(1.0, 200))
    assert not left(level, [math.nan, math.inf] * 50)
    assert left(level, losses(2.0, 40, seed=1)) == [RUN - 1]


def test_a_loss_that_rises_again_and_again_is_told_ever_more_rarely() -> None:
    stairs = [value for stair in range(60) for value in losses(1.0 + 2**stair, 300, seed=stair)]
    told = left(Level(), stairs)
    assert len(told) >= 3
    assert all(gap >= SLOW // 2 * 2 ** (times + 1) for times, gap in enumerate(np.diff(told).tolist()))
