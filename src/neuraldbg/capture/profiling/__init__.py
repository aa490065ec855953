"""The profile of a training while it runs: time, work and memory of each layer, in sampled steps.

May import: all other rooms of ``capture`` but those above it. What is measured becomes facts (``timing``,
``footprint``, ``growth``) and scalars; the stage ``neuraldbg/profile`` judges them without torch.

- ``part.py``: the contract of a part of the profile
- ``timing.py``: which steps are timed, and the TIMING fact. ``sampled_step.py`` is one such step: what is set while it
  runs; ``backward_nodes.py`` the hooks that split its backward pass; ``step_events.py`` what happened in it, and the
  times computed from that; ``step_bounds.py`` the bounds of a step; ``step_clock.py`` the clocks;
  ``operation_counts.py`` its floating-point operations; ``matmul_rate.py`` what the machine can do
- ``footprint.py``: the FOOTPRINT fact. ``recorded_step.py`` is the step it measures; ``memory_records.py`` computes
  peaks from the allocator's records of it; ``tensor_sizes.py`` the bytes of parameters, gradients and optimizer state
- ``growth.py``: the GROWTH fact. ``kept_graphs.py`` tells the age of autograd graphs, ``held_objects.py`` what the
  program's variables hold, ``growth_lines.py`` the lines that keep it
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.capture.profiling.part import Part, Profiling

MEMBERS: tuple[str, ...] = ("footprint", "growth", "timing")
"""Modules of this package, sorted; each defines ``PART``."""


def parts(profiling: Profiling) -> tuple[Part, ...]:
    """Return a new object of each part of the profile."""
    return tuple(importlib.import_module(f"{__name__}.{member}").PART(profiling) for member in MEMBERS)
