"""The parameters and layers of a model of any framework: a model or tree of arrays enters, an ArchitectureFact leaves.

No framework is imported: a model is read by the methods that models of torch and Keras have, and arrays by their shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.nouns.facts.architecture import ROWS, ArchitectureFact, LayerRow
from neuraldbg.nouns.measures import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTIVATIONS = frozenset({
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
})  # fmt: skip
"""Class names of torch's and Keras's layers that are activation functions."""
OUTPUTS = ("out_features", "out_channels", "embedding_dim", "hidden_size", "units", "filters", "output_dim")
"""Attributes of a layer with the number of its outputs, in torch and in Keras."""
DEEPEST = 100
"""Levels of a tree of arrays that are followed."""


class Tensor(NamedTuple):
    """One parameter."""

    path: str
    """Path of its layer."""
    shape: tuple[int, ...]
    bytes: float | None
    """Bytes of an element. None if the dtype is not known."""
    trainable: bool | None
    """None if it is not known."""
    grouped: bool = True
    """False if the path is the name of the array itself: its layer is not known."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def structure_of(model: Any) -> ArchitectureFact:
    """Return the structure of a torch or Keras model, or of a tree of arrays (a dictionary, list or tuple of them).

    Raises ConfigError for anything else, and for a model whose parameters have no shape yet.
    """
    # A Keras model on torch has the methods of both, and knows its layers by Keras's.
    if hasattr(model, "layers") and callable(getattr(model, "count_params", None)):
        return _keras(model)
    if callable(getattr(model, "named_parameters", None)):
        return _torch(model)
    if isinstance(model, (Mapping, list, tuple)) or dataclasses.is_dataclass(model):
        tensors = list(_leaves(model, "", 0))
        # A flat tree with a name for each array does not say which of them are one layer.
        grouped = any(one.grouped for one in tensors)
        if not tensors:
            raise ConfigError("the tree has no arrays; give the parameters, such as {'fc1/weight': array}")
        fact = _fact(tensors, {}, "")
        return fact if grouped else replace(fact, layer_count=None)
    raise ConfigError(
        f"a {type(model).__name__} is no model: give one of torch or Keras, or its parameters as {{name: array}}"
    )


def _fact(
    tensors: list[Tensor],
    types: Mapping[str, str],
    model: str,
    *,
    activations: tuple[str, ...] = (),
    width: int | None = None,
    depth: int | None = None,
) -> ArchitectureFact:
    """Return the fact about some parameters, whose layers have ``types`` by path."""
    layers: dict[str, list[Tensor]] = {}
    for one in tensors:
        layers.setdefault(one.path, []).append(one)
    known = all(one.trainable is not None for one in tensors)
    sized = all(one.bytes is not None for one in tensors)
    rows = [_row(path, layers.get(path, []), types.get(path, "")) for path in dict.fromkeys((*layers, *types))]
    return ArchitectureFact(
        total_parameters=sum(one.size for one in tensors),
        trainable_parameters=sum(one.size for one in tensors if one.trainable) if known else None,
        model=model,
        model_size_mb=sum(one.size * (one.bytes or 0) for one in tensors) / 1e6 if sized else None,
        layer_count=len(layers),
        layer_types=dict(Counter(types[path] for path in types)),
        depth=depth,
        width=width,
        activation_functions=activations,
        layers=tuple(rows[:ROWS]),
    )


def _row(path: str, tensors: list[Tensor], kind: str) -> LayerRow:
    largest = max(tensors, key=lambda one: one.size, default=None)
    known = all(one.trainable is not None for one in tensors)
    return LayerRow(
        path=path,
        type=kind,
        parameters=sum(one.size for one in tensors),
        trainable=sum(one.size for one in tensors if one.trainable) if known else None,
        shape=largest.shape if largest is not None else (),
    )


def _shape(tensor: Any, name: str) -> tuple[int, ...]:
    """Return the shape of a parameter. Raises ConfigError for one that has none yet."""
    try:
        shape = tuple(int(size) for size in tensor.shape)
    except Exception as error:  # a lazy parameter of torch raises RuntimeError, one of Keras may have None
        raise ConfigError(
            f"parameter {name!r} has no shape yet; call the model once on a batch, then give it"
        ) from error
    return shape


