"""The bytes of the outputs of layers, from the sizes of those that were read: known without a recorded step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.measures import DTYPE_BYTES

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord


def read_outputs(run: RunRecord) -> int | None:
    """Return the bytes of the outputs of the innermost layers in the largest step that was read, all calls and
    micro-batches together; None if none was read, or the size of one is not known.
    """
    sites = run.layout.sites
    rows = run.layout.rows("activation")
    # A block hands on what its last layer returned: the same tensor must not count twice.
    around = {path[:at] for row in rows for path in [sites[row].module] for at in range(len(path)) if path[at] == "."}
    around |= {""} if any(sites[row].module for row in rows) else set()
    inner = [row for row in rows if sites[row].module not in around]
    if not inner:
        return None
    read = np.asarray(run.history.stat(inner, "count", "max") > 0)
    totals = np.where(read, run.history.stat(inner, "total", "max"), 0.0)
    sizes = [DTYPE_BYTES.get(sites[row].dtype) for row in inner]
    seen = np.asarray(read.any(axis=0))
    if not seen.any() or any(held is None for held, there in zip(sizes, seen, strict=True) if there):
        return None
    return int((totals * np.array([held or 0 for held in sizes])).sum(axis=1).max())
