"""A model as an ONNX file. `neural.onnx_export` runs this text after that of the generated file."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

import torch
from torch import nn


class Predicting(nn.Module):
    """Give what `predict` gives: the outputs of a model, after the activation that its loss takes over."""

    def __init__(self, model: nn.Module, activation: str) -> None:
        super().__init__()
        self.model, self.activation = model, activation

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.model(*inputs)
        if self.activation == "softmax":
            return torch.softmax(outputs, dim=-1)
        return torch.sigmoid(outputs) if self.activation == "sigmoid" else outputs


def load_weights(model: nn.Module, path: str) -> None:
    """Load the state dict of a file. It is read as numbers only: code in it is not run."""
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


def sample_inputs(shapes: Sequence[Sequence[int]], ids: Sequence[bool]) -> tuple[torch.Tensor, ...]:
    """Return inputs of the shapes; ids are 0, a word of every vocabulary."""
    return tuple(
        torch.zeros(tuple(shape), dtype=torch.long) if words else torch.randn(tuple(shape))
        for shape, words in zip(shapes, ids, strict=True)
    )


def write_onnx(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    free: Sequence[Sequence[int]],
    names: Sequence[str],
    path: str,
    activation: str,
) -> list[str]:
    """Write a model, and return the axes that the file fixes though `free` asks for any size, as words."""
    log = logging.getLogger("torch.onnx")
    level, size = log.level, sum(each.numel() * each.element_size() for each in model.state_dict().values())
    shapes = tuple(
        {axis: torch.export.Dim("batch" if axis == 0 else f"size_{place}_{axis}") for axis in axes}
        for place, axes in enumerate(free)
    )
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                Predicting(model.eval(), activation),
                inputs,
                input_names=list(names),
                output_names=["y"],
                dynamic_shapes=(shapes,),
                dynamo=True,
                verbose=False,
            )
    finally:
        log.setLevel(level)
    if program is None:
        raise RuntimeError("torch.onnx gave no program")
    fixed = [
        f"axis {axis} of {name}"
        for name, value, axes in zip(names, program.model.graph.inputs, free, strict=True)
        for axis in axes
        if value.shape is None or isinstance(value.shape[axis], int)
    ]
    if not fixed:
        program.save(path, external_data=size > 1_900_000_000)  # a file of ONNX holds less than 2 GiB
    return fixed
