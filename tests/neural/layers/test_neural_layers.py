"""Shapes and numbers of parameters of every layer, against counts by hand; parameters, names and refusals."""

import pytest
from tests.neural.sample_files import network

from neural import CheckFailed, checked, parse
from neural.layers import BY_NAME, FAMILIES, LAYERS
from neural.layers.parameter import REQUIRED

IMAGE, SEQUENCE, VECTOR = "(32, 32, 3)", "(20, 8)", "(10,)"
VOLUME = "(8, 8, 8, 2)"
FILM = "(5, 16, 16, 3)"

COUNTS = [
    # layer, input, output, trained parameters, others
    ("Dense(4)", VECTOR, (4,), 10 * 4 + 4, 0),
    ("Dense(4, use_bias=false)", SEQUENCE, (20, 4), 8 * 4, 0),
    ("Output(4)", IMAGE, (32, 32, 4), 3 * 4 + 4, 0),
    ("Conv1D(6, 3)", SEQUENCE, (18, 6), 3 * 8 * 6 + 6, 0),
    ('Conv1D(6, 3, padding="causal", dilation_rate=2)', SEQUENCE, (20, 6), 3 * 8 * 6 + 6, 0),
    ("Conv2D(6, 5)", IMAGE, (28, 28, 6), 5 * 5 * 3 * 6 + 6, 0),
    ('Conv2D(6, (3, 5), strides=2, padding="same")', IMAGE, (16, 16, 6), 3 * 5 * 3 * 6 + 6, 0),
    ("Conv2D(6, 3, strides=(2, 3))", IMAGE, (15, 10, 6), 9 * 3 * 6 + 6, 0),
    ("Conv2D(6, 3, dilation_rate=4)", IMAGE, (24, 24, 6), 9 * 3 * 6 + 6, 0),
    ("Conv2D(6, 3, groups=3)", IMAGE, (30, 30, 6), 9 * 1 * 6 + 6, 0),
    ("Conv3D(4, 3)", VOLUME, (6, 6, 6, 4), 27 * 2 * 4 + 4, 0),
    ("Conv1DTranspose(4, 3, strides=2)", SEQUENCE, (41, 4), 3 * 8 * 4 + 4, 0),
    ('Conv2DTranspose(4, 3, strides=2, padding="same")', IMAGE, (64, 64, 4), 9 * 3 * 4 + 4, 0),
    ("Conv2DTranspose(4, 5)", IMAGE, (36, 36, 4), 25 * 3 * 4 + 4, 0),
    ('Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=1)', IMAGE, (64, 64, 4), 9 * 3 * 4 + 4, 0),
    ('Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=0)', IMAGE, (63, 63, 4), 9 * 3 * 4 + 4, 0),
    ("Conv3DTranspose(4, 2, strides=2)", VOLUME, (16, 16, 16, 4), 8 * 2 * 4 + 4, 0),
    ("DepthwiseConv2D(3)", IMAGE, (30, 30, 3), 9 * 3 + 3, 0),
    ("DepthwiseConv1D(3, depth_multiplier=2)", SEQUENCE, (18, 16), 3 * 16 + 16, 0),
    ("SeparableConv2D(6, 3)", IMAGE, (30, 30, 6), 9 * 3 + 3 * 6 + 6, 0),
    ("SeparableConv1D(6, 3)", SEQUENCE, (18, 6), 3 * 8 + 8 * 6 + 6, 0),
    ("MaxPooling1D()", SEQUENCE, (10, 8), 0, 0),
    ("MaxPooling2D(3)", IMAGE, (10, 10, 3), 0, 0),
    ('MaxPooling2D((3, 3), 2, padding="same")', IMAGE, (16, 16, 3), 0, 0),
    ("MaxPooling3D()", VOLUME, (4, 4, 4, 2), 0, 0),
    ("AveragePooling1D(4, strides=1)", SEQUENCE, (17, 8), 0, 0),
    ("AveragePooling2D()", IMAGE, (16, 16, 3), 0, 0),
    ("AveragePooling3D()", VOLUME, (4, 4, 4, 2), 0, 0),
    ("GlobalMaxPooling1D()", SEQUENCE, (8,), 0, 0),
    ("GlobalMaxPooling2D(keepdims=true)", IMAGE, (1, 1, 3), 0, 0),
    ("GlobalMaxPooling3D()", VOLUME, (2,), 0, 0),
    ("GlobalAveragePooling1D()", SEQUENCE, (8,), 0, 0),
    ("GlobalAveragePooling2D()", IMAGE, (3,), 0, 0),
    ("GlobalAveragePooling3D()", VOLUME, (2,), 0, 0),
    ("AdaptiveMaxPooling1D(4)", SEQUENCE, (4, 8), 0, 0),
    ("AdaptiveMaxPooling2D((4, 2))", IMAGE, (4, 2, 3), 0, 0),
    ("AdaptiveMaxPooling3D(2)", VOLUME, (2, 2, 2, 2), 0, 0),
    ("AdaptiveAveragePooling1D(4)", SEQUENCE, (4, 8), 0, 0),
    ("AdaptiveAveragePooling2D(4)", IMAGE, (4, 4, 3), 0, 0),
    ("AdaptiveAveragePooling3D(2)", VOLUME, (2, 2, 2, 2), 0, 0),
    ("Dropout(0.5)", IMAGE, (32, 32, 3), 0, 0),
    ("SpatialDropout1D(0.5)", SEQUENCE, (20, 8), 0, 0),
    ("SpatialDropout2D(0.5)", IMAGE, (32, 32, 3), 0, 0),
    ("SpatialDropout3D(0.5)", VOLUME, (8, 8, 8, 2), 0, 0),
    ("GaussianNoise(0.1)", VECTOR, (10,), 0, 0),
    ("GaussianDropout(0.1)", VECTOR, (10,), 0, 0),
    ("AlphaDropout(0.1)", VECTOR, (10,), 0, 0),
    ("Flatten()", IMAGE, (32 * 32 * 3,), 0, 0),
    ("Reshape((16, -1))", IMAGE, (16, 192), 0, 0),
    ("Reshape(target_shape=(5, 2, 1))", VECTOR, (5, 2, 1), 0, 0),
    ("Permute((3, 1, 2))", IMAGE, (3, 32, 32), 0, 0),
    ("RepeatVector(4)", VECTOR, (4, 10), 0, 0),
    ("UpSampling2D((2, 3))", IMAGE, (64, 96, 3), 0, 0),
    ("ZeroPadding2D(2)", IMAGE, (36, 36, 3), 0, 0),
    ('Activation("swish")', VECTOR, (10,), 0, 0),
    ("ActivityRegularization(l1=0.1)", VECTOR, (10,), 0, 0),
    ("L1(0.1)", VECTOR, (10,), 0, 0),
    ("L2(0.1)", VECTOR, (10,), 0, 0),
    ("L1L2(0.1, 0.2)", VECTOR, (10,), 0, 0),
    ("Embedding(100, 6)", VECTOR, (10, 6), 600, 0),
    ("PositionalEncoding()", SEQUENCE, (20, 8), 0, 0),
    ("LSTM(5)", SEQUENCE, (5,), 4 * (5 * (8 + 5) + 5), 0),
    ("LSTM(5, return_sequences=true, use_bias=false)", SEQUENCE, (20, 5), 4 * 5 * 13, 0),
    ("GRU(5)", SEQUENCE, (5,), 3 * (5 * (8 + 5) + 2 * 5), 0),
    ("GRU(5, reset_after=false)", SEQUENCE, (5,), 3 * (5 * (8 + 5) + 5), 0),
    ("SimpleRNN(5)", SEQUENCE, (5,), 5 * (8 + 5) + 5, 0),
    ("LSTMCell(5)", SEQUENCE, (5,), 4 * (5 * 13 + 5), 0),
    ("GRUCell(5)", SEQUENCE, (5,), 3 * (5 * 13 + 10), 0),
    ("SimpleRNNCell(5)", SEQUENCE, (5,), 5 * 13 + 5, 0),
    ("LSTMDropoutWrapper(5, dropout=0.2)", SEQUENCE, (5,), 4 * (5 * 13 + 5), 0),
    ("GRUDropoutWrapper(5, dropout=0.2)", SEQUENCE, (5,), 3 * (5 * 13 + 10), 0),
    ("SimpleRNNDropoutWrapper(5, dropout=0.2)", SEQUENCE, (5,), 5 * 13 + 5, 0),
    ("ConvLSTM2D(4, 3)", FILM, (14, 14, 4), 4 * (9 * (3 + 4) * 4 + 4), 0),
    ("ConvGRU2D(4, 3, return_sequences=true)", FILM, (5, 14, 14, 4), 3 * (9 * (3 + 4) * 4 + 4), 0),
    ("Bidirectional(LSTM(5))", SEQUENCE, (10,), 2 * 4 * (5 * 13 + 5), 0),
    ('Bidirectional(GRU(5, return_sequences=true), merge_mode="sum")', SEQUENCE, (20, 5), 2 * 3 * (5 * 13 + 10), 0),
    ("Bidirectional { LSTM(5) }", SEQUENCE, (10,), 2 * 4 * (5 * 13 + 5), 0),
    ("TimeDistributed(Conv2D(4, 3))", FILM, (5, 14, 14, 4), 9 * 3 * 4 + 4, 0),
    ("TimeDistributed { Flatten() Dense(7) }", FILM, (5, 7), 16 * 16 * 3 * 7 + 7, 0),
    ('ResidualConnection { Conv2D(3, 3, padding="same") }', IMAGE, (32, 32, 3), 9 * 3 * 3 + 3, 0),
    ("BatchNormalization()", IMAGE, (32, 32, 3), 6, 6),
    ("BatchNormalization(center=false, axis=3)", IMAGE, (32, 32, 3), 3, 6),
    ("BatchNormalization(trainable=false)", IMAGE, (32, 32, 3), 0, 12),
    ("LayerNormalization()", SEQUENCE, (20, 8), 16, 0),
    ("GroupNormalization(4)", SEQUENCE, (20, 8), 16, 0),
    ("InstanceNormalization()", IMAGE, (32, 32, 3), 6, 0),
    ("MultiHeadAttention(2, 5)", SEQUENCE, (20, 8), 3 * (8 * 10 + 10) + 10 * 8 + 8, 0),
    ("MultiHeadAttention(2, 5, value_dim=3)", SEQUENCE, (20, 8), 2 * (80 + 10) + 8 * 6 + 6 + 6 * 8 + 8, 0),
    ("Attention()", SEQUENCE, (20, 8), 0, 0),
    # torch.nn.TransformerEncoderLayer(8, 2, 16) has 600 parameters, torch.nn.TransformerDecoderLayer(8, 2, 16) 904.
    ("TransformerEncoder(num_heads=2, ff_dim=16)", SEQUENCE, (20, 8), 600, 0),
    ("TransformerEncoder(num_heads=2, ff_dim=16, num_layers=3)", SEQUENCE, (20, 8), 1800, 0),
    ("TransformerDecoder(num_heads=2, ff_dim=16)", SEQUENCE, (20, 8), 904, 0),
    ("Transformer(num_heads=2, ff_dim=16)", SEQUENCE, (20, 8), 600, 0),
    ("SqueezeExcitation(ratio=3)", IMAGE, (32, 32, 3), 3 * 1 + 1 + 1 * 3 + 3, 0),
    ("Dense(10) a: { } b: { Dense(10) } Add()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(10) } Subtract()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(10) } Multiply()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(10) } Average()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(1) } Maximum()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(10) } Minimum()", VECTOR, (10,), 0, 0),
    ("a: { } b: { Dense(7) } Concatenate()", VECTOR, (17,), 0, 0),
    ('a: { } b: { Conv2D(3, 3, padding="same") } Concatenate(axis=1)', IMAGE, (64, 32, 3), 0, 0),
    ("a: { } b: { Dense(3) } Dot(axes=1)", SEQUENCE, (8, 3), 0, 0),
]


