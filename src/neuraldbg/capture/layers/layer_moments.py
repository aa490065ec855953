"""The moments of a layer, for hooks of the user: before its call, after it, and when its output's gradient is there.

Only the modules that a hook asks for have hooks of ours on them, and none if there is no such hook.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from neuraldbg.capture.guest.guard import hook_of
from neuraldbg.capture.guest.module_tree import add_hook, hookable
from neuraldbg.capture.guest.native import set_hook
from neuraldbg.capture.guest.own_hooks import LeftOut, numbers_apart
from neuraldbg.capture.guest.program_objects import Identities
from neuraldbg.capture.guest.tensor_kinds import node_of, ungraded, unheard
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.guest.own_hooks import OwnHook

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public way tells a recomputation from a forward pass)


class LayerMoments:
    """Calls ``tell(moment, path, value, inputs, call)`` at moments of layers, and ``tell("before_step", None,
    optimizer)`` before each step of an optimizer, with autograd off. Values are those of the program, not detached;
    ``inputs`` are None but at ``after_layer``. What ``tell`` returns for ``after_layer`` is the ``call`` of the
    gradient of that output.
    """

    def __init__(self, tell: Callable[..., int]) -> None:
        self.tell = tell
        self._handles: list[tuple[tuple[str, str], set[tuple[str, str]], OwnHook]] = []
        """Of each hook: what it is for (``before`` or ``after``) with the path, the set that holds this meanwhile,
        and the handle."""
        self._there: Identities[nn.Module, set[tuple[str, str]]] = Identities()
        self._step_hook: RemovableHandle | None = None
        self._lock = threading.RLock()
        """Held while hooks are set or removed: a dashboard does so in a thread of its own."""
        self.follows = False
        """True if gradients of outputs are told."""

    def attach(self, path: str, module: nn.Module, moments: Collection[str]) -> None:
        """Call ``tell`` at some moments of a layer, each once. A layer whose class reads its own attributes by code of
        the program is left alone: torch could not call a hook without running that code.
        """
        before, after = "before_layer" in moments, {"after_layer", "after_backward"} & {*moments}
        with self._lock:
            self.follows |= "after_backward" in moments
            if module not in self._there:
                self._there[module] = set()
            there = self._there.get(module)
            if not hookable(type(module)):
                return
            if before and ("before", path) not in there:
                there.add(("before", path))
                handle = add_hook(module, "_forward_pre_hooks", _Before(self, path))
                self._handles.append((("before", path), there, handle))
            if after and ("after", path) not in there:
                there.add(("after", path))
                self._handles.append((("after", path), there, add_hook(module, "_forward_hooks", _After(self, path))))

    def keep(self, moments: Collection[str]) -> None:
        """Remove the hooks on layers that serve none of some moments."""
        needed = {"before" if one == "before_layer" else "after" for one in moments}
        with self._lock:
            self.follows &= "after_backward" in moments
            gone = [one for one in self._handles if one[0][0] not in needed]
            self._handles = [one for one in self._handles if one[0][0] in needed]
            for place, there, handle in gone:
                handle.remove()
                there.discard(place)

    def watch_steps(self) -> None:
        """Call ``tell`` before each step of an optimizer of torch. Only the thread that trains may call this: torch
        raises if its optimizers' hooks change while it walks along them.
        """
        if self._step_hook is None:
            with numbers_apart():
                self._step_hook = register_optimizer_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        ungraded(self.tell, "before_step", None, optimizer)

    def detach(self) -> None:
        """Remove all hooks."""
        self.keep(())
        self._there = Identities()
        if self._step_hook is not None:
            self._step_hook.remove()
            self._step_hook = None

    def arrived(self, path: str, call: int, grad: Tensor) -> None:
        """Tell the gradient of a layer's output."""
        ungraded(self.tell, "after_backward", path, grad, None, call)


class _Before(LeftOut):
    def __init__(self, owner: LayerMoments, path: str) -> None:
        self.owner, self.path = owner, path

    def __call__(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and _graph_task() == -1:
            ungraded(self.owner.tell, "before_layer", self.path, args)


class _After(LeftOut):
    def __init__(self, owner: LayerMoments, path: str) -> None:
        self.owner, self.path = owner, path

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or _graph_task() != -1:  # a recomputation of activation checkpointing
            return
        call = ungraded(self.owner.tell, "after_layer", self.path, output, args)
        if not self.owner.follows:
            return
        with unheard():
            first = next((x for _, x in leaves(output) if node_of(x) is not None), None)
            if first is not None:
                set_hook(first, hook_of(self.owner.arrived, self.path, call))
