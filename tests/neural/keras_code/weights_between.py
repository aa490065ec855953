"""Copy the weights of a generated Keras model into the model that the generated PyTorch file builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.neural.pytorch.keras_weights import gates, kernel, put

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neural import LayerPlan


def array(weight: Any) -> np.ndarray:
    import keras

    return keras.ops.convert_to_numpy(weight)


def copy(layers: Iterable[LayerPlan], model: Any, find: Any, path: str = "") -> int:
    """Copy all layers, and return the number of values; `find` gives a layer of Keras by its name."""
    total = 0
    for layer in layers:
        name = path + layer.name
        if layer.type == "TimeDistributed":
            step = find(name).layer
            inner = getattr(model, layer.name)
            single = len(layer.children) == 1 and not hasattr(step, "layers")
            total += copy(layer.children, inner, (lambda _, step=step: step) if single else step.get_layer)
        elif layer.children and layer.type != "Bidirectional":
            total += copy(layer.children, getattr(model, layer.name), find, f"{name}_")
        elif layer.parameter_count:
            total += put_layer(layer, getattr(model, layer.name), find, name)
    return total


def put_layer(layer: LayerPlan, module: Any, find: Any, name: str) -> int:
    """Copy one layer."""
    if layer.type in {"TransformerEncoder", "TransformerDecoder", "Transformer"}:
        count = layer.parameters["num_layers"]
        made = [find(name)] if count == 1 else [find(f"{name}_{place}") for place in range(1, count + 1)]
        modules = [module] if count == 1 else module
        for block, target in zip(made, modules, strict=True):
            put_transformer(block, target)
        return sum(each.size for block in made for each in map(array, own(block)))
    made = find(f"{name}_projection") if layer.parameters.get("projection") else find(name)
    values = [array(each) for each in own(made)]
    PUT.get(layer.type, put_plain)(layer, module, made, values)
    return sum(each.size for each in values)


def own(made: Any) -> list[Any]:
    return [each for each in made.weights if "seed_generator" not in each.path]


def put_plain(layer: LayerPlan, module: Any, made: Any, values: list[np.ndarray]) -> None:
    """Copy a layer with a kernel and perhaps a bias."""
    kind = layer.type
    if kind.endswith("Normalization"):
        by_name = {each.path.rpartition("/")[2]: array(each) for each in own(made)}
        names = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
        for key, value in by_name.items():
            put(getattr(module, names[key]), value)
        return
    if kind == "Embedding":
        put(module.weight, values[0])
        return
    if kind.startswith(("Depthwise", "Separable")):
        depth = np.moveaxis(values[0], (-2, -1), (0, 1))
        first, last = (module[0], module[1]) if kind.startswith("Separable") else (module, module)
        put(first.weight, depth.reshape(-1, 1, *depth.shape[2:]))
        if kind.startswith("Separable"):
            put(last.weight, kernel(values[1]))
        if layer.parameters["use_bias"]:
            put(last.bias, values[-1])
        return
    weight = values[0].T if values[0].ndim == 2 else kernel(values[0])
    put(module.weight, weight.reshape(tuple(module.weight.shape)))
    if len(values) > 1:
        put(module.bias, values[1])


def put_recurrent(kind: str, module: Any, values: list[np.ndarray]) -> None:
    order = gates if kind == "GRU" else (lambda each: each)
    put(module.weight_ih, order(values[0]).T)
    put(module.weight_hh, order(values[1]).T)
    if len(values) == 3:
        bias = order(values[2])
        put(module.bias, bias[0] if bias.ndim == 2 else bias)
        if bias.ndim == 2:
            put(module.bias_hh, bias[1])


def recurrent(layer: LayerPlan, module: Any, _: Any, values: list[np.ndarray]) -> None:
    put_recurrent(layer.type.removesuffix("Cell").removesuffix("DropoutWrapper"), module, values)


def both(layer: LayerPlan, module: Any, _: Any, values: list[np.ndarray]) -> None:
    half, kind = len(values) // 2, layer.children[0].type.removesuffix("Cell").removesuffix("DropoutWrapper")
    put_recurrent(kind, module.ahead, values[:half])
    put_recurrent(kind, module.back, values[half:])


def images(layer: LayerPlan, module: Any, _: Any, values: list[np.ndarray]) -> None:
    put(module.weight_ih, kernel(values[0]))
    put(module.weight_hh, kernel(values[1]))
    if len(values) > 2:
        put(module.bias, values[2])


def attention(layer: LayerPlan, module: Any, made: Any, _: Any) -> None:
    for name in ("query", "key", "value", "output"):
        dense = getattr(made, f"_{name}_dense")
        weight = array(dense.kernel)
        flat = weight.reshape(-1, weight.shape[-1]) if name == "output" else weight.reshape(weight.shape[0], -1)
        put(getattr(module, name).weight, flat.T)
        if dense.bias is not None:
            put(getattr(module, name).bias, array(dense.bias).reshape(-1))


def excite(layer: LayerPlan, module: Any, made: Any, _: Any) -> None:
    for name in ("squeeze", "excite"):
        put(getattr(module, name).weight, array(getattr(made, name).kernel).T)
        put(getattr(module, name).bias, array(getattr(made, name).bias))


def scale(layer: LayerPlan, module: Any, made: Any, values: list[np.ndarray]) -> None:
    module.scale.data.fill_(values[0].item())


KINDS = [f"{kind}{suffix}" for kind in ("LSTM", "GRU", "SimpleRNN") for suffix in ("", "Cell", "DropoutWrapper")]
PUT = {
    "Attention": scale,
    "Bidirectional": both,
    "ConvGRU2D": images,
    "ConvLSTM2D": images,
    "MultiHeadAttention": attention,
    "SqueezeExcitation": excite,
    **dict.fromkeys(KINDS, recurrent),
}


def put_attention_of_torch(made: Any, module: Any) -> None:
    weights, biases = [], []
    for name in ("query", "key", "value"):
        dense = getattr(made, f"_{name}_dense")
        weight = array(dense.kernel)
        weights.append(weight.reshape(weight.shape[0], -1).T)
        biases.append(array(dense.bias).reshape(-1))
    put(module.in_proj_weight, np.concatenate(weights))
    put(module.in_proj_bias, np.concatenate(biases))
    weight = array(made._output_dense.kernel)
    put(module.out_proj.weight, weight.reshape(-1, weight.shape[-1]).T)
    put(module.out_proj.bias, array(made._output_dense.bias))


def put_transformer(made: Any, module: Any) -> None:
    """Copy a block of an encoder or a decoder."""
    decoder = hasattr(made, "own")
    put_attention_of_torch(made.own if decoder else made.attention, module.self_attn)
    if decoder:
        put_attention_of_torch(made.cross, module.multihead_attn)
    for dense, linear in ((made.inner, module.linear1), (made.outer, module.linear2)):
        put(linear.weight, array(dense.kernel).T)
        put(linear.bias, array(dense.bias))
    for place, norm in enumerate(made.norms, 1):
        put(getattr(module, f"norm{place}").weight, array(norm.gamma))
        put(getattr(module, f"norm{place}").bias, array(norm.beta))
