"""Macros, repetitions, arithmetic and searches: what a file says in short becomes single layers with plain values."""

import pickle

import pytest
from tests.neural.sample_files import MACROS, SEARCHES, SHADOWED, network

from neural import CheckFailed, checked, parse


def plan_of(text, **options):
    return checked(parse(text, name="a.neural"), **options)


def problems_of(text):
    with pytest.raises(CheckFailed) as caught:
        plan_of(text)
    return caught.value.problems


def units(plan):
    return [(layer.name, layer.parameters.get("units", layer.parameters.get("rate"))) for layer in plan.layers]


def test_macros_with_arguments_defaults_and_arithmetic():
    assert units(plan_of(MACROS)) == [
        ("Dense_1", 16), ("Dropout_2", 0.1), ("Dense_3", 5),
        ("Dense_4", 16), ("Dropout_5", 0.5), ("Dense_6", 5),
        ("Dense_7", 16), ("Dropout_8", 0.5), ("Dense_9", 5),
        ("Dense_10", 8), ("Dropout_11", 0.1), ("Dense_12", 3),
        ("Output_13", 2),
    ]  # fmt: skip


def test_a_macro_may_have_the_name_of_a_layer_and_means_that_layer_in_its_own_body():
    plan = plan_of(SHADOWED)
    assert [layer.type for layer in plan.layers] == ["Dense", "BatchNormalization", "Output"]
    assert plan.layers[0].parameters["use_bias"] is False


@pytest.mark.parametrize(
    ("written", "value"),
    [("$n*2", 16), ("$n/2", 4), ("$n + $n * 2", 24), ("($n + 1) * 2", 18), ("$n - 1 - 1", 6), ("$n / 16 * 4", 2)],
)
def test_arithmetic(written, value):
    text = f"define M(n) {{ Dense({written}) }} " + network("M(8)")
    assert units(plan_of(text)) == [("Dense_1", value)]


def test_a_block_after_a_macro_follows_its_layers():
    text = "define M { Dense(3) } " + network("M { Dense(2) }")
    assert units(plan_of(text)) == [("Dense_1", 3), ("Dense_2", 2)]


def test_a_repetition_makes_independent_layers():
    assert [layer.name for layer in plan_of(network("Dense(4) * 3")).layers] == ["Dense_1", "Dense_2", "Dense_3"]
    text = "define M(n) { Dense(4) * $n } " + network("M(2) * 2")
    assert len(plan_of(text).layers) == 4


PROBLEMS = [
    ("define A { B() } define B { A() }", "A()", "the macro A uses itself: A -> B -> A"),
    ("define A { A() }", "A()", "the macro A uses itself: A -> A"),
    ("define A(n) { Dense($n) }", "A()", "A needs n"),
    ("define A(n) { Dense($n) }", "A(m=3)", "the macro A has no parameter 'm'"),
    ("define A(n) { Dense($n) }", "A(1, 2)", "too many arguments for A"),
    ("define A(n) { Dense($n) }", "A(1, n=2)", "n of A is given twice"),
    ("define A(n) { Dense($m) }", "A(1)", "$m is no parameter of this macro"),
    ("define A(n) { Dense($n / 0) }", "A(1)", "1 / 0 has no result"),
    ("define A(n) { Dense($n * 2) }", 'A("x")', '"x" is no number, and arithmetic needs one'),
    ("define A(n) { Dense($n" + " * $n" * 30 + ") }", "A(1000)", "the result of this arithmetic is too large"),
    ("define A { } define A { }", "Dense(3)", "the macro 'A' is defined twice"),
    ("", "Dense($n)", "$n is no parameter of this macro"),
    ("", "Densse(3)", "unknown layer 'Densse'"),
    ("", "MyLayer(3)", "MyLayer is a layer of your own, and this file does not define it"),
    ("", "Dense(3) * 0", "Dense is repeated 0 times"),
    ("", "Dense(3) * 2.5", "Dense is repeated 2.5 times"),
    ("", "Dense(3) * 1000000000", "the network has more than 10,000 layers"),
    ("", "Dense(HPO(choise(1, 2)))", "unknown search 'choise'"),
    ("", "Dense(HPO(choice()))", "a choice without values"),
    ("", "Dense(HPO(range(1)))", "range needs two numbers"),
    ("", "Dense(HPO(range(5, 1)))", "range from 5 to 1 has no values"),
    ("", "Dense(HPO(log_range(0, 1)))", "log_range from 0 to 1 has no values"),
    ("", "HPO(choice(3, 4))", "a choice of layers has layers only"),
    ("", 'Dense(3) @ "gpux"', "unknown device 'gpux'"),
    ("", "Dense(((((1)))))", "brackets inside brackets inside brackets are no value"),
]


