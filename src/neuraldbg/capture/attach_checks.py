"""The checks before attaching: a model and an optimizer in, an AttachError that says what is wrong with them out."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from neuraldbg.capture.guest.module_tree import parameters, tensors
from neuraldbg.capture.guest.program_objects import is_a, kind_name, name_of
from neuraldbg.capture.guest.tensor_kinds import silently
from neuraldbg.errors import AttachError


@silently
def check(model: object, optimizer: object = None) -> None:
    """Raise AttachError unless the model can be watched and the optimizer, if one is given, trains it."""
    if not is_a(model, nn.Module):
        raise AttachError(f"expected a torch.nn.Module, got {_what(model)}")
    owned = {id(p) for p in parameters(model)}
    if not owned:
        raise AttachError(f"{name_of(model)} has no parameters, so there is no training to watch")
    if optimizer is None:
        return
    if not is_a(optimizer, Optimizer):
        message = (
            f"expected a torch.optim.Optimizer, got {_what(optimizer)}; leave out an optimizer of another kind: "
            "its updates of the model's weights are seen after each backward pass"
        )
        raise AttachError(message)
    if not any(id(p) in owned for p in tensors(optimizer)):
        raise AttachError(f"the optimizer holds no parameter of {name_of(model)}: it was made for another model")


def _what(value: Any) -> str:
    return f"the class {kind_name(value)}: make an instance" if is_a(value, type) else name_of(value)
