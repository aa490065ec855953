"""The sections about training, the choice of a network, and screens of several problems."""

import pickle
import time

import pytest
from tests.neural.sample_files import ANY_ORDER, CNN, SCHEDULED, SEVERAL_NETWORKS, network

from neural import CheckFailed, checked, compile_plan, parse
from neural.cli import main


def plan_of(text, name=None):
    return checked(parse(text, name="a.neural"), name)


def problems_of(text, name=None):
    with pytest.raises(CheckFailed) as caught:
        plan_of(text, name)
    return caught.value.problems


def rest(text):
    return network("Dense(2)", rest=text)


def test_a_plan_holds_all_that_training_needs():
    plan = plan_of(CNN)
    assert (plan.name, plan.file) == ("Digits", "a.neural")
    assert plan.loss.type == "sparse_categorical_crossentropy"
    assert plan.optimizer.type == "Adam"
    assert plan.optimizer.parameters["learning_rate"] == 0.002
    assert (plan.optimizer.parameters["beta_1"], plan.optimizer.parameters["epsilon"]) == (0.9, 1e-7)
    assert (plan.metrics, plan.schedule, plan.device, plan.searches) == (("accuracy",), None, None, ())
    assert (plan.training["epochs"], plan.training["batch_size"], plan.training["validation_split"]) == (3, 64, 0.2)
    assert plan.notes == ()


def test_sections_in_any_order_and_an_optimizer_in_a_string():
    plan = plan_of(ANY_ORDER)
    assert (plan.optimizer.type, plan.optimizer.parameters["momentum"]) == ("SGD", 0.9)
    assert (plan.loss.type, plan.metrics, plan.device) == ("mean_squared_error", ("mae", "mse"), "cpu")
    assert plan.training["batch_size"] == 8


def test_a_schedule_in_an_optimizer():
    plan = plan_of(SCHEDULED)
    assert plan.schedule.type == "ExponentialDecay"
    assert dict(plan.schedule.parameters) == {
        "initial_learning_rate": 0.1, "decay_steps": 100, "decay_rate": 0.9, "staircase": False,
    }  # fmt: skip
    assert plan.optimizer.parameters["learning_rate"] == 0.1
    assert plan.loss.parameters == {"delta": 0.5}
    assert (plan.training["early_stopping"], plan.training["gradient_clip"], plan.training["device"]) == (
        True,
        1.0,
        "gpu",
    )
    assert plan.training["hpo"] == {"trials": 5}


@pytest.mark.parametrize(
    "written",
    [
        'Adam(learning_rate="ExponentialDecay(0.1, 1000, 0.96)")',
        '"Adam(learning_rate=ExponentialDecay(0.1, 1000, 0.96))"',
        "Adam(ExponentialDecay(initial=0.1, decay_steps=1000, decay_rate=0.96))",
        "Adam  lr_schedule: ExponentialDecay(0.1, 1000, 0.96)",
    ],
)
def test_a_schedule_may_be_written_in_four_ways(written):
    plan = plan_of(rest(f"loss: mse optimizer: {written}"))
    assert plan.schedule.parameters["decay_rate"] == 0.96
    assert plan.optimizer.parameters["learning_rate"] == 0.1


@pytest.mark.parametrize(
    "written",
    [
        "PiecewiseConstantDecay([100, 200], [0.1, 0.01, 0.001])",
        "PolynomialDecay(0.1, 100, 0.01, power=2)",
        "InverseTimeDecay(0.1, 100, 0.5)",
        "CosineDecay(0.1, 100)",
        "StepDecay(0.1, 10, 0.5)",
    ],
)
def test_schedules(written):
    plan = plan_of(rest(f"lr_schedule: {written}"))
    assert plan.schedule.type == written.split("(")[0]
    assert plan.optimizer.parameters["learning_rate"] == 0.1


@pytest.mark.parametrize("written", ["Adam", '"adam"', "ADAM()", '"Adam"'])
def test_an_optimizer_by_its_name(written):
    assert plan_of(rest(f"optimizer: {written}")).optimizer.type == "Adam"


@pytest.mark.parametrize(
    ("layers", "loss"),
    [
        ("Output(3)", "categorical_crossentropy"),
        ('Dense(1, "sigmoid")', "binary_crossentropy"),
        ("Dense(1)", "mean_squared_error"),
    ],
)
def test_what_is_missing_is_chosen_and_said(layers, loss):
    plan = plan_of(network(layers, rest=""))
    assert plan.loss.type == loss
    assert (plan.optimizer.type, plan.optimizer.parameters["learning_rate"]) == ("Adam", 0.001)
    assert [note.text.split(":")[0] for note in plan.notes] == ["no optimizer", "no loss"]


# ---------------------------------------------------------------- several networks


def test_the_first_network_is_taken_and_said():
    plan = plan_of(SEVERAL_NETWORKS)
    assert plan.name == "Small"
    assert plan.notes[0].text == "Small is taken, the first network of Small, Large, Small"


