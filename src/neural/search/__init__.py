"""A search for values: a file whose values are `HPO(...)` enters, a `Result` with every trial leaves.

searching.py      `searched`: proposes, trains and judges one trial after another
sampling.py       proposes values: optuna's samplers, and all points of a grid
search_space.py   what a search may choose: labels, values, and the file with the values in their places
one_trial.py      trains one trial under NeuralDBG, as a program of its own
trial_result.py   Trial and Result, as plain values
trial_table.py    a Result as text
"""

from __future__ import annotations

from neural.search.searching import searched
from neural.search.trial_result import Result, Trial
from neural.search.trial_table import printed

__all__ = ["Result", "Trial", "printed", "searched"]