def plan_of(layers, shape):
    return checked(parse(network(f"    {layers}", shape)))


@pytest.mark.parametrize(("layers", "given", "shape", "trained", "fixed"), COUNTS, ids=[each[0] for each in COUNTS])
def test_shapes_and_parameters(layers, given, shape, trained, fixed):
    last = plan_of(layers, given).layers[-1]
    assert (last.shape, last.trainable, last.fixed) == (shape, trained, fixed)


def test_every_layer_that_can_be_built_is_counted():
    counted = {plan_of(layers, given).layers[-1].type for layers, given, *_ in COUNTS}
    assert {name for name, each in LAYERS.items() if not each.unbuildable} - counted == set()


@pytest.mark.parametrize("name", sorted(name for name, each in LAYERS.items() if each.unbuildable))
def test_what_cannot_be_built_says_why(name):
    with pytest.raises(CheckFailed, match=f"{name} cannot be built: {LAYERS[name].unbuildable[:20]}"):
        plan_of(f"{name}()", VECTOR)


def test_every_layer_of_the_public_grammar_is_known():
    names = [
        "Dense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose",
        "DepthwiseConv2D", "SeparableConv2D", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
        "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "Flatten", "Output",
        "Activation", "LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell",
        "SimpleRNNDropoutWrapper", "GRUDropoutWrapper", "LSTMDropoutWrapper", "Bidirectional", "ConvLSTM2D",
        "ConvGRU2D", "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
        "Attention", "Transformer", "TransformerEncoder", "TransformerDecoder", "ResidualConnection",
        "Inception", "CapsuleLayer", "SqueezeExcitation", "GraphConv", "GraphAttention", "Embedding",
        "QuantumLayer", "DynamicLayer", "TimeDistributed", "Lambda", "Add", "Subtract", "Multiply", "Average",
        "Maximum", "Concatenate", "Dot", "ActivityRegularization", "L1", "L2", "L1L2", "CustomShape", "Reshape",
        "MultiHeadAttention", "PositionalEncoding",
    ]  # fmt: skip
    names += [
        f"{word}Pooling{rank}D"
        for word in ("Max", "Average", "GlobalMax", "GlobalAverage", "AdaptiveMax", "AdaptiveAverage")
        for rank in (1, 2, 3)
    ]
    assert [name for name in names if name not in LAYERS] == []