def _element_bytes(tensor: Any) -> float | None:
    """Return the bytes of an element by the dtype's size, or by its name, of whatever framework."""
    dtype = getattr(tensor, "dtype", None)
    size = getattr(dtype, "itemsize", None)
    if isinstance(size, int) and size > 0:
        return float(size)
    found = DTYPE_BYTES.get(str(dtype).rpartition(".")[2])
    return float(found) if found else None


def _torch(model: Any) -> ArchitectureFact:
    tensors = []
    for name, tensor in model.named_parameters():
        path = name.rpartition(".")[0]
        trainable = bool(getattr(tensor, "requires_grad", True))
        tensors.append(Tensor(path, _shape(tensor, name), _element_bytes(tensor), trainable))
    types: dict[str, str] = {}
    modules = list(model.named_modules()) if callable(getattr(model, "named_modules", None)) else []
    own = {one.path for one in tensors}
    for path, module in modules:
        leaf = not any(True for _ in module.children()) if callable(getattr(module, "children", None)) else True
        if leaf or path in own:
            types[path] = type(module).__name__
    depth = None
    if modules and all(type(m).__name__ == "Sequential" for path, m in modules if path not in types):
        depth = len(own)  # a chain of chains
    return _fact(
        tensors,
        types,
        type(model).__name__,
        activations=tuple(sorted(set(types.values()) & ACTIVATIONS)),
        width=_width(module for _, module in modules),
        depth=depth,
    )


def _width(layers: Iterator[Any]) -> int | None:
    """Return the largest number of outputs that a layer names. None if none does."""
    found = [
        size
        for layer in layers
        for name in OUTPUTS
        if isinstance(size := getattr(layer, name, None), int) and not isinstance(size, bool)
    ]
    return max(found, default=None)


def _keras(model: Any) -> ArchitectureFact:
    try:
        model.count_params()
    except ValueError as error:
        raise ConfigError("the Keras model has no parameters yet; build it, or call it once on a batch") from error
    trainable = {id(weight) for weight in model.trainable_weights}
    tensors, seen = [], set()
    layers = list(_keras_layers(model, ""))
    types = {path: type(layer).__name__ for path, layer in layers}
    for path, layer in layers:
        for weight in layer.weights:
            if id(weight) not in seen:
                seen.add(id(weight))
                shape = _shape(weight, f"{path}/{weight.name}")
                tensors.append(Tensor(path, shape, _element_bytes(weight), id(weight) in trainable))
    named = (getattr(layer, "activation", None) for _, layer in layers)
    functions = {getattr(one, "__name__", "") for one in named} - {"", "linear"}
    functions |= set(types.values()) & ACTIVATIONS
    chain = type(model).__name__ == "Sequential" and not any("/" in path for path in types)
    return _fact(
        tensors,
        types,
        str(getattr(model, "name", "") or type(model).__name__),
        activations=tuple(sorted(functions)),
        width=_width(layer for _, layer in layers),
        depth=len({one.path for one in tensors}) if chain else None,
    )


def _keras_layers(model: Any, around: str) -> Iterator[tuple[str, Any]]:
    """Yield the innermost layers with their paths; a model inside of the model is opened."""
    for layer in model.layers:
        path = f"{around}/{layer.name}" if around else str(layer.name)
        if getattr(layer, "layers", None):
            yield from _keras_layers(layer, path)
        else:
            yield path, layer


def _leaves(tree: Any, path: str, depth: int) -> Iterator[Tensor]:
    """Yield the arrays of a tree. The path of an array is that of the branch that holds it: its layer."""
    if depth > DEEPEST:
        raise ConfigError(f"the tree is deeper than {DEEPEST} levels; give the parameters as {{name: array}}")
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        tree = {one.name: getattr(tree, one.name) for one in dataclasses.fields(tree)}
    elif hasattr(tree, "_asdict"):
        tree = tree._asdict()
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    for key, value in items:
        name = f"{path}/{key}" if path else str(key)
        if value is None:
            continue
        if isinstance(value, (Mapping, list, tuple)) or (dataclasses.is_dataclass(value) and not _array(value)):
            yield from _leaves(value, name, depth + 1)
        elif _array(value):
            layer = path or name.rpartition("/")[0] or name.rpartition(".")[0]
            yield Tensor(layer or name, _shape(value, name), _element_bytes(value), None, bool(layer))
        elif isinstance(value, (int, float, complex, np.generic)) and not isinstance(value, bool):
            yield Tensor(path or name, (), None, None, bool(path))
        else:
            raise ConfigError(f"{name!r} is a {type(value).__name__} and no array; give the parameters alone")


def _array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
