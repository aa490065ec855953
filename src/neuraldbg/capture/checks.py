"""What may be watched: a model and an optimizer enter, an AttachError says what is wrong with them."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from neuraldbg.errors import AttachError


def check(model: object, optimizer: object = None) -> None:
    """Raise AttachError unless the model can be watched and the optimizer, if one is given, trains it."""
    if not isinstance(model, nn.Module):
        raise AttachError(f"expected a torch.nn.Module, got {_what(model)}")
    owned = {id(p) for p in model.parameters()}
    if not owned:
        raise AttachError(f"{type(model).__name__} has no parameters, so there is no training to watch")
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        message = (
            f"expected a torch.optim.Optimizer, got {_what(optimizer)}; for an optimizer of another kind leave it out "
            "and call capture_step() after each of its steps"
        )
        raise AttachError(message)
    if not any(id(p) in owned for group in optimizer.param_groups for p in group["params"]):
        raise AttachError(f"the optimizer holds no parameter of {type(model).__name__}: it was made for another model")


def _what(value: object) -> str:
    return f"the class {value.__name__}: make an instance" if isinstance(value, type) else type(value).__name__
