"""A device that is not there: tensors of the CPU are treated as if to look at their values were to wait.

What is sent from it arrives when so many further things were sent; each wait is noted. ``KIND`` says what reads
tensors: torch's operations, or Triton's kernels in its interpreter.
"""

from __future__ import annotations

import functools
import os
import traceback
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.layers import layer_hook
from neuraldbg.capture.loop import backward
from neuraldbg.capture.readers.data.batches import Batches
from neuraldbg.capture.readers.data.input_ledger import Ledger
from neuraldbg.capture.statistics.device import async_copy, placement
from neuraldbg.capture.statistics.device import table as device_module
from neuraldbg.nouns import STATS, column

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.capture.captured_run import CapturedRun

KIND = "triton" if os.environ.get("TRITON_INTERPRET") == "1" else "torch"
LEFT_OUT = {
    "duration",
    "overhead",
    "resident",
    "device_memory",
    "outside",
    "gradient_turn",
    "second_moment_ratio",
    "descent",
}
"""Scalars that are not compared: times, memory, and what is read of a device in few steps, where that may wait."""
ASKING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero"}
"""What a GPU has to be waited for."""


class SimulatedDevice:
    """The device: how late things arrive, and how often something waited."""

    def __init__(self, patch: pytest.MonkeyPatch, delay: int) -> None:
        self.delay, self.sent, self.waits = delay, 0, 0
        self.may_wait = 0
        """How many of the methods that may wait are running."""
        made = async_copy.Sent.__init__

        def init(one: async_copy.Sent, parts: list[torch.Tensor]) -> None:
            made(one, parts)
            self.sent += 1
            one.number = self.sent

        def wait(one: async_copy.Sent) -> None:
            self.waits += not self.may_wait

        patch.setattr(async_copy.Sent, "__init__", init)
        patch.setattr(async_copy.Sent, "arrived", lambda one: self.sent >= one.number + self.delay)
        patch.setattr(async_copy.Sent, "wait", wait)
        patch.setattr(placement, "lies", lambda x: True)
        patch.setattr(device_module, "backend", lambda device: KIND)
        patch.setattr(layer_hook, "native", None)
        patch.setattr(backward, "native", None)
        # What batches look like is waited for at the end, and where a stretch of light steps begins early in a run.
        for owner, name in ((Ledger, "cut"), (Batches, "summarise")):
            patch.setattr(owner, name, self.waiting(getattr(owner, name)))

    def waiting(self, method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def run(*args: object) -> None:
            self.may_wait += 1
            try:
                method(*args)
            finally:
                self.may_wait -= 1

        return run


class Asking(TorchDispatchMode):
    """Notes where our code asks for something that a GPU has to be waited for."""

    def __init__(self, patch: pytest.MonkeyPatch, when: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.found: list[str] = []
        self.on = False
        self.when = when
        for name in ("cpu", "numpy", "tolist", "item", "__array__", "__float__", "__bool__", "__int__"):
            patch.setattr(torch.Tensor, name, self.noting(name, getattr(torch.Tensor, name)))

    def noting(self, name: str, original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def method(*args: object, **kwargs: object) -> object:
            self.note(name)
            return original(*args, **kwargs)

        return method

    def note(self, what: str) -> None:
        stack = traceback.extract_stack(limit=14)
        ours = [frame for frame in stack if "/neuraldbg/" in frame.filename]
        if self.on and ours and self.when() and not ours[-1].filename.endswith("async_copy.py"):  # what has arrived
            self.found.append(f"{what} at {ours[-1].filename}:{ours[-1].lineno}")

    def __enter__(self):
        self.on = True
        return super().__enter__()

    def __exit__(self, *args: object) -> None:
        self.on = False
        super().__exit__(*args)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name in ASKING:
            self.note(func._schema.name)
        return func(*args, **(kwargs or {}))


def compare(far: CapturedRun, near: CapturedRun, *, facts: bool = True) -> None:
    """Compare two runs step by step, equal up to rounding; of ``facts`` which there are."""
    assert [(s.index, s.stream, s.applied) for s in far.steps] == [(s.index, s.stream, s.applied) for s in near.steps]
    assert far.layout.sites == near.layout.sites
    for a, b, layout in zip(far.steps, near.steps, far.layouts, strict=True):
        there, here = ({name: value for name, value in step.scalars.items() if name not in LEFT_OUT} for step in (a, b))
        assert there.keys() == here.keys(), (a.index, there.keys() ^ here.keys())
        for name, value in here.items():
            np.testing.assert_allclose(there[name], value, rtol=2e-5, atol=1e-12, err_msg=f"{name} of step {a.index}")
        assert not facts or [fact.key for fact in a.facts] == [fact.key for fact in b.facts], a.index
        assert a.table.shape == b.table.shape
        for row, (x, y) in enumerate(zip(a.table, b.table, strict=True)):
            room = np.zeros(len(STATS))  # the CPU sums a chunk in float32; of mean and deviation much cancels out
            room[column("mean")], room[column("std")] = 1e-5 * y[column("rms")], 2e-3 * y[column("rms")]
            near_enough = np.isclose(x, y, rtol=2e-5, atol=np.nan_to_num(room), equal_nan=True)
            assert near_enough.all(), (layout.sites[row].label, a.index, x, y)
