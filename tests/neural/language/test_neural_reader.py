"""Texts become trees: every construct of the language, and the forms in which people write it."""

import os
import subprocess
import sys

import pytest
from tests.neural.sample_files import COMMENTS, SEVERAL_NETWORKS, TEXTS, network

from neural import FileUnreadable, SyntaxFault, parse, read
from neural.errors import Span
from neural.language.tree import (
    Argument,
    Arithmetic,
    Branch,
    Call,
    Flag,
    Hpo,
    ListValue,
    Nothing,
    Number,
    Settings,
    Text,
    TupleValue,
    Variable,
    Word,
)

NOWHERE = Span(0, 0, 0, 0)


def layers_of(text):
    (found,) = (section.items for section in parse(text).networks[0].sections if section.name == "layers")
    return found


def value_of(text):
    (layer,) = layers_of(network(f"X({text})"))
    (argument,) = layer.arguments
    return argument.value


@pytest.mark.parametrize("name", TEXTS)
def test_every_sample_is_read(name):
    assert parse(TEXTS[name]) == parse(TEXTS[name])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", Number("10", NOWHERE)),
        ("-1", Number("-1", NOWHERE)),
        ("1e-4", Number("1e-4", NOWHERE)),
        (".5", Number(".5", NOWHERE)),
        ('"a b"', Text("a b", NOWHERE)),
        ("'a'", Text("a", NOWHERE)),
        ("relu", Word("relu", NOWHERE)),
        ("True", Flag(value=True, span=NOWHERE)),
        ("false", Flag(value=False, span=NOWHERE)),
        ("NONE", Nothing(NOWHERE)),
        ("$n", Variable("n", NOWHERE)),
        ("(3, 3)", TupleValue((Number("3", NOWHERE), Number("3", NOWHERE)), NOWHERE)),
        ("(3,)", TupleValue((Number("3", NOWHERE),), NOWHERE)),
        ("(3)", TupleValue((Number("3", NOWHERE),), NOWHERE)),
        ("[1, a]", ListValue((Number("1", NOWHERE), Word("a", NOWHERE)), NOWHERE)),
        ("$a*4", Arithmetic(Variable("a", NOWHERE), (("*", Number("4", NOWHERE)),), NOWHERE)),
        ("$a -1", Arithmetic(Variable("a", NOWHERE), (("-", Number("1", NOWHERE)),), NOWHERE)),
        ("LSTM(3)", Call("LSTM", (Argument(None, Number("3", NOWHERE), NOWHERE),), NOWHERE)),
        ("HPO(choice(1))", Hpo("choice", (Argument(None, Number("1", NOWHERE), NOWHERE),), NOWHERE)),
    ],
)
def test_values(text, value):
    assert value_of(text) == value


def test_a_product_binds_more_than_a_sum():
    found = value_of("$a + $b * 2 - 1")
    assert [sign for sign, _ in found.rest] == ["+", "-"]
    assert found.rest[0][1] == value_of("$b * 2")


def test_a_number_keeps_its_text_and_has_its_value():
    assert (value_of("1e-4").written, value_of("1e-4").value, value_of("256.0").value) == ("1e-4", 1e-4, 256.0)
    assert isinstance(value_of("+7").value, int)


def test_a_layer_has_device_block_and_factor_in_any_order():
    first, second = layers_of(network('A(1, b=2) @ "cuda:0" { B } * 3 A(1, b: 2) * 3 { B() } @ cuda:0'))
    assert first == second
    assert (first.device, first.repeat.value, first.block[0].type_name) == ("cuda:0", 3, "B")


def test_layers_are_separated_by_anything():
    assert layers_of(network("A() B() C()")) == layers_of(network("A(), B();\nC,")) == layers_of(network("[A, B, C]"))


def test_parameters_and_layers_may_have_the_names_of_sections():
    (layer,) = layers_of(network("Dense(loss=1, input: 2, layers: 3)"))
    assert [argument.name for argument in layer.arguments] == ["loss", "input", "layers"]


def test_branches():
    (left, right) = layers_of(network("left: { A() } right: { B() C() }"))
    assert isinstance(left, Branch)
    assert [item.type_name for item in right.items] == ["B", "C"]


