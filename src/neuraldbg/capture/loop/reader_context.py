"""The context of readers: the parts of the capture stage that they see, and the log of their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.capture.guest.source_trace import Source
from neuraldbg.nouns import Fact
from neuraldbg.nouns.fact import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from neuraldbg.capture.guest.guard import Switch, Tally
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.backward import Losses
    from neuraldbg.capture.loop.models import Models
    from neuraldbg.capture.loop.native_steps import NativeSteps
    from neuraldbg.capture.loop.optimizers import Optimizers
    from neuraldbg.capture.parameters.parameters import Params
    from neuraldbg.config import CaptureSettings
    from neuraldbg.nouns import FactKey

_ORDER = 48
"""Tokens of one step that are kept: a rollout may call its model a thousand times."""


class Scene:
    """The parts of the capture stage, the current step's scalars, and the log of facts."""

    def __init__(self, settings: CaptureSettings, hooks: HookManager, params: Params, switch: Switch) -> None:
        self.settings = settings
        self.hooks = hooks
        """Layers (``hooks.modules``: path -> module), probes and the table."""
        self.params = params
        """``params.by_id``: every parameter of the watched models by the identity of its tensor."""
        self.switch = switch
        self.models: Models
        self.optimizers: Optimizers
        self.losses: Losses
        self.light: NativeSteps
        """Given by ``complete``: the readers are made with the scene, before the parts that they listen to."""
        self.reading = True
        """True if graph and facts are read in this step: in the first steps, then in a few at an even pace."""
        self.scalars: dict[str, float] = {}
        """Scalars of the current step beside those of ``capture.py``; ``nouns.step`` lists names and meanings."""
        self.order: list[str] = []
        """Actions of the loop since the last optimizer step, as tokens of the ORDER fact: readers add theirs."""
        self.facts: list[Fact] = []
        """Facts logged since the last step was closed."""
        self._logged: dict[tuple[str, ...], dict[str, Any]] = {}
        self._sources: dict[str, Source] = {}
        self.by_hand = False
        """True if the program updates weights without an optimizer of torch."""
        self.join: Callable[[Any], None] = lambda reader: None
        """Adds a reader while the session runs, as a part of the profile does; given by ``Readers``."""
        self.keep: Callable[[int, Mapping[str, npt.NDArray[Any]]], str] = lambda step, arrays: ""
        """Keeps the batch of a step, arrays by name. Returns the name of its file, "" if it is not kept."""
        self.room: Callable[[], int] = int
        """Returns the number of bytes that are left for batches."""
        self.kept: dict[str, str] = {}
        """The batches that were kept: names of their files by step, in decimal digits."""
        self.schedulers = 0
        """Learning-rate schedulers that the program has made in light steps."""
        self.idle = False
        """True if an optimizer with the watched tensors was cleared, or found, before it ever stepped."""

    def complete(self, models: Models, optimizers: Optimizers, losses: Losses, light: NativeSteps) -> None:
        """Add the parts that are made after the scene, which they report to."""
        self.models, self.optimizers, self.losses, self.light = models, optimizers, losses, light

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.hooks.tally

    @property
    def step(self) -> int:
        """The number of the current step."""
        return self.hooks.step + self.light.waiting

    def source(self, file: str) -> Source:
        """Return the syntax tree of a file of the program, which is parsed once."""
        if file not in self._sources:
            self._sources[file] = Source(file)
        return self._sources[file]

    def did(self, token: str) -> None:
        """Record an action of the loop, for its order within a step. A block that repeats at once is recorded once."""
        order = self.order
        if order and order[-1] == token:
            return
        order.append(token)
        count = len(order)
        for size in (2, 3, 4):
            # The last tokens are compared first: usually they differ, and slices at every token are expensive.
            if count >= 2 * size and order[-1 - size] == token and order[-size:] == order[-2 * size : -size]:
                del order[-size:]
                return
        if count > _ORDER:
            order.pop()

    def log(self, key: FactKey, value: dict[str, Any]) -> None:
        """Log a fact if it is new: a JSON object, distinguished from others of its key by its IDENTITY."""
        identity = (key.value, *(str(value.get(name)) for name in IDENTITY.get(key.value, ())))
        if self._logged.get(identity) != value:
            self._logged[identity] = value
            self.facts.append(Fact(self.step, key.value, value))
            self.light.hurry()
