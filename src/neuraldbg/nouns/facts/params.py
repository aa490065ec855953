"""TODO params."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Where the parameters of all watched models stand: {"total": int, "frozen": [name] (requires_grad=False and in a called layer), "not_in_optimizer": [name] (got a gradient, in no group of any optimizer seen), "no_grad": [name] (requires grad, gradient None at the step), "uncalled": [name] (owner never called), "zero_lr": [name], "tied": [[name, name]]}. Logged at the first steps and then at steps 2**k.
@dataclass(frozen=True, kw_only=True)
class ParamsFact(Known):
    """TODO."""

    KEY: ClassVar = "params"

    total: Count | None = None
    tied: tuple[tuple[str, ...], ...] = ()
    frozen: tuple[str, ...] = ()
    not_in_optimizer: tuple[str, ...] = ()
    no_grad: tuple[str, ...] = ()
    uncalled: tuple[str, ...] = ()
    zero_lr: tuple[str, ...] = ()
