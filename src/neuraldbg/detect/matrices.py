"""Weight matrices with their updates and gradients: rows that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.detect.layer_rows import RMS, Synced, flat, is_matrix, sorted_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import Layout

    Rows = npt.NDArray[np.intp]


class Parameters(Synced):
    """For each parameter with an update site, in data-flow order: its rows of kind update, param and param_grad.

    A parameter without a param or param_grad site has row -1 there, which `has_grad` and `has_param` say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.places: tuple[tuple[str, str], ...] = ()
        self.update: Rows = np.zeros(0, np.intp)
        self.update_rms: Rows = np.zeros(0, np.intp)
        """Places of the updates' rms in a table that is read flat."""
        self.param: Rows = np.zeros(0, np.intp)
        self.grad: Rows = np.zeros(0, np.intp)
        self.matrix: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def build(self, layout: Layout, rows: int) -> None:
        """Match the rows by layer and parameter name."""
        sites = layout.sites
        of = {
            (s.kind, s.module, s.name): row for row, s in enumerate(sites[:rows]) if s.kind in ("param", "param_grad")
        }
        update = sorted_rows(layout, [row for row in layout.rows("update") if row < rows])
        self.update = np.array(update, np.intp)
        self.update_rms = flat(self.update, RMS)
        self.param = np.array([of.get(("param", sites[r].module, sites[r].name), -1) for r in update], np.intp)
        self.grad = np.array([of.get(("param_grad", sites[r].module, sites[r].name), -1) for r in update], np.intp)
        self.matrix = np.array([is_matrix(layout, sites[row]) for row in update], np.bool_)
        self.places = tuple((sites[row].module, f"update/{sites[row].label}") for row in update)
        self.version += 1
