"""The wrappers of torch's own functions while a session runs, and their reliable removal.

    torch.autograd.backward, torch.autograd.grad    the loss, before its graph is freed
    torch.nn.Module.__call__                        calls of models, with or without gradients
    torch.nn.utils.clip_grad._clip_grads_with_norm_ the gradient norm before clipping, and the limit
    torch.autograd.graph.saved_tensors_hooks        regions in which saved tensors are packed and must not be read
    torch.jit.script (its inner part)               runs without our hooks, which it cannot compile
    torch.amp.GradScaler.scale, .step               the loss scale and skipped steps
    torch._dynamo.utils.nnmodule_has_hooks          hides our hooks, since Dynamo treats layers with hooks differently
    those of logging tools                          what the program logs: see ``logging_tools.py``

A patch is removed only if it is still in place: the patch of a tool that came after us keeps working, and our function
below it passes calls through. If the patch above is another session's, that session restores the original of both.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.autograd.saved_tensors import REGIONS
from neuraldbg.capture.guest.dynamo_skip import passed_through, wrap_has_hooks
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.stand_in import stand_in
from neuraldbg.capture.guest.weak_references import without_ours
from neuraldbg.capture.loop.logging_tools import LoggingTools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.backward import Losses
    from neuraldbg.capture.loop.logged_metrics import Metrics
    from neuraldbg.capture.loop.models import Models
    from neuraldbg.capture.loop.optimizers import Optimizers


_SCRIPT = ((torch.jit._script, "_script_impl"), (torch.jit, "script"))  # noqa: SLF001 (what script_if_tracing calls, too)
"""The functions that compile for TorchScript; the first that exists is wrapped."""
_DYNAMO = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_UNPATCHED = "unpatched_nn_module_call"
"""Modules of Dynamo that store the ``nn.Module.__call__`` of their import, and the name under which they do."""


class Patches:
    """Replaces attributes, and restores them in reverse order."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._saved: list[_Put] = []
        self._followed = False
        self._call: Any = None
        self.tools = LoggingTools(metrics, self.surround, self.original_of) if metrics is not None else None
        """Wraps functions of logging tools by these patches. None if none are to be wrapped."""

    def surround(self, owner: Any, name: str, around: Callable[..., Around]) -> None:
        """Wrap ``owner.name`` by a generator of ours: see ``stand_in.py``. A function that torch has in two places gets
        one wrapper in both: it is pickled by the name of one of them.
        """
        self.put(owner, name, lambda original: self._known(original, around) or stand_in(original, around))
        self._saved[-1].around = around

    def _known(self, original: Any, around: Callable[..., Around]) -> Any:
        same = (put for put in self._saved if put.original is original and put.around == around)
        return next((put.patched for put in same if isinstance(put.owner, ModuleType)), None)

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(original)``."""
        own = name in vars(owner)
        original = getattr(owner, name)
        put = _Put(owner, name, make(original), original, own)
        # Known before it is there: a signal handler of the program may raise at any of these lines.
        self._saved.append(put)
        _in_place.append(put)
        setattr(owner, name, put.patched)
        put.patched = vars(owner).get(name, put.patched)

    def listen(
        self,
        losses: Losses,
        models: Models,
        optimizers: Optimizers,
        hooks: HookManager,
        scaled: Callable[[Tensor, float, Any], None],
    ) -> None:
        """Set the wrappers of the capture itself. ``scaled`` is called with a tensor that a gradient scaler scaled."""
        self.surround(torch.autograd, "backward", losses.surrounds("tensors"))
        self.surround(torch.autograd, "grad", losses.surrounds("outputs"))
        self.put(nn.Module, "__call__", lambda call: passed_through(models.wrap_call(call)))
        self._call = vars(nn.Module)["__call__"]
        if hasattr(torch.nn.utils.clip_grad, "_clip_grads_with_norm_"):
            self.surround(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", optimizers.clips)
        self.surround(torch.autograd.graph.saved_tensors_hooks, "__enter__", REGIONS.enters)
        self.surround(torch.autograd.graph.saved_tensors_hooks, "__exit__", REGIONS.leaves)
        for owner, name in _SCRIPT:
            if hasattr(owner, name):
                self.surround(owner, name, functools.partial(self._scripts, hooks))
                break
        if hasattr(torch.utils, "weakref"):
            self.put(torch.utils, "weakref", without_ours)
        if self.tools is not None:
            self.tools.follow_imports()
        self.surround(torch.amp.GradScaler, "scale", functools.partial(optimizers.scales, scaled))
        self.surround(torch.amp.GradScaler, "step", optimizers.scaler_steps)

    def _scripts(self, hooks: HookManager, obj: Any, *args: Any, **kwargs: Any) -> Around:
        """Wrap ``torch.jit.script``, which compiles from source, so that it sees neither our hooks nor our wrappers in
        torch's modules.
        """
        with hooks.off(obj), self._functions_back():
            if native is not None:
                yield
            else:  # names are looked up in the caller's frame, and ours is in between
                yield (obj, *args), {**kwargs, "_frames_up": kwargs.get("_frames_up", 0) + 1}

    @contextlib.contextmanager
    def _functions_back(self) -> Iterator[None]:
        """Restore the originals in modules of torch in this context."""
        lifted: list[_Put] = []
        try:
            # Of two wrappers of one function the lower one stands once the upper is off.
            for put in reversed(self._saved):
                if is_a(put.owner, ModuleType) and put.stands():
                    lifted.append(put)
                    setattr(put.owner, put.name, put.original)
            yield
        finally:
            for put in reversed(lifted):
                if put in self._saved and vars(put.owner).get(put.name) is put.original:  # not if the session has ended
                    setattr(put.owner, put.name, put.patched)

    def follow_imports(self) -> None:
        """Hide our hooks from Dynamo, and wrap logging tools, once the program has imported them."""
        if self.tools is not None:
            self.tools.follow_imports()
        if not self._followed and "torch._dynamo.utils" in sys.modules:
            utils = sys.modules["torch._dynamo.utils"]
            if hasattr(utils, "nn_module_get_all_hooks") and hasattr(utils, "nnmodule_has_hooks"):
                self._followed = True
                self.put(utils, "nnmodule_has_hooks", lambda has: passed_through(wrap_has_hooks(has)))

    def hears_calls(self) -> bool:
        """Return True if ``nn.Module.__call__`` is our replacement: no other tool has put its own on top."""
        return nn.Module.__dict__.get("__call__") is self._call

    def original_of(self, function: Any) -> Any:
        """Return the function that a wrapper of ours stands for, None for any other function."""
        return next((put.original for put in self._saved if put.patched is function), None)

    def restore(self) -> None:
        """Restore all originals."""
        if self.tools is not None:
            self.tools.let_go()
        self._followed = False
        while self._saved:
            put = self._saved.pop()
            if put in _in_place:
                _in_place.remove(put)
            if not put.stands():
                put.pass_on()
                continue
            if put.own:
                setattr(put.owner, put.name, put.original)
            else:
                delattr(put.owner, put.name)
            if put.patched is self._call:
                _tell_dynamo(put.patched, put.original)


@dataclass(eq=False)
class _Put:
    """A patch of ours over ``original``, which ``owner`` itself held or inherited."""

    owner: Any
    name: str
    patched: Any
    original: Any
    own: bool
    around: Callable[..., Around] | None = None

    def stands(self) -> bool:
        """Return True if the patch is still in place."""
        return vars(self.owner).get(self.name) is self.patched

    def pass_on(self) -> None:
        """Give the original to the patch of a later session above this one, which then restores it."""
        for other in _in_place:
            if other.owner is self.owner and other.name == self.name and other.original is self.patched:
                other.original, other.own = self.original, self.own


_in_place: list[_Put] = []
"""The patches of all sessions, in order."""


def _tell_dynamo(patched: Any, original: Any) -> None:
    """Give Dynamo, imported while ``nn.Module.__call__`` was replaced, torch's own function: where it finds another
    function it takes each module for one with a custom call.
    """
    for name in _DYNAMO:
        if getattr(sys.modules.get(name), _UNPATCHED, None) is patched:
            setattr(sys.modules[name], _UNPATCHED, original)
