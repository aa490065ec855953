"""Networks for what `tests.neural.pytorch.keras_networks` has not: layers that Keras lacks, and arguments."""

from __future__ import annotations

NETWORKS = {
    "encoder": ("(6,)", "Embedding(9, 8) PositionalEncoding() TransformerEncoder(num_heads=2, ff_dim=12) Dense(2)"),
    "encoders_with_masks": (
        "(6,)",
        """Embedding(9, 8, mask_zero=true) TransformerEncoder(num_heads=2, ff_dim=12, num_layers=3, activation="gelu")
        GlobalAveragePooling1D() Dense(2)""",
    ),
    "causal": (
        "(6, 8)",
        """Transformer(num_heads=4, ff_dim=5, causal=true, epsilon=0.001) MultiHeadAttention(2, 3, causal=true)
        Attention(use_scale=true, causal=true) Dense(2)""",
    ),
    "asked_places": (
        "(6,)",
        """Embedding(9, 8) TransformerEncoder(num_heads=2, ff_dim=12, use_attention_mask=true)
        MultiHeadAttention(2, 3, use_attention_mask=true, use_bias=false) GlobalMaxPooling1D() Dense(2)""",
    ),
    "decoder": (
        "{ source: (5, 8) target: (4, 8) }",
        """source: { Dense(8) } target: { Dense(8, "tanh") }
        TransformerDecoder("target", "source", num_heads=2, ff_dim=12, causal=true, num_layers=2) Dense(2)""",
    ),
    "decoder_with_masks": (
        "{ source: (5,) target: (4,) }",
        """source: { Embedding(9, 8, mask_zero=true) } target: { Embedding(7, 8, mask_zero=true) }
        TransformerDecoder("target", "source", num_heads=2, ff_dim=12) GlobalAveragePooling1D() Dense(2)""",
    ),
    "decoder_alone": ("(5, 8)", "TransformerDecoder(num_heads=2, ff_dim=12) Dense(2)"),
    "excitation": (
        "(6, 6, 8)",
        """SqueezeExcitation(ratio=4) Conv2D(4, 3) SqueezeExcitation() Flatten() SqueezeExcitation(2) Dense(2)""",
    ),
    "instances": (
        "(6, 6, 4)",
        """InstanceNormalization() GroupNormalization(2, scale=false) LayerNormalization(center=false, epsilon=0.1)
        BatchNormalization(scale=false, momentum=0.5) Flatten() Dense(2)""",
    ),
    "images_by_gru": (
        "(3, 6, 6, 2)",
        """ConvGRU2D(4, 3, padding="same", return_sequences=true, recurrent_activation="hard_sigmoid")
        ConvGRU2D(3, (2, 3), use_bias=false, go_backwards=true, activation="relu") Flatten() Dense(2)""",
    ),
    "adaptive": (
        "(7, 9, 3)",
        """a: { AdaptiveAveragePooling2D((3, 4)) Flatten() } b: { AdaptiveMaxPooling2D(3) Flatten() }
        Concatenate() Dense(2)""",
    ),
    "volumes_of_pools": (
        "(4, 5, 6, 3)",
        """MaxPooling3D(2, padding="same") SpatialDropout3D(0.1) Conv3D(4, 2, groups=1, strides=2, padding="same")
        GlobalAveragePooling3D(keepdims=true) Flatten() Dense(2)""",
    ),
    "sequences_of_pools": (
        "(9, 4)",
        """Conv1DTranspose(4, 3, strides=2) AveragePooling1D(2, strides=1, padding="same") SeparableConv1D(6, 3)
        DepthwiseConv1D(3, use_bias=false) AdaptiveMaxPooling1D(3) Flatten() Dense(2)""",
    ),
    "volume_transposed": ("(3, 3, 3, 2)", "Conv3DTranspose(2, 3, strides=2, padding='same') Flatten() Dense(2)"),
    "merges": (
        "(5, 4)",
        """a: { Dense(4) } b: { Dense(4, "relu") } Subtract() c: { Dense(3) } d: { Dense(3) } Dot(axes=2)
        e: { Dense(5) } f: { Dense(1) } Multiply() g: { Dense(3) } h: { Dense(3) } i: { Dense(3) } Average()
        j: { Dense(3) } k: { Dense(3) } Maximum() l: { Dense(2) } m: { Dense(2) } Minimum()
        n: { Dense(2) } o: { Dense(2) } Concatenate(axis=1) Flatten() Dense(2)""",
    ),
    "cosines": ("(4,)", "a: { Dense(3) } b: { Dense(3) } Dot(axes=1, normalize=true) Dense(2)"),
    "gate": (
        "(6, 6, 4)",
        """Conv2D(4, 3, padding="same") GlobalAveragePooling2D() Dense(2, "relu") Dense(4, "sigmoid")
        Conv2D(3, 3) Flatten() Dense(2)""",
    ),
    "projected": (
        "(6, 6, 4)",
        """ResidualConnection { Conv2D(6, 3, padding="same", use_bias=false) Conv2D(6, 1) }
        ResidualConnection { ResidualConnection { Conv2D(6, 3, padding="same") } Conv2D(6, 3, padding="same") }
        GlobalAveragePooling2D() Dense(2)""",
    ),
    "steps_of_blocks": (
        "(3, 6, 6, 2)",
        """TimeDistributed(Conv2D(4, 3)) TimeDistributed(BatchNormalization())
        TimeDistributed { ResidualConnection { Conv2D(4, 3, padding="same") } GlobalAveragePooling2D() Dense(5) }
        Bidirectional(GRU(3, return_sequences=true), merge_mode="sum") LSTMCell(4) Dense(2)""",
    ),
    "directions": (
        "(6, 3)",
        """Bidirectional(SimpleRNN(4, return_sequences=true), merge_mode="mul") Bidirectional(LSTM(3, use_bias=false))
        Dense(2)""",
    ),
    "noise": (
        "(6, 3)",
        """GaussianNoise(0.1) GaussianDropout(0.1) AlphaDropout(0.1) Dropout(0.2, noise_shape=(1, 3))
        SpatialDropout1D(0.1) Dropout(0.3, seed=4) Flatten() RepeatVector(3) Dense(2)""",
    ),
    "first_weights": (
        "(6,)",
        """Dense(4, kernel_initializer="he_normal", bias_initializer=Constant(0.5), kernel_regularizer=l2(0.01))
        Dense(4, kernel_initializer=RandomNormal(stddev=0.1), kernel_regularizer="l1_l2", trainable=false)
        Dense(4, kernel_initializer=TruncatedNormal(0.0, 0.1)) Dense(2, kernel_initializer="zeros")""",
    ),
    "any_length": ("(None, 4)", "Conv1D(3, 3, padding='same') LSTM(3, return_sequences=true) Dense(2)"),
    "any_size": (
        "(None, None, 3)",
        """Conv2D(4, 3, strides=2, padding="same") MaxPooling2D(2, padding="same")
        UpSampling2D(2, interpolation="bilinear") GlobalMaxPooling2D() Dense(2)""",
    ),
    "dilated": ("(9, 9, 2)", "Conv2D(3, 3, dilation_rate=2, padding='same') Conv2D(4, (2, 3)) Flatten() Dense(2)"),
    "grouped": ("(9, 9, 4)", "Conv2D(6, 3, groups=2) ZeroPadding2D((1, 2)) UpSampling2D((2, 1)) Flatten() Dense(2)"),
}
"""The input and the layers of each."""

