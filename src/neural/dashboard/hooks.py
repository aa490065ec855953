"""The decorator ``register_hook``, which is ``neuraldbg.register_hook``; loaded when it is first used.

from neural.dashboard.hooks import register_hook

@register_hook("after_layer")
def inspect_activations(layer_name, activations):
    print(f"{layer_name}: mean={activations.mean()}")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuraldbg import register_hook

__all__ = ["register_hook"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "register_hook":
            message = f"module 'neural.dashboard.hooks' has no attribute {name!r}"
            raise AttributeError(message)
        import neuraldbg  # noqa: PLC0415 (it takes long)

        return neuraldbg.register_hook
