"""What the record holds, read from its arrays one by one: nothing here is shared with what writes."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.nouns import EDGES, STATS

COUNT = STATS.index("count")


def seen(run):
    """(row of time, site) of everything that was read, in order."""
    return np.argwhere(run.history.high[:, :, COUNT] > 0).tolist()


def scalars(run, row):
    """What was measured in a row: a NaN is a measured one where the loss is said to be not finite."""
    bad = run.history.scalars["loss_nonfinite"][row] > 0
    return {
        name: values[row]
        for name, values in run.history.scalars.items()
        if not math.isnan(values[row]) or (name == "loss" and bad)
    }


def same(one, other):
    """Equal, with NaN equal to NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))


def bins(run):
    """(step, site, lower, upper, count) of every bin with something in it."""
    for taken in run.histograms:
        for site in range(len(run.layout.sites)):
            counts = taken.counts_of(site)
            if counts is not None:
                for at in np.flatnonzero(counts).tolist():
                    yield taken.step, site, EDGES[at], EDGES[at + 1], int(counts[at])
