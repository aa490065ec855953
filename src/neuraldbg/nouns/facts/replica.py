"""The REPLICA fact: fingerprints of what the ranks of a job are to hold alike, from the same steps on each rank."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen

DIGITS = 8
"""Hexadecimal digits of one fingerprint, a CRC-32."""
NONE = "-" * DIGITS
"""Fingerprint of a gradient that is not there, and of a tensor that cannot be read."""


@frozen
class Fingerprints:
    """Fingerprints of several tensors, each from evenly spaced elements as 32-bit floats."""

    crc: str = ""
    """CRC-32 of each tensor's sample, 8 hexadecimal digits each, without a separator."""
    norms: tuple[float, ...] = ()
    """Euclidean norm of each sample, -1 if it is not finite or the tensor cannot be read."""

    def of(self, at: int) -> str:
        """Return the fingerprint of one tensor, by its place among the names."""
        return self.crc[at * DIGITS : (at + 1) * DIGITS]


@frozen
class ReplicaFact(Known):
    """The weights, gradients and buffers of one optimizer's step, right before it: gradients are final, weights as
    the step before has left them.
    """

    KEY: ClassVar = "replica"

    stream: Count
    """Number of the optimizer."""
    names: tuple[str, ...] = ()
    """Paths of its parameters, in its order; empty if they are those of the version before."""
    held: str = ""
    """One letter for each parameter: "r" if each rank holds all of it, "p" if this rank holds a part of it."""
    weights: Fingerprints = Fingerprints()
    """Of the parameters."""
    gradients: Fingerprints = Fingerprints()
    """Of their gradients."""
    buffer_names: tuple[str, ...] = ()
    """Paths of the floating-point buffers of the models; empty if they are those of the version before."""
    samples: tuple[tuple[float, ...], ...] = ()
    """Some values of each buffer, evenly spaced; 0 stands for one that is not finite."""
    generator: str = ""
    """Fingerprint of the state of torch's generator on the CPU."""
    inputs: str = ""
    """Fingerprint of the inputs of the step's newest training pass; "" if they cannot be read."""
    input_mean: float | None = None
    """Mean of the first of them, from a sample; None if it cannot be read, or is not finite."""
    input_std: float | None = None
    """Standard deviation of the same sample."""
