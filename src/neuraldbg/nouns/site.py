"""A site is a place where numbers are read; STATS names the numbers read there each step."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("activation", "output_grad", "param", "param_grad", "update", "input", "loss", "op")
"""What a site reads. ``op`` is an operand of a numerically risky operation in the loss graph (log, sqrt, division)."""

STATS = (
    "total",  # elements of the tensor (all calls and micro-batches of the step together)
    "count",  # elements really read: fewer than total where a large tensor was read in blocks; 0: not seen
    "nonfinite",  # NaN and Inf among the elements read
    "mean",  # mean, std (population), rms, min and max over the finite elements read; NaN if there are none
    "std",
    "rms",
    "min",
    "max",
    "zeros",  # how many of the elements read are exact zeros
    "units",  # channels or features, 0 where the site has none
    "dead",  # units that were positive for no sample in the last `window` steps
    "saturated",  # elements at a bound of a bounded activation (sigmoid, tanh), else 0
    "under",  # finite elements that are not zero and that half precision rounds to zero: at most 2**-25
    "over",  # finite elements that half precision rounds to infinity: 65,520 and above
)
"""The columns of a step's table. A site that was not seen in a step has count 0 and NaN moments."""

_COLUMN = {name: index for index, name in enumerate(STATS)}


def column(stat: str) -> int:
    """Return the position of a statistic in a step's table; KeyError for an unknown one."""
    return _COLUMN[stat]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a number is read."""

    kind: str
    """One of KINDS."""
    module: str
    """The layer's path as ``named_modules()`` gives it, `_orig_mod.` and `module.` stripped; "" is the root."""
    call: int = 0
    """Which call of the module within one forward pass (0-based)."""
    name: str = ""
    """Parameter name for param sites; leaf of a nested input or output ("1", "logits"), "" for a plain tensor."""
    dtype: str = ""
    """The tensor's dtype when first seen, such as "float32"."""

    @property
    def label(self) -> str:
        """A short name for people: ``fc1.weight``, ``lstm[1]``, ``head:logits``."""
        if self.kind in ("param", "param_grad", "update"):
            return f"{self.module}.{self.name}" if self.module else self.name
        call = f"[{self.call}]" if self.call else ""
        leaf = f":{self.name}" if self.name else ""
        return f"{self.module or self.kind}{call}{leaf}"