KERAS_ONLY = {
    "penalties": ("(6,)", "Dense(4) ActivityRegularization(l2=0.1) L1(0.1) Dense(3, activity_regularizer='l2')"),
    "constraints": ("(6,)", "Dense(4, kernel_constraint=max_norm(2)) Dense(3, bias_constraint='non_neg')"),
    "images_both_ways": ("(3, 6, 6, 2)", "Bidirectional(ConvLSTM2D(4, 3)) Flatten() Dense(2)"),
    "strides_in_time": ("(3, 6, 6, 2)", "ConvLSTM2D(4, 3, strides=2) Flatten() Dense(2)"),
    "frozen_norm": ("(6,)", "Dense(4) BatchNormalization(trainable=false) Dense(3)"),
    "first_weights_both_ways": ("(6, 2)", "Bidirectional(LSTM(4, kernel_initializer='zeros')) Dense(3)"),
    "penalized_steps": ("(6, 2)", "LSTM(4, kernel_regularizer='l2', recurrent_regularizer=l1(0.1)) Dense(3)"),
}
"""Those that the PyTorch file refuses, and Keras builds."""


def text(shape: str, layers: str) -> str:
    """Return the file of a network."""
    given = f"input: {shape}"
    return f'network Other {{ {given} layers: {layers} loss: "mse" }}'
