"""The lines of a file that a diagnosis is about."""

from tests.neural.sample_files import CNN

from neural import checked, parse
from neural.file_lines import file_lines, layer_at

SCHEDULED = """network Scheduled {
  input: (4,)
  layers:
    Dense(8) * 2
    ResidualConnection {
      Dense(8)
      Dense(8)
    }
    Output(3)
  optimizer: SGD(learning_rate=ExponentialDecay(0.1, 100, 0.9))
}
"""


def told(text, cause, verdict="failing"):
    source = parse(text, "a.neural")
    return file_lines({"verdict": verdict, "hypotheses": [cause]}, checked(source), source)


def place(what):
    return {"places": [{"what": what, "file": "x.py", "line": 3, "code": ""}]}


def test_the_layer_and_the_section_in_the_order_of_the_file():
    cause = {"layer": "Output_6", **place("the loss is computed")}
    assert told(CNN, cause) == [
        "In a.neural:",
        '  11 |     Output(10, "softmax")',
        '  13 |   loss: "sparse_categorical_crossentropy"',
    ]


def test_the_optimizer_stands_for_a_schedule_that_is_written_in_it():
    lines = told(SCHEDULED, {"layer": None, **place("the scheduler is created")})
    assert lines == ["In a.neural:", "  10 |   optimizer: SGD(learning_rate=ExponentialDecay(0.1, 100, 0.9))"]


def test_an_optimizer_on_several_lines_is_shown_with_its_arguments():
    text = SCHEDULED.replace("ExponentialDecay(0.1, 100, 0.9)", "\n    5.0,\n    momentum=0.9\n  ")
    lines = told(text, {"layer": None, **place("the optimizer is created")})
    assert lines[1:] == [
        "  10 |   optimizer: SGD(learning_rate=",
        "  11 |     5.0,",
        "  12 |     momentum=0.9",
        "  13 |   )",
    ]
    long = SCHEDULED.replace("ExponentialDecay(0.1, 100, 0.9)", "\n" * 9 + "0.1")
    assert len(told(long, {"layer": None, **place("the optimizer is created")})) == 6, "a heading and five lines"


def test_a_layer_within_a_block_is_found_by_its_path():
    plan = checked(parse(SCHEDULED, "a.neural"))
    names = [layer.name for layer in plan.walk()]
    block = next(layer for layer in plan.layers if layer.type == "ResidualConnection")
    inner = block.children[1]
    assert inner.name in names
    assert layer_at(f"{block.name}.{inner.name}", plan) is inner
    assert layer_at(f"{block.name}.unknown.weight", plan) is block
    assert layer_at("unknown", plan) is None
    assert layer_at("", plan) is None


def test_nothing_is_said_where_nothing_is_known():
    assert told(CNN, {"layer": None}) == []
    assert told(CNN, {"layer": "elsewhere", **place("the layer is created")}) == []
    assert told(CNN, {"layer": "Output_6"}, "healthy") == []
    source = parse(CNN, "a.neural")
    assert file_lines({"verdict": "failing", "hypotheses": []}, checked(source), source) == []
