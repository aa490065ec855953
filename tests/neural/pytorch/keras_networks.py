"""Networks twice: as a file of the language, and by hand in Keras, which is the oracle of what `neural` builds.

As a script it builds the Keras models, and writes their weights, an input and the outputs into a folder.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Twin:
    """Hold one network in both languages."""

    shape: tuple[int, ...]
    layers: str
    """The section `layers` of the file."""
    keras: Callable[[Any, Any], Any]
    """The same in Keras: the module `layers` and the input enter, the output leaves."""
    ids: int = 0
    """The number of different ids that the input has, 0 if it has numbers."""


def chain(*made: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return layers one after another; each is made of the module `layers`."""

    def build(layers: Any, x: Any) -> Any:
        for make in made:
            x = make(layers)(x)
        return x

    return build


def _residual(k: Any, x: Any) -> Any:
    y = k.Conv2D(6, 3, padding="same", activation="relu")(x)
    y = k.Conv2D(6, 3, padding="same")(y)
    x = k.Add()([x, y])
    y = k.Conv2D(8, 3, padding="same", strides=2)(x)
    z = k.Conv2D(8, 1, strides=2)(x)
    return k.Dense(3, activation="softmax")(k.GlobalAveragePooling2D()(k.Add()([y, z])))


def _transformer(k: Any, x: Any) -> Any:
    x = k.Embedding(20, 8)(x)
    y = k.MultiHeadAttention(2, 5)(x, x)
    x = k.LayerNormalization(epsilon=1e-6)(k.Add()([x, y]))
    y = k.Dense(8)(k.Dense(16, activation="gelu")(x))
    x = k.LayerNormalization()(k.Add()([x, y]))
    return k.Dense(2)(k.GlobalAveragePooling1D()(x))


def _branches(k: Any, x: Any) -> Any:
    one = k.MaxPooling2D(3, strides=1, padding="same")(k.Conv2D(4, 3, padding="same")(x))
    other = k.AveragePooling2D(2, strides=1, padding="same")(k.Conv2D(3, 1)(x))
    return k.Dense(2)(k.Flatten()(k.Concatenate()([one, other])))


def _masked(k: Any, x: Any) -> Any:
    x = k.Embedding(9, 6, mask_zero=True)(x)
    x = k.LSTM(5, return_sequences=True)(x)
    y = k.MultiHeadAttention(2, 3, value_dim=4)(x, x)
    return k.Dense(2)(k.GlobalAveragePooling1D()(k.Add()([x, y])))


def _distributed(k: Any, x: Any) -> Any:
    x = k.TimeDistributed(k.Conv2D(3, 3, activation="relu"))(x)
    x = k.TimeDistributed(k.Flatten())(x)
    return k.Dense(2)(k.GRU(4, reset_after=False)(x))


def _reshaping(k: Any, x: Any) -> Any:
    x = k.Conv2D(4, 2, padding="same")(k.Reshape((3, 4, 2))(x))
    x = k.Dense(3, activation="softsign")(k.Reshape((-1, 6))(k.Permute((2, 1, 3))(x)))
    return k.Dense(2, activation="hard_sigmoid")(k.Flatten()(k.Attention()([x, x])))


def _masked_attention(k: Any, x: Any) -> Any:
    x = k.Embedding(4, 6, mask_zero=True)(x)
    return k.Dense(2)(k.Flatten()(k.Attention()([x, x])))


def _masked_heads(dropout: float, causal: bool = False) -> Callable[[Any, Any], Any]:
    def build(k: Any, x: Any) -> Any:
        x = k.Embedding(4, 6, mask_zero=True)(x)
        return k.Dense(2)(k.Flatten()(k.MultiHeadAttention(2, 3, dropout=dropout)(x, x, use_causal_mask=causal)))

    return build


def _masked_both_ways(kind: str, merge_mode: str) -> Callable[[Any, Any], Any]:
    return chain(
        lambda k: k.Embedding(4, 6, mask_zero=True),
        lambda k: k.Bidirectional(getattr(k, kind)(3, return_sequences=True), merge_mode=merge_mode),
        lambda k: k.GlobalMaxPooling1D(),
    )


def _masked_merge(merge: str, **options: Any) -> Callable[[Any, Any], Any]:
    def build(k: Any, x: Any) -> Any:
        one, other = (k.Embedding(4, 6, mask_zero=True)(x) for _ in range(2))
        return k.LSTM(3)(getattr(k, merge)(**options)([one, other]))

    return build


