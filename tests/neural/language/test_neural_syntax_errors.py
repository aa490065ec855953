"""Exact screens of syntax errors: where, the line with a caret, what was expected, the nearest name."""

import pickle

import pytest
from tests.neural.sample_files import network

from neural import NeuralError, SyntaxFault, parse

SCREENS = {
    "network A {\n  input: (3)\n": """\
a.neural:1:11: this { is never closed
  1 | network A {
    |           ^
  expected: a } before the end of the file""",
    network("    Conv2D(16, 3\n    Flatten()"): """\
a.neural:4:11: the ( of Conv2D in line 4 is never closed
  4 |     Conv2D(16, 3
    |           ^
  expected: a ) before line 5""",
    "network A {\n  input: (8,\n  layers: Dense(1)\n}": """\
a.neural:2:10: the ( of input in line 2 is never closed
  2 |   input: (8,
    |          ^
  expected: a ) before line 3""",
    network("    Dense(10)", rest='metrics: ["mae"\n  loss: "mse"'): """\
a.neural:5:12: the [ of metrics in line 5 is never closed
  5 |   metrics: ["mae"
    |            ^
  expected: a ] before line 6""",
    network("    Dense(10,\n    units=3\n    use_bias=true)"): """\
a.neural:6:5: a comma is missing before 'use_bias'
  6 |     use_bias=true)
    |     ^^^^^^^^
  expected: ',' or ')'""",
    network('    Dense(10 "relu")'): """\
a.neural:4:14: a comma is missing before "relu"
  4 |     Dense(10 "relu")
    |              ^^^^^^
  expected: ',' or ')'""",
    "netwrk A { }": """\
a.neural:1:1: 'netwrk' cannot stand here
  1 | netwrk A { }
    | ^^^^^^
  expected: a definition, such as network MyModel { ... }
  did you mean: network?""",
    network("    Dense(10)", rest='optimiser: "adam"'): """\
a.neural:5:3: unknown section 'optimiser'
  5 |   optimiser: "adam"
    |   ^^^^^^^^^
  expected: a section: input, layers, loss, optimizer, metrics, lr_schedule, train, execute, execution, hpo
  did you mean: optimizer?""",
    network("    Dense(10)", rest="trian { epochs: 5 }"): """\
a.neural:5:3: unknown section 'trian'
  5 |   trian { epochs: 5 }
    |   ^^^^^
  expected: a section: input, layers, loss, optimizer, metrics, lr_schedule, train, execute, execution, hpo
  did you mean: train?""",
    network("    Dense(10)", rest='loss "mse"'): """\
a.neural:5:8: a colon is missing after loss
  5 |   loss "mse"
    |        ^^^^^
  expected: loss: ...""",
    network("    Dense(10)", rest="train { epochs 5 }"): """\
a.neural:5:18: a colon is missing after epochs
  5 |   train { epochs 5 }
    |                  ^
  expected: epochs: ...""",
    network("    Dense(10,, 3)"): """\
a.neural:4:14: ',' cannot stand here
  4 |     Dense(10,, 3)
    |              ^
  expected: a value, such as 10, "relu" or (3, 3) or ')'""",
    network('    Dense("relu)'): """\
a.neural:4:11: this string is never closed
  4 |     Dense("relu)
    |           ^^^^^^
  expected: a " on the same line""",
    network("    Dense(10))"): """\
a.neural:4:14: ')' cannot stand here
  4 |     Dense(10))
    |              ^
  expected: a layer, such as Dense(10), a section, such as loss: "mse" or '}'""",
    network("    Dense(10) *"): """\
a.neural:5:3: something is missing before 'loss'
  5 |   loss: "mse"
    |   ^^^^""",
    "network A { layers: Dense(10)\nnetwork B { input: (3) }": """\
a.neural:2:1: 'network' begins here inside another definition
  2 | network B { input: (3) }
    | ^^^^^^^
  expected: a } before it""",
    network("    Dense($)"): """\
a.neural:4:11: a $ without a name
  4 |     Dense($)
    |           ^
  expected: a parameter of the macro, such as $units""",
    network("    Dense(10) * 2 * 3"): """\
a.neural:4:19: a second factor of the same layer
  4 |     Dense(10) * 2 * 3
    |                   ^^^""",
    "network": """\
a.neural:1:8: the file ends too early
  1 | network
    |        ^
  expected: a name, such as network MyModel""",
    "network A { } /* b": """\
a.neural:1:15: this comment is never closed
  1 | network A { } /* b
    |               ^^
  expected: a */ after it""",
    network("\tDense(é)"): """\
a.neural:4:8: the character 'é' cannot stand here
  4 |  Dense(é)
    |        ^
  expected: a value, such as 10, "relu" or (3, 3) or ')'""",
}


def screen(text):
    with pytest.raises(SyntaxFault) as caught:
        parse(text, name="a.neural")
    return str(caught.value)


@pytest.mark.parametrize("text", SCREENS)
def test_screens(text):
    assert screen(text) == SCREENS[text]


def words_of(text):
    try:
        parse(text)
    except SyntaxFault as error:
        (problem,) = error.problems
        return problem.message + problem.expected
    return ""


def test_no_token_of_the_parser_is_named():
    pieces = [
        "network",
        "N",
        "{",
        "layers",
        ":",
        "Dense",
        "(",
        "1",
        ",",
        ")",
        "[",
        "]",
        "=",
        "@",
        "*",
        '"s"',
        "$a",
        "}",
        ";",
    ]
    for first in pieces:
        for second in pieces:
            for third in ("}", ",", "1"):
                text = f"network A {{ layers: X(1) {first} {second} {third} "
                words = words_of(text)
                for token in ("RPAR", "LBRACE", "NAME", "KEY", "SECTION", "STRING", "STAR", "SIGN", "None", "Token("):
                    assert token not in words, text


def test_a_long_line_is_shown_around_its_fault():
    shown = screen(network("    Dense(" + "1, " * 200 + "=" + ", 1" * 200 + ")"))
    lines = shown.splitlines()
    assert all(len(line) < 130 for line in lines)
    assert lines[1][lines[2].index("^")] == "="


def test_an_error_crosses_processes():
    with pytest.raises(NeuralError) as caught:
        parse("netwrk")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)
