"""A site, a place where numbers are read, and STATS, the statistics that are read there in each step."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("activation", "output_grad", "param", "param_grad", "update", "input", "loss", "op")
"""Kinds of sites. ``op`` is an operand of a numerically risky operation in the loss graph (log, sqrt, division)."""

STATS = (
    "total",  # elements of the tensor (all calls and micro-batches of the step together)
    "count",  # elements really read: fewer than total if a large tensor was read in blocks; 0: not read
    "nonfinite",  # NaN and Inf among the elements read
    "mean",  # mean, std (population), rms, min and max over the finite elements read; NaN if there are none
    "std",
    "rms",
    "min",
    "max",
    "zeros",  # exact zeros among the elements read
    "units",  # channels or features, 0 if the site has none, or if too few rows were read to know which are dead
    "dead",  # units that were positive in no row read for `window` steps or longer, 300 rows at least
    "saturated",  # elements at a bound of a bounded activation (sigmoid, tanh), else 0
    "under",  # finite nonzero elements that half precision rounds to zero: at most 2**-25
    "over",  # finite elements that half precision rounds to infinity: 65,520 and above
    "dead_rows",  # rows in which all dead units were silent: those read since `dead_since`; 0 if none is dead
    "dead_since",  # first step from which on all dead units were silent; 0 if none is dead
)
"""Columns of a step's table. A site that was not read in a step has count 0 and NaN moments."""

_COLUMN = {name: index for index, name in enumerate(STATS)}


def column(stat: str) -> int:
    """Return the column of a statistic in a step's table. Raises KeyError for an unknown one."""
    return _COLUMN[stat]


@dataclass(frozen=True, slots=True)
class Site:
    """A place where numbers are read: a kind, a layer, a call, and a parameter or leaf.

    >>> run.layout.sites[0].module
    '0'
    """

    kind: str
    """``activation``, ``output_grad``, ``param``, ``param_grad``, ``update``, ``input``, ``loss`` or ``op``."""
    module: str
    """Path of the layer as in ``named_modules()``, without `_orig_mod.` and `module.`; "" is the root."""
    call: int = 0
    """Number of the module's call within one forward pass, from 0."""
    name: str = ""
    """Parameter name for param sites; leaf of a nested input or output ("1", "logits"), "" for a plain tensor."""
    dtype: str = ""
    """Dtype of the tensor when first read, such as "float32"; "" before that."""

    @property
    def label(self) -> str:
        """Short name for display: ``fc1.weight``, ``lstm[1]``, ``head:logits``."""
        if self.kind in ("param", "param_grad", "update"):
            return f"{self.module}.{self.name}" if self.module else self.name
        call = f"[{self.call}]" if self.call else ""
        leaf = f":{self.name}" if self.name else ""
        return f"{self.module or self.kind}{call}{leaf}"
