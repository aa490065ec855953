"""TODO optimizer."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: One optimizer: {"stream": int, "type": str, "groups": [{"lr", "weight_decay", "momentum", "betas", "eps", "params": int}], "foreign": int (tensors of its groups that no watched model owns), "foreign_no_grad": int (those of them whose gradient is None), "frozen": int (those that do not require gradients), "owned": int, "idle": int (those of the owned that never had a gradient), "foreign_shapes": [[int]] (at most 8), "decayed_norms": [name] (gains and offsets of normalisation layers in a group with weight decay, at most 32), "decayed": int and "undecayed": int (parameters in groups with and without)}.
@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """TODO."""

    params: Count | None = None
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    betas: tuple[float, ...] = ()
    eps: float | None = None
    alpha: float | None = None
    max_iter: float | None = None
    nesterov: bool | float | tuple[float, ...] | None = None
    amsgrad: bool | float | tuple[float, ...] | None = None
    centered: bool | float | tuple[float, ...] | None = None
    decoupled_weight_decay: bool | float | tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class OptimizerFact(Known):
    """TODO."""

    KEY: ClassVar = "optimizer"
    IDENTITY: ClassVar = "stream"

    foreign_no_grad: Count
    owned: Count
    stream: Count | None = None
    type: str = ""
    groups: tuple[ParameterGroup, ...] = ()
    foreign_shapes: tuple[tuple[Count, ...], ...] = ()
    decayed_norms: tuple[str, ...] = ()
    foreign: Count | None = None
    frozen: Count | None = None
    idle: Count | None = None
    decayed: Count | None = None
    undecayed: Count | None = None
