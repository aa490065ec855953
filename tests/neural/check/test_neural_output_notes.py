"""Notes on outputs that cannot work with the loss."""

import pytest
from tests.neural.sample_files import CNN, network

from neural import checked, parse


def noted(layers, loss):
    plan = checked(parse(network(layers, rest=f"loss: {loss} optimizer: Adam"), "a.neural"))
    return [(note.line, note.text) for note in plan.notes]


SPARSE = "sparse_categorical_crossentropy"
UNFIT = [
    (
        'Output(10, "relu")',
        SPARSE,
        f'{SPARSE} needs probabilities, which relu of Output does not give: write "softmax"',
    ),
    ('Dense(3, "tanh")', "categorical_crossentropy", "which tanh of Dense does not give"),
    ('Output(1, "relu")', "binary_crossentropy", 'does not give: write "sigmoid"'),
    ('Output(3, "linear")', SPARSE, f'write "softmax", or the loss {SPARSE}(from_logits=true)'),
    ("Dense(3) Activation(relu)", SPARSE, "which relu of Activation does not give"),
    ('Output(1, "softmax")', "mse", 'the softmax of one unit of Output is always 1: write "sigmoid" for two classes'),
    ('Output(1, "softmax")', "binary_crossentropy", 'is always 1: write "sigmoid"'),
    ('Output(1, "softmax")', SPARSE, 'write "sigmoid" and the loss "binary_crossentropy" for two classes'),
    ('Output(10, "sigmoid")', SPARSE, "needs probabilities whose sum is 1, which sigmoid of Output does not give"),
    ('Output(1, "sigmoid")', SPARSE, "needs a unit for each class, and Output has one"),
    ('Output(10, "softmax")', "binary_crossentropy", "takes each of the 10 units of Output for a question of its own"),
    ('Dense(8, "softmax") Output(3)', SPARSE, 'Dense has a softmax, which is for the last layer: write "relu"'),
    ('Dense(8, "softmax") Dropout(0.5) Dense(1)', "mse", "Dense has a softmax, which is for the last layer"),
]


@pytest.mark.parametrize(("layers", "loss", "words"), UNFIT)
def test_an_output_that_the_loss_cannot_use_is_noted_with_its_line(layers, loss, words):
    ((line, text),) = noted(layers, loss)
    assert line == 4
    assert words in text


@pytest.mark.parametrize(
    ("layers", "loss"),
    [
        ('Output(3, "softmax")', SPARSE),
        ('Output(3, "softmax")', "categorical_crossentropy"),
        ('Output(3, "linear")', f"{SPARSE}(from_logits=true)"),
        ('Output(1, "linear")', "binary_crossentropy(from_logits=true)"),
        ('Output(1, "sigmoid")', "binary_crossentropy"),
        ('Output(5, "sigmoid")', "binary_crossentropy"),
        ("Dense(3) Activation(softmax)", SPARSE),
        ('Output(1, "relu")', "mse"),
        ('a: { Dense(4, "softmax") } b: { Dense(4) } Multiply() Output(3)', SPARSE),
    ],
)
def test_an_output_that_works_is_not_noted(layers, loss):
    assert noted(layers, loss) == []


def test_the_line_is_that_of_the_output():
    plan = checked(parse(CNN.replace('10, "softmax"', '10, "relu"'), "a.neural"))
    assert [note.line for note in plan.notes] == [11]
