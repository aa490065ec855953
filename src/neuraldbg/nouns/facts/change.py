"""The CHANGE fact: a setting of the program that changed while it trained."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ChangeFact(Known):
    """One change of a setting between two steps at whose ends it was read."""

    KEY: ClassVar = "change"

    what: str
    """Setting: ``momentum``, ``weight_decay``, ``beta1``, ``beta2``, ``eps``, ``dampening`` or ``maximize`` of an
    optimizer, ``clip`` for the limit of the norm of its gradients, ``optimizer`` for an optimizer object that took the
    place of another, ``weights`` for weights that something else than a step of the optimizer has changed,
    ``gradients`` for the number of its parameters that get a gradient, of those that got one before, ``training`` for
    the mode of a model or of a layer, ``dropout`` for the probability of a layer, ``trainable`` for the number of
    parameters that require a gradient, ``steps`` for an optimizer that is cleared and no longer stepped."""
    since: int
    """Last step that ended with the value before."""
    until: int
    """First step that was seen to end with the value after."""
    before: float | None = None
    """Value before, 1 and 0 for a mode or a switch; None for an optimizer object, for weights, and for a limit where
    there was none."""
    after: float | None = None
    """Value after, as ``before``; of weights the largest change, relative to a weight's size, of steps the
    backward passes without one."""
    stream: Count | None = None
    """Number of the optimizer, None if the setting is a model's."""
    name: str = ""
    """Path of the layer, or name of the model; empty for a setting of an optimizer."""
    names: tuple[str, ...] = ()
    """Names of the parameters that were frozen, unfrozen or changed, that lost their gradient or got one again, at most
    16."""
