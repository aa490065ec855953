"""The ARCHITECTURE fact: the structure of a model and the sizes of its layers, as they were recorded by hand."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen

ROWS = 1000
"""Largest number of layers that are listed."""


@frozen
class LayerRow:
    """One layer of the model that has parameters of its own, or is of a type that is known."""

    path: str
    """Path of the layer; empty for the model itself."""
    type: str = ""
    """Class name of the layer; empty if it is not known."""
    parameters: Count = 0
    """Number of parameters of the layer itself, without the layers inside of it."""
    trainable: Count | None = None
    """Number of those that training changes. None if it is not known."""
    shape: tuple[Count, ...] = ()
    """Shape of its largest parameter; empty if it has none."""


@frozen
class ArchitectureFact(Known):
    """The structure of a model. Numbers that were not given, and cannot be read from the model, are None."""

    KEY: ClassVar = "architecture"

    total_parameters: Count
    """Number of parameters; one that several layers share counts once."""
    trainable_parameters: Count | None = None
    """Number of parameters that training changes."""
    model: str = ""
    """Name of the model: its class."""
    model_size_mb: float | None = None
    """Megabytes (10**6 bytes) of the parameters."""
    layer_count: Count | None = None
    """Number of layers with parameters."""
    layer_types: dict[str, Count] = field(default_factory=dict)
    """Number of layers by type."""
    depth: Count | None = None
    """Number of layers with parameters that data passes one after the other."""
    width: Count | None = None
    """Largest number of outputs of a layer."""
    activation_functions: tuple[str, ...] = ()
    """Types of the activation functions."""
    dataset_samples: Count | None = None
    """Number of different samples of the training data."""
    layers: tuple[LayerRow, ...] = ()
    """The layers in the order of the model, at most ROWS."""