MASKED = "Embedding(4, 6, mask_zero=true)"
"""Of four ids one is an empty place, so that samples have several."""
TWINS = {
    "cnn": Twin(
        (12, 12, 3),
        """Conv2D(4, (3, 3), "relu") BatchNormalization() MaxPooling2D((2, 2))
        Conv2D(6, 3, padding="same", activation="tanh") Dropout(0.3) Flatten() Dense(10, "relu")
        Output(4, "softmax")""",
        chain(
            lambda k: k.Conv2D(4, 3, activation="relu"),
            lambda k: k.BatchNormalization(),
            lambda k: k.MaxPooling2D(2),
            lambda k: k.Conv2D(6, 3, padding="same", activation="tanh"),
            lambda k: k.Dropout(0.3),
            lambda k: k.Flatten(),
            lambda k: k.Dense(10, activation="relu"),
            lambda k: k.Dense(4, activation="softmax"),
        ),
    ),
    "same_strides": Twin(
        (11, 14, 2),
        """Conv2D(4, (3, 2), strides=2, padding="same") MaxPooling2D(2, padding="same")
        Conv2D(5, (2, 4), padding="same") AveragePooling2D((3, 2), padding="same") Dense(3)""",
        chain(
            lambda k: k.Conv2D(4, (3, 2), strides=2, padding="same"),
            lambda k: k.MaxPooling2D(2, padding="same"),
            lambda k: k.Conv2D(5, (2, 4), padding="same"),
            lambda k: k.AveragePooling2D((3, 2), padding="same"),
            lambda k: k.Dense(3),
        ),
    ),
    "depthwise": Twin(
        (9, 9, 4),
        """DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu6") SeparableConv2D(6, 3, strides=2)
        GroupNormalization(groups=3) LayerNormalization() GlobalMaxPooling2D() Dense(2, "selu")""",
        chain(
            lambda k: k.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu6"),
            lambda k: k.SeparableConv2D(6, 3, strides=2),
            lambda k: k.GroupNormalization(groups=3),
            lambda k: k.LayerNormalization(),
            lambda k: k.GlobalMaxPooling2D(),
            lambda k: k.Dense(2, activation="selu"),
        ),
    ),
    "residual": Twin(
        (8, 8, 6),
        """ResidualConnection { Conv2D(6, 3, padding="same", activation="relu") Conv2D(6, 3, padding="same") }
        ResidualConnection { Conv2D(8, 3, padding="same", strides=2) Conv2D(8, 1, strides=2) }
        GlobalAveragePooling2D() Output(3)""",
        _residual,
    ),
    "branches": Twin(
        (7, 7, 2),
        """one: { Conv2D(4, 3, padding="same") MaxPooling2D(3, strides=1, padding="same") }
        other: { Conv2D(3, 1) AveragePooling2D(2, strides=1, padding="same") }
        Concatenate() Flatten() Dense(2)""",
        _branches,
    ),
    "transposed": Twin(
        (5, 6, 3),
        """Conv2DTranspose(4, 3, strides=2, padding="same", activation="leaky_relu")
        Conv2DTranspose(3, (2, 4), strides=(3, 2)) ZeroPadding2D((1, 2)) UpSampling2D(2)
        Conv2D(2, 3, dilation_rate=2, activation="sigmoid")""",
        chain(
            lambda k: k.Conv2DTranspose(4, 3, strides=2, padding="same", activation="leaky_relu"),
            lambda k: k.Conv2DTranspose(3, (2, 4), strides=(3, 2)),
            lambda k: k.ZeroPadding2D((1, 2)),
            lambda k: k.UpSampling2D(2),
            lambda k: k.Conv2D(2, 3, dilation_rate=2, activation="sigmoid"),
        ),
    ),
    "transposed_with_output_padding_of_0": Twin(
        (5, 6, 3),
        """Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=0)
        Conv2DTranspose(3, 4, strides=2, padding="same", output_padding=(0, 1))
        Conv2DTranspose(2, (2, 3), strides=3, output_padding=0)""",
        chain(
            lambda k: k.Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=0),
            lambda k: k.Conv2DTranspose(3, 4, strides=2, padding="same", output_padding=(0, 1)),
            lambda k: k.Conv2DTranspose(2, (2, 3), strides=3, output_padding=0),
        ),
    ),
    "sequence_convolution": Twin(
        (13, 4),
        """Conv1D(6, 3, padding="causal", activation="relu") BatchNormalization() MaxPooling1D(2)
        Conv1D(4, 2, strides=2, padding="same") AveragePooling1D(2) LSTM(5) Dense(2)""",
        chain(
            lambda k: k.Conv1D(6, 3, padding="causal", activation="relu"),
            lambda k: k.BatchNormalization(),
            lambda k: k.MaxPooling1D(2),
            lambda k: k.Conv1D(4, 2, strides=2, padding="same"),
            lambda k: k.AveragePooling1D(2),
            lambda k: k.LSTM(5),
            lambda k: k.Dense(2),
        ),
    ),
    "lstm": Twin(
        (7, 3),
        """LSTM(6, return_sequences=true, dropout=0.1)
        LSTM(5, activation="relu", recurrent_dropout=0.2, return_sequences=true)
        LSTM(4, go_backwards=true, use_bias=false) Output(3, "sigmoid")""",
        chain(
            lambda k: k.LSTM(6, return_sequences=True, dropout=0.1),
            lambda k: k.LSTM(5, activation="relu", recurrent_dropout=0.2, return_sequences=True),
            lambda k: k.LSTM(4, go_backwards=True, use_bias=False),
            lambda k: k.Dense(3, activation="sigmoid"),
        ),
    ),
    "gru": Twin(
        (6, 4),
        """Bidirectional(GRU(5, return_sequences=true)) Bidirectional(LSTM(4), merge_mode="ave") Dense(3)""",
        chain(
            lambda k: k.Bidirectional(k.GRU(5, return_sequences=True)),
            lambda k: k.Bidirectional(k.LSTM(4), merge_mode="ave"),
            lambda k: k.Dense(3),
        ),
    ),
    "simple_rnn": Twin(
        (6, 4),
        """SimpleRNN(5, return_sequences=true) SimpleRNN(4, activation="relu", return_sequences=true)
        SimpleRNN(3, activation="sigmoid") RepeatVector(2) Flatten() Dense(2)""",
        chain(
            lambda k: k.SimpleRNN(5, return_sequences=True),
            lambda k: k.SimpleRNN(4, activation="relu", return_sequences=True),
            lambda k: k.SimpleRNN(3, activation="sigmoid"),
            lambda k: k.RepeatVector(2),
            lambda k: k.Flatten(),
            lambda k: k.Dense(2),
        ),
    ),
    "embedding": Twin(
        (9,),
        """Embedding(30, 8) SpatialDropout1D(0.2) GlobalAveragePooling1D() Dense(6, "swish") Output(1, "sigmoid")""",
        chain(
            lambda k: k.Embedding(30, 8),
            lambda k: k.SpatialDropout1D(0.2),
            lambda k: k.GlobalAveragePooling1D(),
            lambda k: k.Dense(6, activation="silu"),
            lambda k: k.Dense(1, activation="sigmoid"),
        ),
        ids=30,
    ),
    "transformer": Twin(
        (7,),
        """Embedding(20, 8, name="words") MultiHeadAttention(num_heads=2, key_dim=5)
        Add("words", "MultiHeadAttention_2") LayerNormalization(epsilon=1e-6) Dense(16, "gelu") Dense(8)
        Add("LayerNormalization_4", "Dense_6") LayerNormalization() GlobalAveragePooling1D() Dense(2)""",
        _transformer,
        ids=20,
    ),
    "masked": Twin(
        (6,),
        """Embedding(9, 6, mask_zero=true) LSTM(5, return_sequences=true)
        MultiHeadAttention(num_heads=2, key_dim=3, value_dim=4) Add("LSTM_2", "MultiHeadAttention_3")
        GlobalAveragePooling1D() Dense(2)""",
        _masked,
        ids=9,
    ),
    **{
        f"masked_{merge}_{axis}": Twin(
            (6,),
            f"one: {{ {MASKED} }} other: {{ {MASKED} }} {merge}({f'axis={axis}' if axis else ''}) LSTM(3)",
            _masked_merge(merge, **({"axis": axis} if axis else {})),
            ids=4,
        )
        for merge, axis in (("Add", 0), ("Concatenate", -1), ("Concatenate", 1))
    },
    "masked_attention": Twin((6,), f"{MASKED} Attention() Flatten() Dense(2)", _masked_attention, ids=4),
    "masked_heads": Twin((6,), f"{MASKED} MultiHeadAttention(2, 3) Flatten() Dense(2)", _masked_heads(0.0), ids=4),
    "masked_heads_dropout": Twin(
        (6,), f"{MASKED} MultiHeadAttention(2, 3, dropout=0.2) Flatten() Dense(2)", _masked_heads(0.2), ids=4
    ),
    "masked_heads_causal": Twin(
        (6,), f"{MASKED} MultiHeadAttention(2, 3, causal=true) Flatten() Dense(2)", _masked_heads(0.0, True), ids=4
    ),
    **{
        f"masked_both_ways_{kind}_{mode}": Twin(
            (6,),
            f"""{MASKED} Bidirectional({kind}(3, return_sequences=true), merge_mode="{mode}")
            GlobalMaxPooling1D()""",
            _masked_both_ways(kind, mode),
            ids=4,
        )
        for kind, mode in (("LSTM", "concat"), ("GRU", "ave"), ("SimpleRNN", "mul"))
    },
    "time_distributed": Twin(
        (4, 6, 6, 2),
        """TimeDistributed(Conv2D(3, 3, activation="relu")) TimeDistributed(Flatten())
        GRU(4, reset_after=false) Dense(2)""",
        _distributed,
    ),
    "reshaping": Twin(
        (6, 4),
        """Reshape((3, 4, 2)) Conv2D(4, 2, padding="same") Permute((2, 1, 3)) Reshape((-1, 6))
        Dense(3, "softsign") Attention() Flatten() Dense(2, "hard_sigmoid")""",
        _reshaping,
    ),
    "images_in_time": Twin(
        (3, 6, 6, 2),
        """ConvLSTM2D(4, 3, padding="same", return_sequences=true) ConvLSTM2D(3, (2, 3)) Flatten() Dense(2)""",
        chain(
            lambda k: k.ConvLSTM2D(4, 3, padding="same", return_sequences=True),
            lambda k: k.ConvLSTM2D(3, (2, 3)),
            lambda k: k.Flatten(),
            lambda k: k.Dense(2),
        ),
    ),
    "volumes": Twin(
        (6, 6, 6, 2),
        """Conv3D(3, 3, activation="elu") AveragePooling3D(2) Flatten()
        Dense(5, "softplus") Activation("log_softmax")""",
        chain(
            lambda k: k.Conv3D(3, 3, activation="elu"),
            lambda k: k.AveragePooling3D(2),
            lambda k: k.Flatten(),
            lambda k: k.Dense(5, activation="softplus"),
            lambda k: k.Activation("log_softmax"),
        ),
    ),
}
"""At least one use of each layer that Keras has, too."""


