"""An experiment: does a table that goes into the model hold the target as one of its columns?

Compared exactly, sample by sample, with targets that vary. An autoencoder, whose whole input is the target, is no such
table: the target must be one number for each sample, beside other columns. Targets of whole numbers must take at least
two values, each often enough that a match is not chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.experiments.experiment import Bench, Experiment

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 16
"""Samples that must agree: 2^-16 is the chance of a coin."""
_WIDE = 4096
_OFTEN = 4
"""Samples that must differ from the most frequent target."""


def run(bench: Bench) -> dict[str, Any] | None:
    """Compare each column of each floating table with each target."""
    targets = [t.value for t in bench.targets if t.value is not None and _telling(t.value)]
    tables = [(name, x) for name, x in bench.inputs() if x.is_floating_point() and x.dim() == 2]
    tables = [(name, x) for name, x in tables if x.shape[0] >= _ROWS and 2 <= x.shape[1] <= _WIDE]
    if not bench.steady or not targets or not tables:
        return None
    for name, x in tables:
        for target in targets:
            if target.numel() != x.shape[0]:
                continue
            equal = (x.double() == target.reshape(-1, 1).double()).all(0)
            if int(equal.sum()) == 1:
                return {"inside": True, "leaf": name, "column": int(equal.nonzero()[0]), "columns": int(x.shape[1]),
                        "rows": int(x.shape[0])}  # fmt: skip
    return {"inside": False}


def _telling(target: Tensor) -> bool:
    flat = target.reshape(-1)
    if flat.numel() < _ROWS or flat.is_complex():
        return False
    return int((flat != torch.mode(flat).values).sum()) >= _OFTEN


EXPERIMENT = Experiment("target_inside", run, forwards=0)