def test_the_register_is_sorted_and_no_name_is_taken_twice():
    assert list(FAMILIES) == sorted(FAMILIES)
    names = [name.lower() for each in LAYERS.values() for name in (each.name, *each.aliases)]
    assert len(names) == len(set(names)) == len(BY_NAME)


@pytest.mark.parametrize("kind", LAYERS.values(), ids=lambda kind: kind.name)
def test_each_layer_describes_itself(kind):
    assert kind.help.endswith(".")
    names = [name for each in kind.parameters for name in (each.name, *each.aliases)]
    assert len(names) == len(set(names))
    for parameter in kind.parameters:
        assert parameter.help
        assert not parameter.help.endswith(".")
        if parameter.default is not REQUIRED and parameter.default is not None:
            assert parameter.kind.convert(parameter.default) == parameter.default


def test_names_are_read_in_any_case_and_by_their_aliases():
    for text in ("dense(4)", "DENSE(units=4)", "Dense(4)"):
        assert plan_of(text, VECTOR).layers[0].type == "Dense"
    assert plan_of("MaxPool2D()", IMAGE).layers[0].type == "MaxPooling2D"


def test_all_parameters_have_their_canonical_values():
    values = plan_of('Conv2D(4, 3, "swish", strides=2)', IMAGE).layers[0].parameters
    assert values["kernel_size"] == (3, 3)
    assert values["strides"] == (2, 2)
    assert (values["filters"], values["activation"], values["padding"], values["use_bias"]) == (
        4,
        "silu",
        "valid",
        True,
    )
    assert plan_of("BatchNormalization()", IMAGE).layers[0].parameters["momentum"] == 0.99


