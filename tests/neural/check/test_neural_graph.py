"""How layers are connected: sequences, branches, named inputs, residual blocks, sums without operands, attention."""

import pytest
from tests.neural.sample_files import ATTENTION, MODELS, NAMED_INPUTS, RESIDUAL, network

from neural import CheckFailed, checked, parse

ENCODER = """
define Encoder {
  Dense(8)
  Add()
  LayerNormalization()
  Dense(8)
  Add()
  LayerNormalization()
}
"""
DECODER = """
define Decoder {
  LayerNormalization()
  Dense(8)
  Add()
  LayerNormalization()
  Dense(8)
  Add()
}
"""


def plan_of(text, name=None):
    return checked(parse(text), name)


def connections(plan):
    return {layer.name: layer.inputs for layer in plan.layers}


def approximations(plan):
    return [note.text for note in plan.notes if note.approximated]


def message(text):
    with pytest.raises(CheckFailed) as caught:
        plan_of(text)
    return caught.value.problems[0].message


@pytest.mark.parametrize("name", MODELS)
def test_every_sample_is_a_model(name):
    source = parse(MODELS[name])
    for each in source.networks:
        plan = checked(source, each.name)
        assert plan.layers[-1].name == plan.output
        assert plan.to_dict()["layers"]


def test_a_sequence():
    plan = plan_of(network("Dense(3) Dropout(0.1) Dense(2)"))
    assert connections(plan) == {"Dense_1": ("input",), "Dropout_2": ("Dense_1",), "Dense_3": ("Dropout_2",)}
    assert (plan.output, plan.parameter_count) == ("Dense_3", 4 * 3 + 3 + 3 * 2 + 2)


def test_branches_of_named_inputs():
    plan = plan_of(NAMED_INPUTS)
    assert [(each.name, each.shape, each.ids) for each in plan.inputs] == [
        ("words", (12,), True),
        ("picture", (8, 8, 3), False),
    ]
    assert connections(plan) == {
        "Embedding_1": ("words",),
        "GlobalAveragePooling1D_2": ("Embedding_1",),
        "Conv2D_3": ("picture",),
        "Flatten_4": ("Conv2D_3",),
        "Dense_5": ("Flatten_4",),
        "Concatenate_6": ("GlobalAveragePooling1D_2", "Dense_5"),
        "Output_7": ("Concatenate_6",),
    }


def test_branches_of_one_input_and_an_empty_one():
    plan = plan_of(network("Dense(4) a: { Dense(4) Dense(4) } b: { } Add()"))
    assert connections(plan)["Add_4"] == ("Dense_3", "Dense_1")
    assert approximations(plan) == []


def test_operands_by_name():
    plan = plan_of(network('Dense(4, name="first") Dense(4) Add("first", "Dense_2") Concatenate(["first", "input"])'))
    assert connections(plan)["Add_3"] == ("Dense_1", "Dense_2")
    assert connections(plan)["Concatenate_4"] == ("Dense_1", "input")


def test_inputs_that_nothing_read_are_merged():
    plan = plan_of(network("Concatenate()", "(3,), (4,)"))
    assert connections(plan) == {"Concatenate_1": ("input_1", "input_2")}
    assert plan.layers[0].shape == (7,)


@pytest.mark.parametrize(
    ("layers", "shape", "words"),
    [
        ("a: { Dense(3) } b: { Dense(3) } Dense(4)", "(4,)", "Dense comes after 2 branches"),
        ("a: { Dense(3) } b: { Dense(3) }", "(4,)", "2 branches end without a layer after them"),
        ("a: { Dense(3) } a: { Dense(3) } Add()", "(4,)", "two branches are called 'a'"),
        ("Dense(3)", "{ a: (3) b: (4) }", "no layer reads the input 'b'"),
        ('Dense(3) Add("frist", "input")', "(3,)", "no layer, branch or input before this is called 'frist'"),
        ('Dense(3) Add("input")', "(3,)", "Add names one operand"),
        ("Add()", "(3,)", "Add has nothing to merge"),
    ],
)
def test_what_cannot_be_connected(layers, shape, words):
    assert message(network(layers, shape)) == words


# ---------------------------------------------------------------- residual blocks


def test_residual_blocks():
    first, second, third, *_ = plan_of(RESIDUAL).layers
    assert (first.name, second.name, third.name) == (
        "ResidualConnection_1",
        "ResidualConnection_2",
        "ResidualConnection_3",
    )
    assert [(each.name, each.inputs) for each in first.children] == [("Conv2D_1", ("",)), ("Conv2D_2", ("Conv2D_1",))]
    assert (first.shape, first.parameters["projection"]) == ((16, 16, 4), None)
    assert first.trainable == 2 * (9 * 4 * 4 + 4)


def test_a_last_convolution_of_1x1_may_be_the_projection():
    third = plan_of(RESIDUAL).layers[2]
    assert third.parameters["projection"] == "Conv2D_3"
    assert (third.children[2].inputs, third.children[2].shape) == (("",), (8, 8, 8))
    # The projection reads the 4 channels of the block's input, not the 8 of the layer before it.
    assert third.trainable == (9 * 4 * 8 + 8) + (9 * 8 * 8 + 8) + (4 * 8 + 8)
    assert third.shape == (8, 8, 8)


def test_a_block_in_place_of_an_encoder():
    plan = plan_of(network("TransformerEncoder(num_heads=2) { Dense(5) Dense(6) }", "(3, 4)"))
    assert (plan.layers[0].shape, len(plan.layers[0].children)) == ((3, 6), 2)
    assert approximations(plan)[0].startswith(
        "TransformerEncoder with a block: the layers of the block run in its place"
    )


