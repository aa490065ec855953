"""The RANKS fact: how this process trains one model together with others."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class RanksFact(Known):
    """The machine of a process, and what its models have in common with those of other ranks. Its rank, and the number
    of ranks, are in ``RunInfo.job``.
    """

    KEY: ClassVar = "ranks"

    host: str = ""
    """Name of the machine."""
    backend: str = ""
    """Backend of the default process group: "gloo", "nccl"; "" if there is no group."""
    wrappers: dict[str, str] = field(default_factory=dict)
    """Class that wraps each model where it is called, by model: "DistributedDataParallel", "FSDPMLP"; "" for none."""
    buffers_broadcast: bool = False
    """True if a wrapper copies the buffers of rank 0 to the others in each forward pass."""
    parts: Count = 0
    """Parameters of which this rank holds a part."""
    random_layers: Count = 0
    """Layers in training mode that draw random numbers, such as dropout."""
