"""Attention, and the encoder and decoder of a transformer."""

from __future__ import annotations

from neural.layer_writing import NotWritten
from neural.pytorch.activations import activation_function
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, unless
from neural.pytorch.weights import first_weights


def _key_mask(use: Use) -> str | None:
    """Return the variable that is true where what is attended to has no empty place."""
    wire = use.inputs[-1]
    if use.values.get("use_attention_mask") and wire.mask is None:
        if wire.places is None:
            raise NotWritten("has use_attention_mask=true, and no Embedding before it says which places are empty")
        return wire.places
    return wire.mask


def attend_by_heads(use: Use) -> LayerCode:
    """Return Keras's MultiHeadAttention; with one input it attends to itself."""
    values, other = use.values, use.inputs[-1]
    if values["return_attention_scores"]:
        raise NotWritten("has return_attention_scores=true, and a layer has one output here")
    words = arguments(
        use.channels,
        num_heads=values["num_heads"],
        key_dim=values["key_dim"],
        value_dim=values["value_dim"],
        memory_size=unless(other.shape[-1], use.channels),
        dropout=unless(values["dropout"], 0.0),
        bias=unless(values["use_bias"], True),
    )
    mask = _key_mask(use)
    memory = (other.text,) if len(use.inputs) > 1 else ()
    own = use.inputs[0].mask
    call = arguments(use.x, *memory, mask=mask, own_mask=own, causal=unless(values["causal"], False))
    if first_weights(values, {"kernel": "", "bias": ""}):
        raise NotWritten("is built with its usual first weights only")
    return LayerCode(
        f"{use.me}({call})",
        f"MultiHeadAttention({words})",
        weights=(f"{use.me}.reset_parameters()",),
        helpers=("MultiHeadAttention",),
    )


def attend(use: Use) -> LayerCode:
    """Return Keras's Attention, whose keys are the values."""
    values = use.values
    words = arguments(use_scale=unless(values["use_scale"], False), dropout=unless(values["dropout"], 0.0))
    memory = (use.inputs[-1].text,) if len(use.inputs) > 1 else ()
    own = use.inputs[0].mask
    call = arguments(use.x, *memory, mask=_key_mask(use), own_mask=own, causal=unless(values["causal"], False))
    return LayerCode(f"{use.me}({call})", f"DotAttention({words})", helpers=("DotAttention",))


def _layer(use: Use, kind: str) -> str:
    values = use.values
    activation = values["activation"]
    words = arguments(
        use.channels,
        nhead=values["num_heads"],
        dim_feedforward=values["ff_dim"],
        dropout=unless(values["dropout"], 0.1),
        activation=None if activation == "relu" else activation_function(activation),
        layer_norm_eps=values["epsilon"],
        batch_first=True,
    )
    return f"nn.{kind}({words})"


def _layers(use: Use, kind: str, call: str) -> LayerCode:
    """Return one block, or several in a list, which one statement runs after one another."""
    count = use.values["num_layers"]
    if count == 1:
        return LayerCode(f"{use.me}({call})", _layer(use, kind))
    module = f"nn.ModuleList({_layer(use, kind)} for _ in range({count}))"
    return LayerCode(f"run_all({use.me}, {call})", module, helpers=("run_all",))


def encode(use: Use) -> LayerCode:
    """Return encoder blocks of torch."""
    mask, causal = _key_mask(use), use.values["causal"]
    words = arguments(
        use.x,
        src_mask=f"causal_mask({use.x})" if causal else None,
        src_key_padding_mask=f"empty_places({mask})" if mask else None,
    )
    return _with_masks(_layers(use, "TransformerEncoderLayer", words))


def decode(use: Use) -> LayerCode:
    """Return decoder blocks of torch, which read a second input, or their own if there is none."""
    own, memory = use.inputs[0], use.inputs[-1]
    mask, causal = _key_mask(use), use.values["causal"]
    words = arguments(
        use.x,
        memory.text,
        tgt_mask=f"causal_mask({use.x})" if causal else None,
        tgt_key_padding_mask=f"empty_places({own.mask})" if own.mask else None,
        memory_key_padding_mask=f"empty_places({mask})" if mask else None,
    )
    return _with_masks(_layers(use, "TransformerDecoderLayer", words))


def _with_masks(code: LayerCode) -> LayerCode:
    """Return the code with the functions that its call uses."""
    used = [name for name in ("causal_mask", "empty_places") if f"{name}(" in code.call]
    return LayerCode(code.call, code.construct, helpers=(*code.helpers, *used))


MEMBERS = (
    LayerWriter("MultiHeadAttention", attend_by_heads, "last", passes_mask=True),
    LayerWriter("Attention", attend, "last", passes_mask=True),
    LayerWriter("TransformerEncoder", encode, "last", passes_mask=True),
    LayerWriter("Transformer", encode, "last", passes_mask=True),
    LayerWriter("TransformerDecoder", decode, "last", passes_mask=True),
)
