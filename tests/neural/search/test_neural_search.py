"""A search for values: what is proposed, what comes of a trial, and the table at its end."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.dashboard.served_page import opened, served
from tests.neural.sample_files import CNN

from neural import NeuralError, checked, compile_plan, parse
from neural.check.registered_parts import METRICS
from neural.preparing import Wanted
from neural.search import one_trial, printed, searched, searching
from neural.search.one_trial import Outcome
from neural.search.sampling import GridSampler, grid_values
from neural.search.search_space import Chosen
from neural.search.searching import is_lower_better
from neural.search.trial_result import DONE, FAILED, INTERRUPTED, PRUNED
from neuraldbg.dashboard.run_feed import RunFeed

MODEL = """\
define Block(units, rate) {
  Dense($units * HPO(choice(1, 2)), "relu")
  Dropout($rate)
}

network Searched {
  input: (64,)
  layers:
    Dense(HPO(choice(8, 16)), activation=HPO(choice("relu", "tanh")))
    HPO(choice(Dense(HPO(range(4, 6)), "relu"), Dropout(0.5)))
    Block(8, rate=0.1) * 2
    Output(10, "softmax")
  loss: "sparse_categorical_crossentropy"
  optimizer: SGD(learning_rate=HPO(log_range(1e-3, 1.0)))
  metrics: ["accuracy"]
  train { epochs: 1 batch_size: [32, 64] }
}
"""
GRID = MODEL.replace("HPO(log_range(1e-3, 1.0))", "0.1").replace("[32, 64]", "32")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    random = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=random.normal(size=(60, 64)), y=np.arange(60) % 10)
    np.savez(tmp_path / "images.npz", x=random.normal(size=(60, 28, 28, 1)), y=np.arange(60) % 10)

    def write(text=MODEL):
        (tmp_path / "a.neural").write_text(text, encoding="utf-8", newline="\n")
        return "a.neural"

    return write


@pytest.fixture
def answered(monkeypatch):
    """Answer trainings without training: the losses are given, one after another, the last one again and again."""

    def answer(*outcomes):
        commands = []

        def trained(script, arguments, folder, watched):
            folder.mkdir(parents=True)
            commands.append((script.read_text(encoding="utf-8"), arguments, folder))
            return outcomes[min(len(commands), len(outcomes)) - 1]

        monkeypatch.setattr(searching, "trained", trained)
        return commands

    return answer


def good(loss, verdict="healthy", cause=""):
    return Outcome(0, {"loss": loss, "val_loss": loss, "val_accuracy": 1 - loss}, verdict, cause)


def values(result):
    return [dict(trial.values) for trial in result.trials]


def wanted(name="data.npz", **options):
    return Wanted(data=Path(name), **options)


# ---------------------------------------------------------------- proposals


@pytest.mark.parametrize("method", ["random", "bayesian", "grid"])
def test_the_same_seed_gives_the_same_trials_and_another_one_others(model, answered, method):
    file = model(GRID if method == "grid" else MODEL)
    found = []
    for seed in (3, 3, 4):
        answered(good(0.5), good(0.25), good(0.75))
        found.append(values(searched(file, wanted(seed=seed), trials=6, method=method)))
    first, again, other = found
    assert first == again != other
    assert len({str(each) for each in first}) > 1


def test_a_choice_of_layers_decides_what_else_is_chosen(model, answered):
    commands = answered(good(0.5))
    result = searched(model(), wanted(), trials=8)
    taken = {trial.values["layer"] for trial in result.trials}
    assert taken == {"Dense", "Dropout"}
    for trial, (source, _, _) in zip(result.trials, commands, strict=True):
        dense = trial.values["layer"] == "Dense"
        assert ("Dense line 10" in trial.values) == dense
        assert ("nn.Dropout(0.5)" in source) != dense
        assert f"self.Dense_1 = nn.Linear(64, {trial.values['Dense']})" in source
        assert 1e-3 <= trial.values["learning_rate"] <= 1
        assert f"lr={trial.values['learning_rate']}" in source
        assert f"BATCH_SIZE = {trial.values['batch_size']}" in source


def test_a_grid_has_each_point_once_also_where_one_choice_opens_another(model, answered):
    answered(good(0.5))
    result = searched(model(GRID), wanted(), method="grid")
    # 2 units, 2 activations, (3 sizes of Dense, or Dropout), 2 factors in the macro
    assert len(result.trials) == 2 * 2 * (3 + 1) * 2
    assert len({str(sorted(each.items())) for each in values(result)}) == 32
    assert len(searched("a.neural", wanted(), method="grid", trials=5).trials) == 5


def search_of(written):
    text = f'network A {{ input: (4,) layers: Dropout(HPO({written})) loss: "mse" }}'
    (search,) = checked(parse(text)).searches
    return search


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("choice(0.1, 0.2)", [0.1, 0.2]),
        ("range(0.1, 0.5, step=0.2)", [0.1, 0.3, 0.5]),
        ("range(0.0, 1.0)", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("log_range(1e-4, 1.0)", [0.0001, 0.001, 0.01, 0.1, 1.0]),
    ],
)
def test_points_of_a_grid(written, found):
    assert grid_values(search_of(written)) == found


def test_a_grid_without_end_is_refused(model):
    axes = " ".join("Dense(HPO(range(1, 9, step=1)))" for _ in range(4))
    text = f'network A {{ input: (4,) layers: {axes} Output(1) loss: "mse" }}'
    with pytest.raises(NeuralError, match="more than 1,000 points"):
        searched(model(text), wanted(), method="grid")


def test_a_grid_sampler_visits_what_only_some_paths_ask(model):
    source = parse(GRID)

    def visit(proposal):
        checked(source, choose=Chosen(source.text, proposal.value).choose)

    assert GridSampler(0, visit).size == 32


@pytest.mark.parametrize("method", ["random", "bayesian"])
@pytest.mark.parametrize(
    ("written", "low", "high"), [("range(0.2, 0.65, step=0.1)", 0.2, 0.6), ("range(0.2, 0.6)", 0.2, 0.6)]
)
def test_values_of_a_range_lie_in_it(model, answered, method, written, low, high):
    answered(good(0.5), good(0.1))
    text = CNN.replace("Dropout(0.25)", f"Dropout(HPO({written}))")
    found = [each["Dropout"] for each in values(searched(model(text), wanted("images.npz"), trials=12, method=method))]
    assert low <= min(found) < max(found) <= high
    if "step" in written:
        assert {round(each * 10, 9) % 1 for each in found} == {0}


# ---------------------------------------------------------------- what comes of a trial


def test_the_best_is_the_lowest_loss_of_a_trial_that_did_not_fail(model, answered):
    answered(
        good(0.5),
        good(0.1, "failing", "Learning rate too high"),
        Outcome(1, {}, "", "", "ValueError: no"),
        good(float("nan"), "failing", "Not a number"),
        good(0.3, "suspect", "Dead units"),
        Outcome(-9, {}, "", "", ""),
        Outcome(0, {}, "healthy", ""),
        good(0.4),
    )
    result = searched(model(), wanted(), trials=8)
    assert [trial.state for trial in result.trials] == [DONE, PRUNED, FAILED, PRUNED, DONE, FAILED, FAILED, DONE]
    assert [trial.cause for trial in result.trials] == [
        "",
        "Learning rate too high",
        "crashed with exit status 1: ValueError: no",
        "Not a number",
        "Dead units",
        "crashed with signal 9",
        "the training gave no val_loss",
        "",
    ]
    assert result.best is result.trials[4]


def test_a_metric_is_maximized_and_an_error_minimized(model, answered):
    answered(good(0.5), good(0.2), good(0.7))
    result = searched(model(), wanted(), trials=3, objective="val_accuracy")
    assert (result.maximized, result.best.number, result.best.objective) == (True, 2, 0.8)


def test_of_each_metric_it_is_known_which_way_is_better():
    better = {"accuracy", "auc", "similarity", "f1", "precision", "recall", "r2"}
    for metric in METRICS:
        assert is_lower_better(f"val_{metric}") != any(word in metric for word in better), metric


def test_values_that_do_not_fit_each_other_fail_their_trial_alone(model, answered):
    answered(good(0.5))
    text = CNN.replace("(2, 2)", "HPO(choice(2, 200))").replace("Dropout(0.25)", "Dropout(HPO(choice(0.1, 0.2)))")
    result = searched(model(text), wanted("images.npz"), method="grid")
    assert sorted(trial.state for trial in result.trials) == [DONE, DONE, FAILED, FAILED]
    assert {trial.cause for trial in result.trials if trial.state == FAILED} == {
        (
            "line 7: MaxPooling2D has a window of (200, 200), larger than its input of (26, 26): "
            'padding="same", fewer layers before it or a larger input would help'
        )
    }


def test_ctrl_c_keeps_what_there_is(model, answered):
    answered(good(0.5), Outcome(-2, {}, interrupted=True))
    result = searched(model(), wanted(), trials=5)
    assert [trial.state for trial in result.trials] == [DONE, INTERRUPTED]
    assert result.interrupted
    assert result.best is result.trials[0]
    assert "interrupted" in printed(result)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (CNN, {}, "has nothing to search for"),
        (MODEL, {"method": "bayes"}, "did you mean bayesian"),
        (MODEL, {"objective": "accuracy"}, "give one of val_loss, val_accuracy, loss; did you mean val_accuracy"),
    ],
)
def test_wrong_use_is_said_before_anything_is_trained(model, answered, text, options, said):
    commands = answered(good(0.5))
    with pytest.raises(NeuralError, match=said):
        searched(model(text), wanted(), **options)
    assert not commands


def test_a_folder_with_trials_is_not_written_again(model, answered, tmp_path):
    answered(good(0.5))
    searched(model(), wanted(), trials=1, folder=tmp_path / "runs")
    with pytest.raises(NeuralError, match="holds the trials of a search already"):
        searched("a.neural", wanted(), trials=1, folder=tmp_path / "runs")


def test_data_that_do_not_fit_are_said_once(model, answered, tmp_path):
    answered(good(0.5))
    with pytest.raises(NeuralError):
        searched(model(), wanted("images.npz"), trials=3, folder=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_method_of_the_file_is_the_default(model, answered):
    answered(good(0.5))
    text = MODEL.replace("epochs: 1", 'epochs: 1 search_method: "bayesian"')
    assert searched(model(text), wanted(), trials=1).method == "bayesian"
    assert searched(model(), wanted(), trials=1).method == "random"


def test_optuna_is_asked_for_where_it_is_missing(model, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(NeuralError, match=r"pip install 'neuraldbg\[hpo\]'"):
        searched(model(), wanted())


# ---------------------------------------------------------------- the end


def test_the_table_and_the_values_as_they_stand_in_the_file(model, answered, tmp_path):
    answered(good(0.5), good(0.25, "failing", "Learning rate too high"), good(0.125))
    result = searched(model(), wanted(), trials=3, folder=tmp_path / "runs")
    lines = printed(result).split("\n")
    assert lines[0] == "a.neural: 3 trials by random search for the lowest val_loss, 2 without a failure"
    assert lines[2].split()[:4] == ["trial", "Dense", "activation", "layer"]
    assert lines[2].endswith("  val_loss  verdict  first cause")
    assert "failing" in lines[4]
    assert lines[4].endswith("Learning rate too high")
    best = result.best
    text = MODEL
    for line in best.source.split("\n"):
        assert "HPO" not in line
        assert line not in text
    assert f'Dense({best.values["Dense"]}, activation="{best.values["activation"]}")' in best.source
    assert f"batch_size: {best.values['batch_size']} }}" in best.source
    assert f"learning_rate={best.values['learning_rate']})" in best.source
    assert lines[-1] == f"  runs: {tmp_path / 'runs'}; compare them: neuraldbg dashboard {tmp_path / 'runs'}"


def test_the_lines_of_the_best_trial_are_a_file_that_gives_its_plan(model, answered):
    commands = answered(good(0.5))
    result = searched(model(), wanted(), trials=4)
    for trial, (source, _, _) in zip(result.trials, commands, strict=True):
        changed = trial.source.split("\n")
        lines = [changed.pop(0) if "HPO" in line or "[32, 64]" in line else line for line in MODEL.split("\n")]
        plan = checked(parse("\n".join(lines), "a.neural"))
        assert not plan.searches
        assert compile_plan(plan) == source


# ---------------------------------------------------------------- a program of its own


@pytest.mark.slow
def test_real_trainings_are_recorded_judged_and_listed_on_the_runs_tab(model, tmp_path, browser):
    text = MODEL.replace("HPO(log_range(1e-3, 1.0))", "HPO(choice(0.05, 1e30))").replace("choice(8, 16)", "choice(8)")
    for line in ('choice("relu", "tanh")', "choice(1, 2)", 'choice(Dense(HPO(range(4, 6)), "relu"), Dropout(0.5))'):
        text = text.replace(f"HPO({line})", {"choice(1": "1", "choice(D": "Dropout(0.5)"}.get(line[:8], '"relu"'))
    text = text.replace("[32, 64]", "32")
    told = []
    result = searched(model(text), wanted(epochs=4), method="grid", folder=tmp_path / "runs", say=told.append)
    assert len(told) == len(result.trials) == 2
    for trial in result.trials:
        assert (trial.folder / "rank0.ndbg").exists()
        history = json.loads((trial.folder / "history.json").read_text(encoding="utf-8"))
        assert set(history[-1]) == {"loss", "val_loss", "val_accuracy"}
        assert trial.verdict in {"healthy", "suspect", "failing", "inconclusive"}
        assert (trial.state == DONE) == (trial.values["learning_rate"] == 0.05), trial
    assert result.best.values["learning_rate"] == 0.05
    # The dashboard of the folder compares them.
    feed = RunFeed(tmp_path / "runs", pace_s=0.1)
    feed.start()
    try:
        with served(feed) as address, opened(browser, f"{address}?tab=runs") as page:
            for name in ("trial-001", "trial-002"):
                page.get_by_text(name).first.wait_for()
    finally:
        feed.close()


def test_a_program_that_crashes_ends_its_trial_and_not_the_search(tmp_path):
    script = tmp_path / "crashes.py"
    script.write_text("raise ValueError('no')\n", encoding="utf-8")
    outcome = one_trial.trained(script, (), tmp_path / "trial-001")
    assert outcome.status == 1
    assert outcome.said == "ValueError: no"
    assert outcome.numbers == {}