# ---------------------------------------------------------------- sums without operands


def test_a_sum_adds_the_input_of_its_macro_then_what_was_normalised():
    plan = plan_of(ENCODER + network("Dense(8) Encoder()"))
    assert connections(plan)["Add_3"] == ("Dense_2", "Dense_1")
    assert connections(plan)["Add_6"] == ("Dense_5", "LayerNormalization_4")
    assert approximations(plan) == [
        "Add() has no operand: it merges the output before it with the input of its macro or block",
        "Add() has no operand: it merges the output before it with the output of the last LayerNormalization",
    ]


def test_a_body_that_begins_with_a_norm_adds_what_the_norm_reads():
    plan = plan_of(DECODER + network("Dense(8) Decoder()"))
    assert connections(plan)["Add_4"] == ("Dense_3", "Dense_1")
    assert connections(plan)["Add_7"] == ("Dense_6", "Add_4")


def test_a_sum_of_other_channels_has_a_projection():
    text = 'define Block { Conv2D(16, 3, padding="same") Add() } ' + network("Block()", "(8, 8, 4)")
    (_, total) = plan_of(text).layers
    assert (total.parameters["projection"], total.trainable, total.shape) == (16, 4 * 16, (8, 8, 16))
    assert "a 1x1 convolution without bias brings one to the other" in approximations(plan_of(text))[1]


def test_a_sum_of_other_sizes_is_refused():
    text = "define Block { Conv2D(4, 3) Add() } " + network("Block()", "(8, 8, 4)")
    assert message(text) == "Add needs inputs of one shape, and gets (6, 6, 4) and (8, 8, 4)"


def test_a_gate_of_channels_is_multiplied():
    text = """
    define Gate {
      GlobalAveragePooling2D()
      Dense(2, "relu")
      Dense(6, "sigmoid")
      Conv2D(3, 1)
    }
    """ + network("Conv2D(6, 3) Gate()", "(8, 8, 4)")
    plan = plan_of(text)
    assert connections(plan)["Multiply_5"] == ("Conv2D_1", "Dense_4")
    assert plan.layers[-1].shape == (6, 6, 3)
    assert len(approximations(plan)) == 1


# ---------------------------------------------------------------- sequences


def test_a_decoder_attends_to_the_sequence_before():
    layers = """
    Embedding(50, 8) TransformerEncoder(num_heads=2)
    Embedding(60, 8) MultiHeadAttention(2, 4, mode="cross") TransformerDecoder(num_heads=2)
    """
    plan = plan_of(network(layers, "{ source: (7,) target: (5,) }"))
    assert connections(plan)["Embedding_3"] == ("target",)
    assert connections(plan)["MultiHeadAttention_4"] == ("Embedding_3", "TransformerEncoder_2")
    assert connections(plan)["TransformerDecoder_5"] == ("MultiHeadAttention_4", "TransformerEncoder_2")
    assert plan.layers[-1].shape == (5, 8)
    assert approximations(plan) == ["Embedding reads the input target, as nothing else does"]


def test_a_sequence_that_nothing_reads_is_said():
    plan = plan_of(network("Embedding(50, 8) Dense(8) Embedding(60, 8) Dense(8)", "{ a: (7,) b: (5,) }"))
    assert any(text.startswith("nothing reads the output of Dense_2") for text in approximations(plan))


def test_cross_attention_without_a_second_input():
    plan = plan_of(network('MultiHeadAttention(2, 4, mode="cross")', "(7, 8)"))
    assert connections(plan) == {"MultiHeadAttention_1": ("input", "input")}
    assert len(approximations(plan)) == 1


def test_the_sample_with_attention():
    plan = plan_of(ATTENTION)
    assert [layer.device for layer in plan.layers if layer.device] == ["cuda:0"]
    assert plan.layers[15].name == "TransformerEncoder_16"
    assert plan.schedule.type == "StepDecay"


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("written", "layers", "shape", "words"),
    [
        ("(None, 28, 28)", "Flatten() Dense(3)", (28, 28), ""),
        ("784", "Dense(3)", (784,), ""),
        ("(None,)", "Embedding(5, 3) GlobalAveragePooling1D()", (None,), ""),
        ("(100, 8)", "Embedding(50, 8)", (100,), "ids of shape (100,) are taken"),
        ("(None, 12)", "TransformerEncoder(num_heads=2) Dense(3)", (None, 12), "None is taken for a length"),
        ("shape(1, 28, 28)", "Conv2D(3, 3)", (28, 28, 1), "with the channels last"),
        ("shape(28, 28, 1)", "Conv2D(3, 3)", (28, 28, 1), ""),
    ],
)
def test_shapes_of_inputs(written, layers, shape, words):
    plan = plan_of(network(layers, written))
    assert plan.inputs[0].shape == shape
    assert words in " ".join(approximations(plan))
    assert bool(approximations(plan)) == bool(words)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("(0, 3)", "0 is no size of an input"),
        ("(3.5,)", "3.5 is no size of an input"),
        ('"big"', '"big" is no size of an input'),
        ("()", "a shape of 0 axes"),
        ("(1, 2, 3, 4, 5, 6, 7, 8, 9)", "a shape of 9 axes"),
        ("tensor(3)", "tensor(...) is no shape"),
        ("{ a: (3) a: (4) }", "two inputs have the same name"),
        ("{ }", "input has no shape"),
        ("(99999999999, 3)", "99999999999 is no size of an input"),
    ],
)
def test_what_is_no_shape(written, words):
    assert message(network("Dense(3)", written)) == words