def write(name: str, folder: Path) -> None:
    """Build one network with Keras, and write what it has and gives."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(7)
    twin = TWINS[name]
    start = keras.Input(twin.shape, dtype="int32" if twin.ids else "float32")
    model = keras.Model(start, twin.keras(keras.layers, start))
    rng = np.random.default_rng(3)
    for weight in model.weights:  # random biases and moving averages, so that a wrong place is seen
        if "seed" in weight.path:
            continue
        values = rng.normal(0, 0.5, weight.shape)
        weight.assign(np.abs(values) + 0.5 if "variance" in weight.path else values)
    x = rng.integers(0, twin.ids, (4, *twin.shape)) if twin.ids else rng.normal(size=(4, *twin.shape)).astype("float32")
    if twin.ids:
        x[:, 0] = 1  # no sample without any word
    y = keras.ops.convert_to_numpy(model(x, training=False))
    layers = [[each for each in layer.weights if "seed" not in each.path] for layer in model.layers]
    kept = [[keras.ops.convert_to_numpy(each) for each in layer] for layer in layers]
    arrays = {f"{at}_{place}": each for at, layer in enumerate(filter(None, kept)) for place, each in enumerate(layer)}
    np.savez(folder / f"{name}.npz", x=x, y=y, **arrays)
    parameters = sum(each.size for each in arrays.values())
    (folder / f"{name}.json").write_text(json.dumps({"parameters": int(parameters), "shape": y.shape[1:]}))


if __name__ == "__main__":
    for each in sys.argv[2:] or TWINS:
        write(each, Path(sys.argv[1]))