def test_a_network_by_its_name():
    assert len(plan_of(SEVERAL_NETWORKS, "Large").layers) == 2
    notes = [note.text for note in plan_of(SEVERAL_NETWORKS, "Small").notes]
    assert notes[0] == "2 networks are called Small: the first one is taken"
    assert [plan_of(SEVERAL_NETWORKS, place).inputs[0].shape for place in "123"] == [(3,), (3,), (4,)]
    assert problems_of(SEVERAL_NETWORKS, "4")[0].message == "no network is called '4'"
    (problem,) = problems_of(SEVERAL_NETWORKS, "Largo")
    assert problem.expected == "one of Small, Large", "each name once"
    assert (problem.message, problem.suggestion) == ("no network is called 'Largo'", "Large")


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("written", "words", "near"),
    [
        ('loss: "categorical_crosentropy"', "unknown loss 'categorical_crosentropy'", "categorical_crossentropy"),
        ("loss: 3", "unknown loss 3", ""),
        ("loss: mse, mae", "loss has 2 values", ""),
        ("loss: huber(delta=-1)", "delta of huber is -1", ""),
        ("optimizer: Adma", "unknown optimizer 'Adma'", "Adam"),
        ("optimizer: Adam(learning_raet=1)", "Adam has no parameter 'learning_raet'", "learning_rate"),
        ("optimizer: Adan", "unknown optimizer 'Adan'", "Adam"),
        ("optimizer: Adam(learning_rate=0)", "learning_rate of Adam is 0", ""),
        ("optimizer: Adam(learning_rat=1)", "Adam has no parameter 'learning_rat'", "learning_rate"),
        ('optimizer: "Adam("', "this string holds no name with arguments", ""),
        ('optimizer: "Adam) layers: x(1"', "this string holds no name with arguments", ""),
        ("optimizer: Adam(ExponentialDecy(1, 2, 3))", "unknown schedule 'ExponentialDecy'", "ExponentialDecay"),
        ("optimizer: Adam(ExponentialDecay(1, 2))", "ExponentialDecay needs decay_rate", ""),
        ("lr_schedule: PiecewiseConstantDecay([1], [1])", "1 boundaries and 1 values", ""),
        ("metrics: [acuracy]", 'unknown metric "acuracy"', "accuracy"),
        ("train { epoch: 3 }", "train has no setting 'epoch'", "epochs"),
        ("train { epochs: 0 }", "epochs of train is 0", ""),
        ("train { batch_size: -1 }", "batch_size of train is -1", ""),
        ("train { validation_split: 2 }", "validation_split of train is 2", ""),
        ('train { search_method: "grit" }', 'search_method of train is "grit"', ""),
        ("train: 3", "train has no settings", ""),
        ('execution { device: "cuda:x" }', "unknown device 'cuda:x'", "cuda"),
        ('execution { device: "cuda:" }', "unknown device 'cuda:'", "cuda"),
        ('execution { device: "cuda:²" }', "unknown device 'cuda:²'", "cuda"),
        ('execution { device: "cuda:-1" }', "unknown device 'cuda:-1'", "cuda"),
        ('execution { device: "cpu:0" }', "unknown device 'cpu:0'", "cpu"),
        ('train { device: "cuda:³" }', "unknown device 'cuda:³'", "cuda"),
        ("optimizer: Adam(beta_1=1)", "beta_1 of Adam is 1", ""),
        ("optimizer: Nadam(beta_2=1.0)", "beta_2 of Nadam is 1.0", ""),
        ("train { seed: -1 }", "seed of train is -1", ""),
        ("execution { device: 3 }", "3 is no device", ""),
        ("execution { devise: cpu }", "execution has no setting 'devise'", "device"),
        ("train { epochs: 1 } train { epochs: 2 }", "train is given twice, first in line 5", ""),
        ("input: (3)", "input is given twice, first in line 2", ""),
    ],
)
def test_problems_of_sections(written, words, near):
    problem = problems_of(rest(written))[0]
    assert (problem.message, problem.suggestion) == (words, near)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "this file describes no network"),
        ("define A { }", "this file describes no network"),
        ("network N { layers: Dense(3) }", "the network N has no input"),
        ("network N { input: (3) }", "the network N has no layers"),
        ("network N { input: (3) layers: }", "the network N has no layers"),
        ("define A { } network N { input: (3) layers: A() }", "the network N has no layers"),
        ("network N { metrcs: [mae] input: (3) layers: Dense(3) }", "unknown section 'metrcs'"),
    ],
)
def test_files_without_a_model(text, words):
    assert problems_of(text)[0].message == words


