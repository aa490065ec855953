"""The base of readers that read some layers during the training passes of steps in which facts are read.

Its hooks are set when such a pass begins and removed when it ends, so that no other step pays for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.compiled.recompile import compiled_parts
from neuraldbg.capture.guest.module_tree import add_hook, hookable
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.tensor_kinds import ungraded, unheard
from neuraldbg.capture.guest.weak_references import Modules
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.capture.guest.own_hooks import OwnHook
    from neuraldbg.capture.layers.layer_hook import Visit
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.reader_context import Scene

_tracing = torch._C._get_tracing_state  # noqa: SLF001 (no public name)


class Visits(Reader, ABC):
    """Calls ``arrives`` and ``leaves`` around each call of the layers that ``chosen`` returns."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._handles: list[OwnHook | Visit] = []
        self._chosen = Modules()
        self._known = -1

    @abstractmethod
    def chosen(self, modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
        """Return the layers to read, by path."""

    def arrives(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Handle a layer's call before it runs."""

    def leaves(self, path: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Handle a layer's call after it has run."""

    def call_begins(self, call: Call) -> None:
        """Set the hooks for one training pass."""
        if not self.scene.reading or not call.grad or call.evaluating:
            return
        self._remove()
        layers = self._layers()
        if not layers or _tracing() is not None or operation.transforming():
            return
        unseen = compiled_parts(call.module)
        for path, module in layers.items():
            if id(module) in unseen:
                continue
            arrives, leaves = _Arrives(self, path), _Leaves(self, path)
            visit = self.scene.hooks.visit(module, arrives, leaves)
            if visit is not None:
                self._handles.append(visit)
                continue
            self._handles.append(add_hook(module, "_forward_pre_hooks", arrives))
            self._handles.append(add_hook(module, "_forward_hooks", leaves))

    def call_ends(self, call: Call, output: Any) -> None:
        """Remove the hooks."""
        if self._handles:
            self._remove()

    def step_closes(self) -> None:
        """Remove hooks that a pass that raised has left."""
        if self._handles:
            self._remove()

    def stop(self) -> None:
        """Remove the hooks."""
        self._remove()

    def listens(self) -> bool:
        """Return True if the current call is to be read: in the followed thread, outside of compiling and tracing."""
        if torch.compiler.is_compiling() or not self._handles:
            return False
        return _tracing() is None and self.scene.hooks.here()

    def _layers(self) -> Modules:
        modules = self.scene.hooks.modules
        if modules.changes != self._known:
            self._known, self._chosen = modules.changes, Modules()
            ours = {path: m for path, m in modules.items() if hookable(type(m)) and not is_a(m, torch.jit.ScriptModule)}
            for path, module in self.chosen(ours).items():
                self._chosen[path] = module
        return self._chosen

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Hook:
    """One hook of a visit. It never raises into the program; a copy of it does nothing."""

    def __init__(self, owner: Visits | None, path: str) -> None:
        self.owner, self.path = owner, path

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (None, self.path))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)(None, self.path)

    def told(self, moment: str, *args: Any) -> None:
        """Pass a call on to the reader."""
        owner = self.owner
        if owner is None:
            return
        try:
            if not owner.listens():
                return
            with unheard():
                ungraded(getattr(owner, moment), self.path, *args)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            owner.scene.tally.caught("following calls of layers")


class _Arrives(_Hook):
    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.told("arrives", module, args)


class _Leaves(_Hook):
    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.told("leaves", module, args, output)
