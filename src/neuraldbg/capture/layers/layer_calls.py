"""Two functions around the calls of all layers, without a hook on any of them, in full and in light steps.

They are called by the replacement of ``nn.Module.__call__``, in front of all that readers have there. A layer inside of
a compiled graph is not seen: the whole of what was compiled is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.capture.layers.layer_hook import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from neuraldbg.capture.layers.layer_hook import Told


class LayerCalls:
    """Calls ``arrives`` and ``leaves`` around the calls of modules while it is on."""

    def __init__(
        self,
        direct: dict[int, Told],
        arrives: Callable[[nn.Module, Any], None],
        leaves: Callable[[nn.Module, Any, Any], None],
    ) -> None:
        self._direct, self._functions = direct, (arrives, leaves)
        self._modules: Callable[[], Iterable[nn.Module]] = tuple
        self._visits: list[Visit] = []
        self.on = False
        """True while the functions are called."""

    def turn_on(self, modules: Callable[[], Iterable[nn.Module]]) -> None:
        """Begin to call the functions around the calls of ``modules()``, which is asked again when readers change."""
        self._modules, self.on = modules, True
        self.put()

    def turn_off(self) -> None:
        """Stop calling the functions."""
        self.on = False
        self.lift()

    def put(self) -> None:
        """Set the functions in front of what readers have set meanwhile, if they are on."""
        if self.on:
            self.lift()
            self._visits = [Visit(self._direct, module, *self._functions, aside=True) for module in self._modules()]

    def lift(self) -> None:
        """Take the functions away until ``put`` is called."""
        for visit in self._visits:
            visit.remove()
        self._visits.clear()