def test_several_shapes_and_named_inputs():
    (section, _, _) = parse(network("A()", "(2, 3), (4)")).networks[0].sections
    assert len(section.values) == 2
    (section, _, _) = parse(network("A()", "{ a: (2) b: (3,), }")).networks[0].sections
    (settings,) = section.values
    assert isinstance(settings, Settings)
    assert [setting.name for setting in settings.items] == ["a", "b"]


def test_places_are_those_of_the_text():
    source = parse("network A {\n  input: (3)\n  layers:\n    Dense(\n      10) * 2\n}\n")
    layers = source.networks[0].sections[1]
    (layer,) = layers.items
    assert layer.name_span == Span(4, 5, 4, 10)
    assert layer.span == Span(4, 5, 5, 14)
    assert layer.arguments[0].span == Span(5, 7, 5, 9)
    assert source.networks[0].span == Span(1, 1, 6, 2)


def test_comments_are_kept_with_their_places():
    comments = parse(COMMENTS).comments
    assert len(comments) == 27
    assert comments[0].text == "// before everything"
    assert comments[1].text == "/* of two\n   lines */"
    assert [each.text for each in comments if each.alone][-1] == "# the end of the file"


def test_comment_marks_inside_strings_are_text():
    assert parse(TEXTS["research"]).comments == ()
    assert parse('network A { loss: "a /* b # c // d" }').networks[0].sections[0].values[0].text == "a /* b # c // d"


def test_networks_macros_and_research_stand_in_one_file():
    source = parse("define A { B } network N { } research { x: 1 } network M { }")
    assert [each.name for each in source.networks] == ["N", "M"]
    assert [each.name for each in source.macros] == ["A"]
    assert [each.name for each in source.research] == [None]
    assert len(parse(SEVERAL_NETWORKS).networks) == 3


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_all_ends_of_lines_mean_the_same(ends):
    assert parse(COMMENTS.replace("\n", ends)) == parse(COMMENTS)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("extension", [".neural", ".nr", ".rnr", ".NEURAL"])
def test_files_of_the_language(tmp_path, extension):
    path = tmp_path / f"model{extension}"
    path.write_bytes("\ufeff".encode() + TEXTS["cnn"].encode())
    assert read(path) == parse(TEXTS["cnn"])
    assert read(str(path)).file == str(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.txt", b"", "the extension is .txt, and must be one of .neural, .nr, .rnr"),
        ("model", b"", "the extension is missing"),
        ("none.neural", None, "no such file or directory"),
        ("bytes.neural", b"# a\n\xff", "byte 0xff in line 2 is not UTF-8"),
    ],
)
def test_what_is_no_such_file(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileUnreadable, match=words):
        read(tmp_path / name)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.neural").mkdir()
    with pytest.raises(FileUnreadable, match="is a directory"):
        read(tmp_path / "x.neural")


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("text", [network("A(" + "(" * 5000 + ")" * 5000 + ")"), network("A { " * 5000), "[" * 100_000])
def test_deep_brackets_are_refused(text):
    with pytest.raises(SyntaxFault, match="more than 40 brackets inside each other"):
        parse(text)


def test_long_sums_and_lists_are_read():
    assert len(value_of("$a" + "+1" * 20_000).rest) == 20_000
    assert len(value_of(f"[{'1,' * 20_000}]").items) == 20_000


def test_a_file_without_end_is_refused():
    with pytest.raises(SyntaxFault, match="the file has 200,001 characters, more than 200,000"):
        parse("\n" * 200_001)


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "-1e400"])
def test_numbers_without_end_are_refused(number):
    with pytest.raises(SyntaxFault, match="this number is too large or too long"):
        parse(network(f"A({number})"))


@pytest.mark.parametrize("kind", ["fifo", "device", "long"])
def test_what_never_ends_is_refused_before_it_is_read(tmp_path, kind):
    path = tmp_path / "a.neural"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as opened:
            opened.truncate(2**40)  # takes no room on the disk
    words = {"long": "neural:1:1: the file has more than 200,000 characters"}.get(kind, "is no regular file")
    # In a process of its own, which can be ended and has not all of the memory.
    script = (
        "import resource, sys, neural; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); neural.read('a.neural')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert words in done.stderr
