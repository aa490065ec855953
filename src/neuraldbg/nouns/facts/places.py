"""The PLACES fact: the lines of the user's code at which a step happens."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class PlacesFact(Known):
    """Lines of the user's code by what happens there, at most 4 of a kind, and the lines of whole functions."""

    KEY: ClassVar = "places"
    WHOLE: ClassVar = "lines"

    lines: dict[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    """Lines by kind: "forward" (a model is called in training), "evaluation" (a model is called to evaluate it),
    "backward" (a backward pass is called), "backward N" (the same, before a step of optimizer N), "step" (an optimizer
    steps), "optimizer" and "scheduler" (one is created), "loss" (the loss is computed), "loss N" (that of optimizer N),
    "softmax" and "sigmoid" (one is applied on the way to the loss), "layer PATH" (the layer is created). "code of F"
    has the lines of a function F that a training step uses, without comments; "code above F" those of one that called
    it, or that only such a one names."""