def test_a_whole_float_is_taken_as_a_whole_number_and_said():
    plan = plan_of("Dense(256.0)", VECTOR)
    assert plan.layers[0].parameters["units"] == 256
    assert [note.text for note in plan.notes if "taken as" in note.text] == ["256.0 is taken as 256"]


REFUSALS = [
    ("Conv2D(4, 3)", SEQUENCE, "Conv2D needs an input of (height, width, channels), and gets (20, 8)"),
    ("Conv2D(4, 40)", IMAGE, "Conv2D has a window of (40, 40), larger than its input of (32, 32)"),
    ("Conv2D(4, 3, groups=2)", IMAGE, "Conv2D has 2 groups, which divide not both 3 channels and 4 filters"),
    (
        "Conv2D(4, 3, strides=2, dilation_rate=2)",
        IMAGE,
        "Conv2D takes no strides above 1 together with a dilation_rate",
    ),
    ("MaxPooling2D(64)", IMAGE, "MaxPooling2D has a window of (64, 64), larger than its input of (32, 32)"),
    ("LSTM(4)", VECTOR, "LSTM needs an input of (steps, features), and gets (10,)"),
    ("LSTM(4, return_state=true)", SEQUENCE, "LSTM has return_state=true: only one output of a layer can be used here"),
    ("Bidirectional(Dense(4))", SEQUENCE, "Bidirectional needs one recurrent layer, such as LSTM(64), and has Dense"),
    ("Bidirectional()", SEQUENCE, "Bidirectional needs a layer"),
    ("TimeDistributed(Dense(4))", VECTOR, "TimeDistributed needs an input of (steps, ...), and gets (10,)"),
    ("Reshape((3, 3))", VECTOR, "Reshape cannot make (3, 3) of 10 elements of (10,)"),
    ("Reshape((-1, -1))", VECTOR, "Reshape has the target_shape (-1, -1): sizes are above 0"),
    ("TransformerEncoder(num_heads=3)", SEQUENCE, "TransformerEncoder has 3 heads, which do not divide the 8 features"),
    ("GroupNormalization(3)", SEQUENCE, "GroupNormalization has 3 groups, which do not divide 8 channels"),
    ("BatchNormalization(axis=1)", IMAGE, "BatchNormalization has axis=1: only the last axis can be normalised"),
    ("ResidualConnection { Conv2D(3, 3) }", IMAGE, "ResidualConnection adds its input of (32, 32, 3) to a block that"),
    ("ResidualConnection()", IMAGE, "ResidualConnection needs a block of layers"),
    ("Dense(4) { Dense(3) }", VECTOR, "Dense takes no block of layers"),
    ("a: { Dense(3) } b: { Dense(4) } Add()", SEQUENCE, "Add needs inputs of one shape"),
    ("a: { Dense(3) } b: { Flatten() } Concatenate()", SEQUENCE, "Concatenate needs inputs of one shape"),
    ("Dense(10) Embedding(10, 3)", VECTOR, "Embedding reads ids, and gets the output of Dense_1"),
    ("Dense(1000000000) Dense(1000000000)", VECTOR, "Dense has 1e+18 parameters"),
    ("UpSampling2D(100000)", IMAGE, "the output of UpSampling2D has 3.07e+13 elements"),
    ("Dense(0)", VECTOR, "units of Dense is 0"),
    ("Dense(-4)", VECTOR, "units of Dense is -4"),
    ("Dense(4.5)", VECTOR, "units of Dense is 4.5"),
    ("Dense(true)", VECTOR, "units of Dense is true"),
    ("Dense()", VECTOR, "Dense needs units"),
    ("Dense(LSTM(4))", VECTOR, "units of Dense is LSTM(...)"),
    ("Dense(4, relu, 3)", VECTOR, "Dense takes at most two arguments without a name"),
    ("Dense(4, units=3)", VECTOR, "units of Dense is given twice"),
    ("Dense(4, unit=3)", VECTOR, "Dense has no parameter 'unit'"),
    ("Dropout(1.5)", VECTOR, "rate of Dropout is 1.5"),
    ("Dropout()", VECTOR, "Dropout needs rate"),
    ("Activation()", VECTOR, "Activation needs activation"),
    ('Dense(4, "rleu")', VECTOR, 'activation of Dense is "rleu"'),
    ("BatchNormalization(momentum=2)", VECTOR, "momentum of BatchNormalization is 2"),
    ('Conv2D(4, 3, data_format="channels_first")', IMAGE, 'data_format of Conv2D is "channels_first"'),
    ("Conv2D(4, (3, 3, 3))", IMAGE, "kernel_size of Conv2D is (3, 3, 3)"),
]


