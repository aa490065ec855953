"""What we put in place of torch's own functions while a session runs, and the certainty that it is put back.

    torch.autograd.backward, torch.autograd.grad    the loss, before its graph is freed
    torch.nn.Module.__call__                        which model is called, and whether with gradients
    torch.nn.utils.clip_grad._clip_grads_with_norm_ the gradient norm before clipping, and the limit
    torch.autograd.graph.saved_tensors_hooks        where saved tensors are packed and must not be looked at
    torch.jit.script                                runs without our hooks, which it cannot compile
    torch.amp.GradScaler.scale, .step               the loss scale and skipped steps

A patch is removed only if it is still the one in place: a tool that patched after us keeps working, and our function
stays harmless below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Patches:
    """Replaces attributes, and restores them in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any, Any, bool]] = []

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(original)``."""
        own = name in vars(owner)
        original = getattr(owner, name)
        patched = make(original)
        setattr(owner, name, patched)
        self._saved.append((owner, name, vars(owner).get(name, patched), original, own))

    def restore(self) -> None:
        """Put everything back."""
        while self._saved:
            owner, name, patched, original, own = self._saved.pop()
            if vars(owner).get(name) is not patched:
                continue
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
