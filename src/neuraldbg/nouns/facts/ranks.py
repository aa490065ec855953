"""The RANKS fact: the place of this process among those that train one model together."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class RanksFact(Known):
    """The place of a process in its job, as the launcher and ``torch.distributed`` give it."""

    KEY: ClassVar = "ranks"

    rank: Count
    """Rank of the process."""
    world: Count
    """Number of processes."""
    local_rank: Count = 0
    """Rank of the process among those of its machine."""
    host: str = ""
    """Name of the machine."""
    job: str = ""
    """Name of the job, equal on all ranks and restarts: TORCHELASTIC_RUN_ID; "" if the launcher gives none."""
    restart: Count = 0
    """Number of times that the launcher has started the workers again before."""
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
