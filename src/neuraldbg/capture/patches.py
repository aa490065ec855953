"""What we put in place of torch's own functions while a session runs, and the certainty that it is put back.

    torch.autograd.backward, torch.autograd.grad    the loss, before its graph is freed
    torch.nn.Module.__call__                        which model is called, and whether with gradients
    torch.nn.utils.clip_grad._clip_grads_with_norm_ the gradient norm before clipping, and the limit
    torch.autograd.graph.saved_tensors_hooks        where saved tensors are packed and must not be looked at
    torch.jit.script                                runs without our hooks, which it cannot compile
    torch.amp.GradScaler.scale, .step               the loss scale and skipped steps
    torch._dynamo.utils.nnmodule_has_hooks          for what Dynamo does otherwise, since a layer has hooks

A patch is removed only if it is still the one in place: a tool that patched after us keeps working, and our function
stays harmless below it. Where what is above it is of another session, that one puts back what was before both.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.packed import wrap_enter, wrap_exit
from neuraldbg.capture.unseen import passed_through, wrap_has_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from neuraldbg.capture.hooks import HookManager
    from neuraldbg.capture.losses import Losses
    from neuraldbg.capture.models import Models
    from neuraldbg.capture.optimizers import Optimizers


_DYNAMO = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_UNPATCHED = "unpatched_nn_module_call"
"""Where Dynamo keeps what ``nn.Module.__call__`` was when it was imported, and by which name."""


class Patches:
    """Replaces attributes, and restores them in reverse order."""

    def __init__(self) -> None:
        self._saved: list[_Put] = []
        self._followed = False
        self._call: Any = None

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(original)``."""
        own = name in vars(owner)
        original = getattr(owner, name)
        patched = make(original)
        passed_through(patched)
        setattr(owner, name, patched)
        put = _Put(owner, name, vars(owner).get(name, patched), original, own)
        self._saved.append(put)
        _in_place.append(put)

    def listen(
        self,
        losses: Losses,
        models: Models,
        optimizers: Optimizers,
        hooks: HookManager,
        scaled: Callable[[Tensor, float], None],
    ) -> None:
        """Put in place what the capture itself stands in for. ``scaled`` is told what a gradient scaler scaled."""
        self.put(torch.autograd, "backward", lambda f: losses.wrap(f, "tensors"))
        self.put(torch.autograd, "grad", lambda f: losses.wrap(f, "outputs"))
        self.put(nn.Module, "__call__", models.wrap_call)
        self._call = vars(nn.Module)["__call__"]
        if hasattr(torch.nn.utils.clip_grad, "_clip_grads_with_norm_"):
            self.put(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", optimizers.wrap_clip)
        self.put(torch.autograd.graph.saved_tensors_hooks, "__enter__", wrap_enter)
        self.put(torch.autograd.graph.saved_tensors_hooks, "__exit__", wrap_exit)
        self.put(torch.jit, "script", hooks.wrap_script)
        self.put(torch.amp.GradScaler, "scale", optimizers.wrap_scaler_scale(scaled))
        self.put(torch.amp.GradScaler, "step", optimizers.wrap_scaler_step)

    def follow_imports(self) -> None:
        """Hide our hooks from Dynamo, once the program has brought it in."""
        if not self._followed and "torch._dynamo.utils" in sys.modules:
            utils = sys.modules["torch._dynamo.utils"]
            if hasattr(utils, "nn_module_get_all_hooks") and hasattr(utils, "nnmodule_has_hooks"):
                self._followed = True
                self.put(utils, "nnmodule_has_hooks", wrap_has_hooks)

    def hears_calls(self) -> bool:
        """Whether what stands in for ``nn.Module.__call__`` is what is called: no other tool has put its own there."""
        return nn.Module.__dict__.get("__call__") is self._call

    def restore(self) -> None:
        """Put everything back."""
        self._followed = False
        while self._saved:
            put = self._saved.pop()
            _in_place.remove(put)
            if vars(put.owner).get(put.name) is not put.patched:
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
    """A function of ours in the place of ``original``, which ``owner`` itself held or inherited."""

    owner: Any
    name: str
    patched: Any
    original: Any
    own: bool

    def pass_on(self) -> None:
        """Let the function of a session that began later, which stands above this one, be followed by the original."""
        for other in _in_place:
            if other.owner is self.owner and other.name == self.name and other.original is self.patched:
                other.original, other.own = self.original, self.own


_in_place: list[_Put] = []
"""What all sessions have put in place, in order."""


def _tell_dynamo(patched: Any, original: Any) -> None:
    """Let Dynamo, which came in while we stood in for ``nn.Module.__call__``, know torch's own: where it finds another
    it takes each module for one that is called in its own way.
    """
    for name in _DYNAMO:
        if getattr(sys.modules.get(name), _UNPATCHED, None) is patched:
            setattr(sys.modules[name], _UNPATCHED, original)