@pytest.mark.parametrize(("layers", "given", "words"), REFUSALS, ids=[each[0] for each in REFUSALS])
def test_refusals(layers, given, words):
    with pytest.raises(CheckFailed) as caught:
        plan_of(layers, given)
    assert words in caught.value.problems[0].message


def test_a_parameter_that_is_misspelled_is_told_of_once():
    with pytest.raises(CheckFailed) as caught:
        plan_of("Conv2D(filtres=4, kernel_size=3)", IMAGE)
    assert [one.message for one in caught.value.problems] == ["Conv2D has no parameter 'filtres'"]


NOTES = [
    ('Dense(3, dtype="float64")', VECTOR, 'dtype="float64" of Dense is not used: all parameters are of 32 bits'),
    ("Dense(3, input_shape=(7,))", VECTOR, "input_shape=(7) of Dense is not used: its input is (10,)"),
    (
        "Dense(3, batch_input_shape=(None, 7))",
        VECTOR,
        "batch_input_shape=(None, 7) of Dense is not used: its input is (10,)",
    ),
    ("Embedding(9, 3, weights=[1, 2])", "(6,)", "weights=(1, 2) of Embedding is not used: training begins at random"),
    ("Embedding(9, 3, input_length=99)", "(6,)", "input_length=99 of Embedding is not used: its input is (6,)"),
    (
        "PositionalEncoding(d_model=99)",
        SEQUENCE,
        "d_model=99 of PositionalEncoding is not used: its input has 8 features",
    ),
    (
        "TransformerEncoder(num_heads=2, d_model=512)",
        SEQUENCE,
        "d_model=512 of TransformerEncoder is not used: its input has 8 features",
    ),
    (
        "MultiHeadAttention(embed_dim=512)",
        SEQUENCE,
        "embed_dim=512 of MultiHeadAttention is not used: its input has 8 features",
    ),
    (
        "MultiHeadAttention(2, 2, batch_first=false)",
        SEQUENCE,
        "batch_first=false of MultiHeadAttention is not used: the batch comes first",
    ),
    (
        "MultiHeadAttention(2, 2, return_attention_scores=true)",
        SEQUENCE,
        "return_attention_scores=true of MultiHeadAttention is not used: a layer has one output",
    ),
]


