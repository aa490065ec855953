"""The moments of a training at which hooks run, and the values at a moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Moment: TypeAlias = Literal[
    "before_layer", "after_layer", "after_backward", "before_step", "after_step", "on_loss", "on_event"
]
"""The moments at which a hook may run."""
MOMENTS: tuple[Moment, ...] = get_args(Moment)
OF_LAYERS: tuple[Moment, ...] = ("before_layer", "after_layer", "after_backward")
"""The moments of a layer; the others are moments of a step."""
BETWEEN_STEPS: tuple[Moment, ...] = ("after_step", "on_loss", "on_event")
"""The moments at which the step has been applied, and the next one has not begun."""


@dataclass
class Context:
    """The values at one moment, for a callback: what a hook of any moment may ask for."""

    moment: Moment
    """Moment at which the hook runs."""
    step: int
    """Number of the step, from 0: the one that runs, or at a moment of a step the one that has just ended."""
    layer: str = ""
    """Path of the layer; "" at a moment of a step."""
    call: int = 1
    """Number of the layer's call within the step, from 1; at a gradient that of the call whose output it is of."""
    value: Any = None
    """Detached inputs, outputs or gradients of the layer at a moment of a layer, as nested as the program has them."""
    tensor: Any = field(default=None, repr=False)
    """First tensor of the value, detached. None if no action and no condition needs it."""
    loss: float | None = None
    """Loss of the step, at a moment of a layer that of the step before; None if none was read."""
    event: Any = None
    """The event, at ``on_event``."""
    inputs: Any = None
    """Inputs of the layer at ``after_layer``, as nested as the program has them, not detached."""
    optimizer: Any = None
    """The optimizer that is about to step, at ``before_step``."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """The scalars of the step that ended last, by the names of ``neuraldbg.control.condition.NAMES``."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """STATS, ``norm`` and ``absmax`` of the layer's first tensor; empty if no action and no condition needs them."""


@dataclass
class HookResult:
    """The result of one execution of a hook's action."""

    step: int
    """Number of the step, from 0."""
    moment: Moment
    """Moment at which the hook ran."""
    action: str
    """Name of the action: ``inspect_tensor``, ``track_gradients``, ..."""
    layer: str = ""
    """Path of the layer; "" at a moment of a step."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """STATS, ``norm`` and ``absmax`` of the first tensor; empty where an action reads none."""
    shape: tuple[int, ...] = ()
    """Shape of the first tensor; () without one."""
    dtype: str = ""
    """Dtype of the first tensor, such as "float32"; "" without one."""
    tensor: Any = field(default=None, repr=False)
    """Copy of the first tensor on the CPU. None except for recorded activations."""
    file: str = ""
    """Path of the saved file. "" except for snapshots."""
    tensor_id: int | None = None
    """Number under which the tensor inspector of a session by hand keeps the tensor; None if it does not."""
    message: str = ""
    """Text of an alert, or the reason of a halt."""
