"""Every layer of the language is built with the shape and the parameters that the check gives it, or refused."""

import itertools

import pytest
import torch
from tests.neural.sample_files import network

from neural import CheckFailed, checked, compile_plan, load, parse
from neural.layers import LAYERS
from neural.layers.parameter import REQUIRED

SHAPES = ("(6,)", "(6, 4)", "(8, 8, 4)", "(4, 8, 8, 4)", "(8, 8, 8, 4)")
GIVEN = {
    "activation": '"tanh"',
    "dims": "(1,)",
    "filters": "4",
    "input_dim": "9",
    "n": "3",
    "output_dim": "4",
    "output_size": "2",
    "rate": "0.3",
    "stddev": "0.1",
    "target_shape": "(-1, 2)",
    "units": "3",
}
SMALL = {"groups": "2", "num_heads": "2", "ratio": "2", "ff_dim": "8"}
REFUSED = {"ActivityRegularization", "L1", "L1L2", "L2"}
BUILT = sorted(name for name, kind in LAYERS.items() if not kind.unbuildable and not kind.wraps)
MERGING = ("Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract")


def planned(name):
    """Return the plan of a network with one layer of a type, on the first shape that the layer takes."""
    kind = LAYERS[name]
    named = {each.name: GIVEN[each.name] for each in kind.parameters if each.default is REQUIRED}
    named |= {each.name: SMALL[each.name] for each in kind.parameters if each.name in SMALL and name[:4] != "Conv"}
    words = ", ".join(f"{key}={value}" for key, value in named.items())
    layers = f"    {name}({words})"
    if name in MERGING:
        layers = f'    left: {{ Activation("relu") }} right: {{ Activation("tanh") }} {layers}'
    if name == "ResidualConnection":
        layers = "    ResidualConnection { Dense(6) }"
    for shape in SHAPES:
        try:
            return checked(parse(network(layers, shape)))
        except CheckFailed as error:
            last = error
    raise last


def counted(model):
    """Return the number of parameters, moving averages included."""
    found = sum(each.numel() for each in model.parameters())
    return found + sum(each.numel() for key, each in model.named_buffers() if "running" in key)


def assert_as_planned(plan, samples=2):
    model = load(compile_plan(plan)).build_model()
    assert counted(model) == plan.parameter_count
    inputs = [
        torch.randint(0, 5, (samples, *each.shape)) if each.ids else torch.randn(samples, *each.shape)
        for each in plan.inputs
    ]
    for training in (True, False):
        found = model.train(training)(*inputs)
        assert tuple(found.shape) == (samples, *plan.layers[-1].shape)


@pytest.mark.parametrize("name", BUILT)
def test_every_layer(name):
    plan = planned(name)
    if name in REFUSED:
        with pytest.raises(CheckFailed, match="is not built"):
            compile_plan(plan)
        return
    assert_as_planned(plan)


PLACES = list(itertools.product((5, 8), (1, 2, 3, 4), (1, 2, 3), ("same", "valid")))


@pytest.mark.parametrize(
    "kind", ["Conv1D(2, {k}, ", "MaxPooling1D({k}, ", "AveragePooling1D({k}, ", "Conv1DTranspose(2, {k}, "]
)
def test_windows_of_all_sizes(kind):
    for size, width, stride, padding in PLACES:
        layer = kind.format(k=width) + f'strides={stride}, padding="{padding}")'
        assert_as_planned(checked(parse(network(f"    {layer}", f"({size}, 2)"))))


@pytest.mark.parametrize("kind", ["SeparableConv2D(2, (2, 3), ", "MaxPooling2D((2, 3), ", "AveragePooling2D((3, 2), "])
def test_windows_of_two_axes(kind):
    for strides, padding in itertools.product(((1, 1), (1, 2), (3, 2)), ("same", "valid")):
        layer = f'{kind}strides={strides}, padding="{padding}")'
        shape = "(7, 8, 2)"
        if "Separable" in kind and strides[0] != strides[1]:
            continue
        assert_as_planned(checked(parse(network(f"    {layer}", shape))))


@pytest.mark.parametrize(
    "layers",
    [
        'Conv1D(4, 3, strides=2, padding="same") GlobalMaxPooling1D()',
        'MaxPooling1D(3, strides=2, padding="same") LSTM(2)',
        'AveragePooling1D(3, strides=2, padding="same") GRU(2)',
    ],
)
@pytest.mark.parametrize("length", [5, 6])
def test_a_length_that_only_the_data_tell(layers, length):
    plan = checked(parse(network(f"    {layers}", "(None, None, 3)")))
    known = checked(parse(network(f"    {layers}", f"({length}, 3)")))
    torch.manual_seed(0)
    model = load(compile_plan(plan)).build_model()
    same = load(compile_plan(known)).build_model()
    same.load_state_dict(model.state_dict())
    x = torch.randn(2, length, 3)
    assert torch.allclose(model(x), same(x), atol=1e-6)


@pytest.mark.parametrize(
    "layers",
    [
        "Bidirectional(LSTM(3, return_sequences=true))",
        'Bidirectional(SimpleRNN(3), merge_mode="sum")',
        "TimeDistributed(Dense(3))",
        "ResidualConnection { Dense(4) LayerNormalization() } * 2",
        'ResidualConnection { ResidualConnection { Conv1D(4, 3, padding="same") } Dense(4) }',
        "TransformerEncoder() { Dense(4) LSTM(4, return_sequences=true) }",
        "one: { Conv1D(4, 1) } other: { Dense(4) } Add()",
    ],
)
def test_layers_around_others(layers):
    assert_as_planned(checked(parse(network(f"    {layers}", "(6, 4)"))))
