"""Copies of whole tensors, on request: input, output and output gradient of chosen layers, within a byte budget.

Off unless layers are named by pattern, since copies without bound make a tool unusable. The oldest are dropped first.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.arguments import positive, texts
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import hook_of
from neuraldbg.capture.guest.module_tree import add_hook, hookable, walk
from neuraldbg.capture.guest.native import set_hook
from neuraldbg.capture.guest.own_hooks import LeftOut
from neuraldbg.capture.guest.program_objects import name_of
from neuraldbg.capture.guest.tensor_kinds import node_of, unheard
from neuraldbg.capture.layers.layer_names import strip, wraps
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.errors import UnknownLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.capture.guest.own_hooks import OwnHook


@dataclass
class Snapshot:
    """Detached CPU copies of a layer's input, output and gradient in the last call of a step."""

    step: int
    layer: str
    input: Tensor | None = None
    output: Tensor | None = None
    gradient: Tensor | None = None
    """Gradient of the output, None until a backward pass has reached it."""

    @property
    def bytes(self) -> int:
        """Size of the copies in bytes."""
        held = (self.input, self.output, self.gradient)
        return sum(t.numel() * t.element_size() for t in held if t is not None)


class Snapshots:
    """The snapshots of layers that match one of the patterns (``fnmatch``: ``layers.*.attention``)."""

    def __init__(self, patterns: Sequence[str], budget: int, now: Callable[[], int]) -> None:
        self.patterns = texts(patterns, "snapshots")
        self.budget = positive(budget, "snapshot_bytes")
        self._now = now
        self._held: OrderedDict[tuple[int, str], Snapshot] = OrderedDict()
        self._handles: list[OwnHook] = []
        self._attached: set[str] = set()

    def check(self, model: nn.Module) -> None:
        """Raise UnknownLayer for a pattern that matches no layer of a model: it would silently take no snapshot."""
        paths = [strip(path) or name_of(model) for path, _ in walk(wraps(model))]
        for pattern in self.patterns:
            if not fnmatch.filter(paths, pattern):
                raise UnknownLayer(pattern, difflib.get_close_matches(pattern, paths, n=3, cutoff=0.4) or paths[:3])

    def attach(self, path: str, module: nn.Module) -> None:
        """Hook a layer if it matches, once."""
        if (
            path not in self._attached
            and hookable(type(module))
            and any(fnmatch.fnmatchcase(path, pattern) for pattern in self.patterns)
        ):
            self._attached.add(path)
            self._handles.append(add_hook(module, "_forward_hooks", _Taker(self, path)))

    def detach(self) -> None:
        """Remove the hooks; snapshots stay."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def get(self, layer: str, step: int) -> Snapshot | None:
        """Return the snapshot of a layer at a step, None if there is none or it was dropped."""
        return self._held.get((step, layer))

    def take(self, path: str, args: Any, output: Any) -> None:
        """Copy a call's first input and first output."""
        step = self._now()
        snapshot = Snapshot(step, path, _first(args), _first(output))
        self._held[step, path] = snapshot
        for _, x in leaves(output):
            if node_of(x) is not None:
                set_hook(x, hook_of(self._gradient, snapshot))
            break
        self._trim()

    def _gradient(self, snapshot: Snapshot, grad: Tensor) -> None:
        with unheard():
            snapshot.gradient = _first(grad)
            self._trim()

    def _trim(self) -> None:
        held = sum(snapshot.bytes for snapshot in self._held.values())
        while held > self.budget and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            held -= oldest.bytes


class _Taker(LeftOut):
    """The forward hook of one layer."""

    def __init__(self, owner: Snapshots, path: str) -> None:
        self.owner, self.path = owner, path

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            with unheard():
                self.owner.take(self.path, args, output)


def _first(value: Any) -> Tensor | None:
    x = next((x for _, x in leaves(value)), None)
    held = tensor_memory.readable(x)
    return held.detach().clone().cpu() if held is not None else None
