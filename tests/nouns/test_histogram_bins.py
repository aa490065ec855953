from __future__ import annotations

import numpy as np
import pytest
from tests.record.known_steps import assert_same

from neuraldbg.nouns import BINS, EDGES, RunRecord, StepHistograms
from neuraldbg.nouns.histogram import ZERO


def counts(sites: int, seed: int = 0) -> np.ndarray:
    """Counts with gaps, some sites with a single bin, and one with none."""
    draw = np.random.default_rng(seed)
    found = draw.integers(0, 5, (sites, BINS)) * (draw.random((sites, BINS)) < 0.2)
    for site in range(sites):
        low, high = sorted(draw.integers(0, BINS, 2))
        found[site, :low], found[site, high:] = 0, 0
    found[0] = 0
    found[-1, BINS - 1] = 70_000
    return found


def test_bins_are_symmetric_powers_of_two_that_leave_no_gap() -> None:
    assert EDGES.shape == (BINS + 1,)
    np.testing.assert_array_equal(EDGES, -EDGES[::-1])
    assert (np.diff(EDGES) > 0).all()
    assert EDGES[ZERO] == -(2.0**-32)
    assert EDGES[ZERO + 1] == 2.0**-32
    above = EDGES[ZERO + 1 : -1]
    np.testing.assert_array_equal(above[1:] / above[:-1], 2.0)
    assert (above[-1], EDGES[-1]) == (2.0**32, np.inf)


@pytest.mark.parametrize("sites", [1, 2, 40])
def test_counts_come_back_from_what_is_kept_of_them(sites: int) -> None:
    every = counts(sites)
    rows = np.random.default_rng(1).permutation(3 * sites)[:sites]
    made = StepHistograms.of(7, rows.tolist(), every)
    assert made.step == 7
    assert made.rows.tolist() == sorted(rows.tolist())
    for row, own in zip(rows, every, strict=True):
        np.testing.assert_array_equal(made.counts_of(int(row)), own)
    for other in set(range(3 * sites)) - set(rows.tolist()):
        assert made.counts_of(other) is None
    assert len(made.counts) <= (every.any(axis=1)[:, None] * BINS).sum()
    assert made.counts.sum() == every.sum()
    assert_same(StepHistograms.from_lists(7, made.to_lists()), made)


def test_a_site_over_time_has_the_bins_that_it_uses() -> None:
    one, other = np.zeros((2, BINS), np.int64), np.zeros((1, BINS), np.int64)
    one[0, ZERO], one[1, ZERO + 2] = 3, 4
    other[0, ZERO - 1] = 5
    run = RunRecord(histograms=(StepHistograms.of(0, [4, 1], one), StepHistograms.of(8, [1], other)))
    found = run.histogram(1)
    assert len(found) == 2
    assert found.steps.tolist() == [0, 8]
    assert found.counts.tolist() == [[0, 0, 0, 4], [5, 0, 0, 0]]
    assert found.shares.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert found.edges.tolist() == [-(2.0**-31), -(2.0**-32), 2.0**-32, 2.0**-31, 2.0**-30]
    assert run.histogram(4).steps.tolist() == [0]


def test_without_histograms_or_finite_values_there_is_the_bin_of_zero() -> None:
    none = RunRecord().histogram(0)
    assert (none.steps.shape, none.edges.shape, none.counts.shape, none.shares.shape) == ((0,), (2,), (0, 1), (0, 1))
    blank = StepHistograms.of(3, [0], np.zeros((1, BINS), np.int64))
    assert (blank.width.tolist(), blank.counts.tolist()) == ([0], [])
    found = RunRecord(histograms=(blank,)).histogram(0)
    assert found.counts.tolist() == [[0]]
    assert np.isnan(found.shares).all()
