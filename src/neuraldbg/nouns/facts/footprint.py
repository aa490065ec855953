"""The FOOTPRINT fact: the memory of a step, and of each layer, by what it holds."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class LayerFootprint:
    """Bytes of one layer, without the layers inside of it, but for its peak."""

    layer: str
    """The path of the layer."""
    parameters: Count = 0
    """Bytes of its parameters and buffers; shared ones count at the first layer that has them."""
    gradients: Count = 0
    """Bytes of the gradients of its parameters, before the optimizer's step."""
    optimizer: Count = 0
    """Bytes that the optimizer keeps for its parameters."""
    activations: Count | None = None
    """Bytes of its outputs in a step, each storage once; None if no step was recorded."""
    peak: Count | None = None
    """The most bytes of tensors that were alive at one time while it or a layer inside of it ran forward."""
    backward_peak: Count | None = None
    """The most bytes of tensors that were alive at one time during the backward pass of its operations."""
    parameter_count: Count | None = None
    """Number of its parameters, as the program gave it by hand; None if it did not."""


GIVEN = "numbers of the program"
"""The method of memory that the program itself gives: the peaks of layers, and nothing of what they hold."""


@frozen
class FootprintFact(Known):
    """The memory of one measured step."""

    KEY: ClassVar = "footprint"

    step: Count
    """The measured step."""
    method: str
    """The way of measuring, in words: "sizes" of the tensors that are known, "CPU allocator", "CUDA allocator"; GIVEN
    where the program gave them."""
    peak: Count | None = None
    """The most bytes of tensors that were alive at one time in the step."""
    whole_run: bool = False
    """True if ``peak`` is the most since the program began, as a CUDA allocator counts it: no step was recorded."""
    peak_at: str = ""
    """The moment of the peak, in words: "backward of 'encoder.2'"."""
    parameters: Count = 0
    """Bytes of all parameters and buffers."""
    gradients: Count = 0
    """Bytes of all gradients."""
    optimizer: Count = 0
    """Bytes of the state of all optimizers."""
    activations: Count | None = None
    """Bytes of what was alive at the end of the forward pass beside parameters, gradients and optimizer state; None if
    no step was recorded."""
    beside: Count | None = None
    """Bytes on a CUDA device that are there all the time beside the model, its gradients and the optimizer's state: a
    data set, another model; None if not known, as on the CPU."""
    device_total: Count | None = None
    """Bytes of memory of the device, or of the machine; None if unknown, or if there are several devices."""
    layers: tuple[LayerFootprint, ...] = ()
    """The layers in the order of their first call."""

    @property
    def by_hand(self) -> bool:
        """True if the program gave the peaks of its layers: bytes of parameters, gradients and optimizer are not known.

        >>> from neuraldbg.nouns.facts.footprint import FootprintFact
        >>> FootprintFact(step=3, method="numbers of the program", peak=2**20).by_hand
        True
        """
        return self.method == GIVEN
