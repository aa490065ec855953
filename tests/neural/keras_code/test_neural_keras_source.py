"""The text of a Keras file, and what Keras cannot express."""

from __future__ import annotations

import ast

import pytest
from tests.neural.sample_files import CNN, MODELS, RESIDUAL, network

from neural import CheckFailed, checked, compile_plan, parse
from neural.keras_code import WRITERS
from neural.layers import LAYERS


def source(file: str, backend: str = "tensorflow") -> str:
    return compile_plan(checked(parse(file, "a.neural")), file, backend)


def problem(layers: str, shape: str = "(6, 4)", rest: str = 'loss: "mse"') -> str:
    with pytest.raises(CheckFailed) as caught:
        source(network(f"    {layers}", shape, rest))
    return str(caught.value)


def test_a_model_is_the_functional_api_with_the_names_of_the_file():
    lines = [
        "def build_model() -> keras.Model:",
        '    """Return the model with new random weights: (28, 28, 1) to (10,)."""',
        '    inputs = keras.Input((28, 28, 1), name="x")',
        '    x = layers.Conv2D(8, 3, activation="relu", name="Conv2D_1")(inputs)',
        '    x = layers.MaxPooling2D(2, name="MaxPooling2D_2")(x)',
        '    x = layers.Flatten(name="Flatten_3")(x)',
        '    x = layers.Dense(32, activation="relu", name="Dense_4")(x)',
        '    x = layers.Dropout(0.25, name="Dropout_5")(x)',
        '    x = layers.Dense(10, activation="softmax", name="Output_6")(x)',
        '    return keras.Model(inputs, x, name="Digits")',
    ]
    text = source(CNN)
    assert "\n".join(lines) in text
    assert 'os.environ.setdefault("KERAS_BACKEND", "tensorflow")\n\nimport keras' in text
    assert "optimizer=keras.optimizers.Adam(0.002)," in text
    assert "loss=keras.losses.SparseCategoricalCrossentropy()," in text


def test_keras_itself_chooses_its_backend():
    assert "KERAS_BACKEND" not in source(CNN, "keras")
    assert '"KERAS_BACKEND", "jax"' in source(CNN, "jax")


def test_a_block_stands_where_it_is_used():
    lines = [
        "    shortcut = x",
        "    layer = layers.Conv2D(",
        '        8, 3, strides=2, padding="same", name="ResidualConnection_3_Conv2D_1"',
        "    )",
    ]
    text = source(RESIDUAL)
    assert '    x = layers.Add(name="ResidualConnection_2")([x, shortcut])' in text
    assert '    shortcut = layers.Conv2D(8, 1, strides=2, name="ResidualConnection_3_Conv2D_3")(shortcut)' in text
    assert lines[0] in text


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["tensorflow", "keras"])
def test_every_file_is_python_of_120_columns(name, backend):
    text = source(MODELS[name], backend)
    ast.parse(text)
    assert max(map(len, text.splitlines())) <= 120
    assert "\n\n\n\n" not in text


def test_every_layer_has_a_writer_or_a_reason():
    buildable = {each.name for each in LAYERS.values() if not each.unbuildable and not each.wraps}
    assert set(WRITERS) == buildable - {"ResidualConnection"}


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("LSTM(3, stateful=true)", "LSTM has stateful=true"),
        ("Bidirectional(LSTM(3), merge_mode=None)", "Bidirectional with merge_mode=None"),
        ("Bidirectional(LSTM(3, go_backwards=true))", "Bidirectional is built around a layer which reads forwards"),
        ("MultiHeadAttention(2, 3, return_attention_scores=true)", "MultiHeadAttention has return_attention_scores"),
        ("MultiHeadAttention(2, 3, use_attention_mask=true)", "no Embedding before it says which places are empty"),
        ('Dense(3, kernel_initializer="fancy")', 'has the kernel_initializer "fancy", which is not built'),
        ("Dense(3, kernel_initializer=Constant(wrong=1))", "with the argument wrong, which is not known"),
        ('Dense(3, kernel_constraint="small")', 'has the kernel_constraint "small", which is not built'),
        ('Dense(3, kernel_regularizer="l3")', "has the kernel_regularizer 'l3', which is not built"),
        ('SeparableConv1D(3, kernel_initializer="zeros")', "has a kernel_initializer, which Keras's layer has not"),
        ("TimeDistributed(LSTM(3))", "needs an input of (steps, features)"),
    ],
)  # fmt: skip
def test_what_keras_has_not_is_a_problem_with_its_place(layers, words):
    told = problem(layers)
    assert told.startswith("a.neural:4:")
    assert words in told


def test_what_keras_cannot_run_on_jax():
    file = network("    MultiHeadAttention(2, 3, value_dim=4)", "(6, 4)")
    with pytest.raises(CheckFailed, match=r"a\.neural:4:5: MultiHeadAttention has a value_dim other than key_dim"):
        source(file, "jax")
    assert "value_dim=4" in source(file, "tensorflow")


def test_a_layer_that_leads_nowhere():
    told = problem('a: { Dense(3) } b: { Dense(4) } Add("a", "a") Dense(2)')
    assert told.startswith("a.neural:4:26: Dense leads not to the output, and a model of Keras has nothing else")


@pytest.mark.parametrize("backend", ["keras", "pytorch"])
def test_inputs_with_names_that_the_file_has_itself(backend):
    names = ["model", "range", "keras", "ops", "inputs", "dense_1", "x", "np"]
    inputs = " ".join(f"{name}: (3,)" for name in names)
    branches = " ".join(f"{name}: {{ Dense(2) }}" for name in names)
    text = source(network(f"    {branches} Concatenate() Dense(1)", f"{{ {inputs} }}"), backend)
    ast.parse(text)
    assert "range = " not in text
    assert 'data["model_input"]' in text


def test_all_problems_are_told_at_once():
    told = problem("LSTM(3, stateful=true, return_sequences=true) GRU(3, stateful=true)")
    assert told.count("stateful=true: a state that outlives a batch") == 2


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ('loss: "mse" optimizer: Adam(clipnorm=1.0, clipvalue=0.5)', "clipnorm and clipvalue together are not built"),
        ('loss: "mse" metrics: ["r2_score"]', "r2_score is built for an output of one axis only"),
    ],
)
def test_training_that_keras_has_not(rest, words):
    assert words in problem("Dense(3)", rest=rest)