@pytest.mark.parametrize(
    ("macros", "layers", "words"), PROBLEMS, ids=[f"{each[0][:40]} {each[1]}" for each in PROBLEMS]
)
def test_problems(macros, layers, words):
    assert problems_of(f"{macros} {network(layers)}")[0].message == words


def test_macros_that_double_without_end_are_refused_at_once():
    macros = "".join(f"define M{n} {{ M{n + 1}() M{n + 1}() }}\n" for n in range(60)) + "define M60 { }\n"
    assert problems_of(macros + network("M0()"))[0].message == "the network has more than 10,000 layers"


def test_a_long_chain_of_macros_is_refused():
    macros = "".join(f"define M{n} {{ M{n + 1}() }}\n" for n in range(500)) + "define M500 { Dense(3) }\n"
    message = problems_of(macros + network("M0()"))[0].message
    assert message == "more than 100 macros and blocks inside each other"


def test_values_that_double_without_end_are_refused():
    macros = (
        "".join(f"define M{n}(x) {{ M{n + 1}(x=($x, $x)) }}\n" for n in range(50)) + "define M50(x) { Dense($x) }\n"
    )
    assert "brackets inside brackets" in problems_of(macros + network("M0(x=1)"))[0].message


def test_a_problem_in_a_macro_says_where_it_is_used_and_is_said_once():
    text = "define Inner(n) {\n  Dense($n)\n}\ndefine Outer {\n  Inner(0)\n}\n" + network("Outer() * 3")
    (problem,) = problems_of(text)
    assert (
        problem.screen()
        == """\
a.neural:2:9: units of Dense is 0
  2 |   Dense($n)
    |         ^^
  expected: a whole number above 0
  in the macro Inner, used in line 5
  in the macro Outer, used in line 10"""
    )


# ---------------------------------------------------------------- searches


def test_the_first_choice_and_the_middle_of_a_range_are_taken():
    plan = plan_of(SEARCHES)
    dense, dropout, ranged, chosen, _ = plan.layers
    assert (dense.parameters["units"], dense.parameters["activation"]) == (16, "relu")
    assert dropout.parameters["rate"] == 0.4
    assert ranged.parameters["units"] == 15
    assert (chosen.type, chosen.parameters["units"]) == ("Dense", 64)
    assert plan.optimizer.parameters["learning_rate"] == pytest.approx(1e-3)
    assert (plan.training["epochs"], plan.training["batch_size"]) == (5, 16)
    assert len(plan.searches) == 8
    assert [note.text for note in plan.notes if note.text.startswith("search")] == [
        "search: 16 is taken, of 16, 32",
        'search: "relu" is taken, of "relu", "tanh"',
        "search: 0.4 is taken, between 0.2 and 0.6",
        "search: 15 is taken, between 10 and 20",
        "search: Dense is taken, of Dense, Dropout",
        "search: 0.001 is taken, between 0.0001 and 0.01",
        "search: 5 is taken, of 5, 10",
        "search: 16 is taken, of a list",
    ]


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("range(128, 512, step=64)", 320),
        ("range(1, 4, step=1)", 2),
        ("range(1, 4)", 2),
        ("range(start=2, end=6)", 4),
        ("range(5, 5)", 5),
        ("log_range(1, 100)", 10),
        ("choice([7, 8])", 7),
        ("categorical(9, 8)", 9),
    ],
)
def test_values_of_searches(written, taken):
    (search,) = plan_of(network(f"Dense(HPO({written}))")).searches
    assert search.taken == taken


def test_a_tuple_may_be_chosen():
    plan = plan_of(network("Conv2D(2, HPO(choice((3,3), (5,5))))", "(8, 8, 1)"))
    assert plan.layers[0].parameters["kernel_size"] == (3, 3)


def test_a_search_may_take_other_values():
    plan = plan_of(SEARCHES, choose=lambda search: search.values[-1] if search.kind == "choice" else search.values[1])
    assert [layer.type for layer in plan.layers] == ["Dense", "Dropout", "Dense", "Dropout", "Output"]
    assert [search.taken for search in plan.searches][:4] == [32, "tanh", 0.6, 20]


def test_the_deepest_model_can_be_checked_written_and_sent():
    macros = (
        "".join(f"define M{n} {{ ResidualConnection {{ M{n + 1}() }} }}\n" for n in range(48))
        + "define M48 { Dense(4) }\n"
    )
    plan = plan_of(macros + network("M0()"))
    assert len(list(plan.walk())) == 49
    assert len(str(plan.to_dict())) > 1000
    assert pickle.loads(pickle.dumps(plan)) == plan