def test_all_problems_are_said_at_once_in_the_order_of_the_lines():
    text = """\
network Digits {
  input: (28, 28, 1)
  layers:
    Conv2D(filters=-3, kernel_size=(3, 3), activaton="relu")
    Dens(10)
    Dense(10) @ "gpux"
  optimizer: Adam(learning_rate=0)
}
"""
    with pytest.raises(CheckFailed) as caught:
        plan_of(text)
    assert (
        str(caught.value)
        == """\
a.neural:4:12: filters of Conv2D is -3
  4 |     Conv2D(filters=-3, kernel_size=(3, 3), activaton="relu")
    |            ^^^^^^^^^^
  expected: a whole number above 0

a.neural:4:44: Conv2D has no parameter 'activaton'
  4 |     Conv2D(filters=-3, kernel_size=(3, 3), activaton="relu")
    |                                            ^^^^^^^^^^^^^^^^
  expected: one of filters, kernel_size, activation, strides, padding, dilation_rate, groups, use_bias,
    data_format
  did you mean: activation?

a.neural:5:5: unknown layer 'Dens'
  5 |     Dens(10)
    |     ^^^^
  expected: a layer of Keras, or a macro of this file
  did you mean: Dense?

a.neural:6:5: unknown device 'gpux'
  6 |     Dense(10) @ "gpux"
    |     ^^^^^^^^^^^^^^^^^^
  expected: auto, cpu, gpu, cuda, cuda:0 or tpu
  did you mean: gpu?

a.neural:7:19: learning_rate of Adam is 0
  7 |   optimizer: Adam(learning_rate=0)
    |                   ^^^^^^^^^^^^^^^
  expected: a number above 0 or a schedule, such as ExponentialDecay(0.1, 1000, 0.96)"""
    )


def notes_of(written):
    return [note.text for note in plan_of(rest(f"loss: mse {written}")).notes]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "optimizer: Adam(learning_rate=0.5) lr_schedule: ExponentialDecay(0.1, 10, 0.9)",
            "the rate is that of the schedule: learning_rate=0.5 of Adam is not used",
        ),
        (
            'optimizer: "SGD(0.5)" lr_schedule: ExponentialDecay(0.1, 10, 0.9)',
            "the rate is that of the schedule: learning_rate=0.5 of SGD is not used",
        ),
        ("optimizer: SGD(nesterov=true)", "nesterov of SGD changes nothing without a momentum"),
        (
            "optimizer: SGD(global_clipnorm=2) train { gradient_clip: 3 }",
            "gradient_clip and global_clipnorm limit one norm: 2 is taken, the smaller of both",
        ),
        (
            'optimizer: SGD train { device: "cpu" } execution { device: "cuda" }',
            "two devices: cuda of execution is taken, not cpu of train",
        ),
        (
            'optimizer: SGD execution { device: "tpu" }',
            "PyTorch as it is used here knows no TPU: CUDA is taken where it is there, else the CPU",
        ),
    ],
)
def test_a_setting_that_another_one_overrules_is_a_note(written, words):
    assert notes_of(written) == [words]


@pytest.mark.parametrize(
    "written",
    [
        "optimizer: Adam lr_schedule: ExponentialDecay(0.1, 10, 0.9)",
        "optimizer: SGD(nesterov=true, momentum=0.9)",
        'optimizer: SGD train { device: "gpu" } execution { device: "cuda" }',
        "optimizer: SGD train { gradient_clip: 3 }",
    ],
)
def test_settings_that_agree_are_no_note(written):
    assert notes_of(written) == []


def test_the_smaller_of_two_limits_is_the_one_that_is_built():
    plan = plan_of(rest("loss: mse optimizer: SGD(global_clipnorm=2) train { gradient_clip: 3 seed: 0 }"))
    assert (plan.training["gradient_clip"], plan.training["seed"]) == (2, 0)
    assert compile_plan(plan).count("clip_grad_norm_(model.parameters(), 2)") == 1
    assert "global_clipnorm=2" in compile_plan(plan, backend="keras")


def test_too_many_arguments_are_one_problem():
    (problem,) = problems_of(network("Dense(10, relu, 30, 40, 50)"))
    assert problem.message == "Dense takes at most two arguments without a name"


def test_an_activation_in_the_place_of_the_units_is_told_where_it_belongs():
    (problem,) = problems_of(network('Output("softmax")'))
    expected = 'a whole number above 0; the activation is activation="softmax", or the second argument'
    assert problem.expected == expected


def test_no_more_than_twenty_problems_are_said():
    assert len(problems_of(network("\n".join(f"Unknown{n}()" for n in range(50))))) == 20


def test_all_further_problems_are_counted_and_soon():
    names = [f"Unknown{n}()" for n in range(9000)]
    started = time.process_time()
    with pytest.raises(CheckFailed) as caught:
        plan_of(network(" ".join(names)))
    assert (len(caught.value.problems), caught.value.more) == (20, 8980)
    assert pickle.loads(pickle.dumps(caught.value)).more == 8980
    assert time.process_time() - started < 5


def test_the_command_says_how_many_more(tmp_path, capsys):
    (tmp_path / "a.neural").write_text(network(" ".join(f"Unknown{n}()" for n in range(3020))))
    assert main(["check", str(tmp_path / "a.neural")]) == 1
    assert capsys.readouterr().err.endswith("\n\n20 problems, and 3,000 more\n")
