"""One stop of the training: where it is, what is bound there, and what the prompt may ask of the session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMES = ("layer", "layer_name", "inputs", "output", "grad", "model", "optimizer", "step", "loss", "dbg")
"""Names that are bound at a stop; None where there is no such value at this moment."""
QUIT = "quit"
"""Answer of a stop if the training is to end."""


class Controls(Protocol):
    """The session's part: the numbers that commands show, and the next stop."""

    def layers(self) -> Sequence[tuple[str, str, str]]:
        """Return (path, type, alias) of each layer."""

    def statistics(self, value: Any) -> Mapping[str, float]:
        """Return the statistics of the first tensor of a value."""

    def numbers(self, value: Any) -> Any:
        """Return the numbers of the first tensor of a value, as a flat array; None if it has none that can be drawn."""

    def otherwise(self, value: Any) -> str:
        """Return why a value has no numbers to show, and what has; "" without a tensor."""

    def diagnosis(self) -> str:
        """Return the diagnosis of the run so far, as text."""

    def stop_next_layer(self) -> None:
        """Stop before the next layer that is called."""

    def stop_next_step(self) -> None:
        """Stop at the first layer of the next step."""

    def stop_at(self, name: str) -> str:
        """Stop when a named event or cause is seen, or a layer has run. Return what it is, in words. Raises
        NeuralDbgError for an unknown name.
        """


@dataclass
class Stop:
    """One stop: where it is, and what is bound there."""

    title: str
    names: Mapping[str, Any]
    """Values by NAMES."""
    main: str
    """Name among NAMES of the tensor that this moment is about: ``inputs``, ``output``, ``grad``; "" at a step."""
    controls: Controls
    watched: list[str] = field(default_factory=list)
    """Expressions that are shown at each stop; the same list for all stops of a session."""


class NoAnswer(Exception):
    """Raised if a prompt cannot read a line, such as in a notebook that takes no input."""
