"""The state that one hook reads from: the table it fills, and what is read of the current forward pass."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from neuraldbg.capture.autograd.graph_walk import Marks
from neuraldbg.capture.compiled import device_operator
from neuraldbg.capture.compiled.traced_hook import Graph
from neuraldbg.capture.guest.guard import Tally, guarded
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from neuraldbg.config import CaptureSettings

Trail: TypeAlias = "Callable[[str, nn.Module, Any, Any], None]"
"""Called with path, module, positional arguments and output of each call of a layer."""
ROWS = 16_384
"""Rows of the table of statistics: sites of all models."""


class ReadState:
    """The part of a HookManager that its hooks use: settings, table, and what this pass reads."""

    def __init__(self, settings: CaptureSettings, tally: Tally) -> None:
        self.settings = settings
        self.tally = tally
        self.table = Table(ROWS, self.settings.block_cap, self.settings.window)
        self.graph = Graph(
            self.table.raw, self.tally.clock, self.settings.block_cap, self.settings.compiled, self.tally.caught
        )
        device_operator.register(self.graph.handle, self.table)
        weakref.finalize(self, self.graph.close)
        self.step = 0
        self.active = True
        """True if activations are read now: False in passes without gradients, and between logged steps."""
        self.sampled = True
        """True if activations are read in this step."""
        self.reads_units = True
        """True if unit activity is read in this step."""
        self._units_read = 0
        """Number of steps in which unit activity was read."""
        self.binned = False
        """True if this step has histograms, which native code does not count."""
        self.thread: int | None = None
        """The thread whose passes are read, None for any: another may serve predictions while this one trains."""
        self.lends: Callable[[], bool] = lambda: False
        """Returns True if the current thread, another one, works for the followed thread."""
        self.passes = 0
        """Number of forward passes; call indices start at 0 in each."""
        self.marks = Marks()
        self.nodes: Marks | None = None
        """Marks of nodes with their layer while the loss graph of this step is to be read, else None."""
        self.trail: Trail | None = None
        """Called with each call of a layer in this pass, None if no reader needs them."""
        self.called: dict[str, None] = {}
        """Paths of the layers that were called, in order of first call."""
        self.without_grad: dict[str, None] = {}
        """Paths of the modules that the program called without gradients."""

    def here(self) -> bool:
        """Return True if tensors that the current thread computes are read."""
        return self.thread is None or self.thread == get_ident() or self.lends()

    def observe_grad(self, row: int, grad: Tensor) -> None:
        """Read the gradient at a module's output; called by autograd, in whatever thread runs the backward pass."""
        if self.here():
            self._observe_grad(row, grad)

    @guarded
    def _observe_grad(self, row: int, grad: Tensor) -> None:
        held = operation.shown(grad)
        if held is not None:
            self.table.observe(held, row)
