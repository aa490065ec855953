"""The OPTIMIZER fact: the settings of one optimizer, and the tensors that it holds."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ParameterGroup:
    """The settings of one parameter group, as its optimizer held them after a step."""

    params: Count = 0
    """Tensors in the group."""
    lr: float | None = None
    """Learning rate, None if the group has none."""
    weight_decay: float = 0.0
    """Weight decay, 0 if the group has none."""
    momentum: float = 0.0
    """Momentum of SGD and RMSprop, 0 if the group has none."""
    betas: float | tuple[float, ...] = ()
    """Decay rates of Adam's moments; empty if the group has none, one number in some optimizers of other libraries."""
    eps: float | None = None
    """Epsilon in the denominator, None if the group has none, or several as Adafactor has."""
    alpha: float | None = None
    """Smoothing of RMSprop, None if the group has none."""
    max_iter: float | None = None
    """Largest number of iterations of LBFGS in a step, None if the group has none."""
    nesterov: bool | float | tuple[float, ...] = False
    """Switch of Nesterov's momentum, False if the group has none."""
    amsgrad: bool | float | tuple[float, ...] = False
    """Switch of AMSGrad, False if the group has none."""
    centered: bool | float | tuple[float, ...] = False
    """Switch of the centred RMSprop, False if the group has none."""
    decoupled_weight_decay: bool | float | tuple[float, ...] = False
    """Switch of weight decay beside the gradient, as in AdamW; False if the group has none."""
    maximize: bool | float | tuple[float, ...] = False
    """Switch of steps along the gradient instead of against it, False if the group has none."""
    dampening: float = 0.0
    """Dampening of SGD's momentum, 0 if the group has none."""
    fused: bool | float | tuple[float, ...] = False
    """Switch of the fused implementation, False if it was not asked for."""
    foreach: bool | float | tuple[float, ...] = False
    """Switch of the implementation over lists of tensors, False if it was not asked for."""


@frozen
class OptimizerFact(Known):
    """One optimizer at one of its steps: its settings, and the tensors in its groups."""

    KEY: ClassVar = "optimizer"

    foreign_no_grad: Count
    """Tensors of ``foreign`` whose gradient is None."""
    owned: Count
    """Tensors in its groups that are parameters of a watched model."""
    stream: Count = 0
    """Number of the optimizer, in the order of first steps."""
    type: str = ""
    """Name of its class."""
    groups: tuple[ParameterGroup, ...] = ()
    """Parameter groups, in the optimizer's order."""
    foreign_shapes: tuple[tuple[Count, ...], ...] = ()
    """Shapes of the first ``foreign`` tensors, at most 8."""
    decayed_norms: tuple[str, ...] = ()
    """Names of gains and offsets of normalisation layers in a group with weight decay, at most 32."""
    foreign: Count = 0
    """Tensors in its groups that no watched model owns."""
    frozen: Count = 0
    """Tensors in its groups that do not require gradients."""
    idle: Count = 0
    """Tensors of ``owned`` that never had a gradient."""
    decayed: Count = 0
    """Tensors in groups with weight decay."""
    undecayed: Count = 0
    """Tensors in groups without weight decay."""