@pytest.mark.parametrize(("layers", "given", "words"), NOTES, ids=[each[0] for each in NOTES])
def test_what_contradicts_the_input_or_is_not_used_is_a_note(layers, given, words):
    notes = [note.text for note in plan_of(f"{layers} Flatten() Dense(1)", given).notes]
    assert words in notes


@pytest.mark.parametrize(
    ("layers", "given"),
    [
        ("Dense(3, dtype='float32', input_shape=(10,))", VECTOR),
        ("Dense(3, input_shape=10, batch_input_shape=(32, 10))", VECTOR),
        ("Embedding(9, 3, input_length=6)", "(6,)"),
        ("Embedding(9, 3, input_length=6, input_shape=(None,))", "(None,)"),
        ("PositionalEncoding(d_model=8, max_len=20)", SEQUENCE),
        ("TransformerEncoder(num_heads=2, d_model=8, batch_first=true)", SEQUENCE),
    ],
)
def test_what_agrees_with_the_input_is_no_note(layers, given):
    assert not any("not used" in note.text for note in plan_of(f"{layers} Dense(1)", given).notes)


@pytest.mark.parametrize(
    ("layers", "given", "words"),
    [
        ("LSTM(3, time_major=true)", SEQUENCE, "LSTM has time_major=true: the batch comes first here"),
        ("Bidirectional(GRU(3, time_major=true))", SEQUENCE, "GRU has time_major=true"),
        ("ConvLSTM2D(3, time_major=true)", FILM, "ConvLSTM2D has time_major=true"),
        ("ConvLSTM2D(3, return_state=true)", FILM, "ConvLSTM2D has return_state=true"),
        ("PositionalEncoding(max_len=3)", SEQUENCE, "PositionalEncoding has max_len=3, and its input has 20 steps"),
    ],
)
def test_what_would_be_another_network_is_refused(layers, given, words):
    with pytest.raises(CheckFailed, match=words):
        plan_of(layers, given)
