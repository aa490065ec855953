"""The session by hand: steps and their numbers, what is recorded in them, limits, and the run that remains."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

import neuraldbg
from neuraldbg import DebugConfig, DebugSession, NeuralDbg, TrainingHalted, debug_session
from neuraldbg.cli import main
from neuraldbg.errors import AttachError, ConfigError
from neuraldbg.nouns import column

# ---------------------------------------------------------------- steps


def test_steps_end_where_a_name_comes_again():
    session = debug_session()
    for _ in range(5):
        session.gradient_debugger.record_gradient_flow("a.weight", np.ones((2, 2)))
        session.gradient_debugger.record_gradient_flow("b.weight", np.ones((2, 2)))
    run = session.stop().run
    assert run.steps == 5
    assert run.history.steps.tolist() == [0, 1, 2, 3, 4]


def test_steps_have_the_numbers_of_the_program():
    session = debug_session()
    for step in (0, 10, 20, 35):
        session.record_step(step, loss=1.0 / (step + 1))
    run = session.stop().run
    assert run.scalar("loss").steps.tolist() == [0, 10, 20, 35]
    assert run.history.width.tolist() == [1, 1, 1, 1]


def test_a_step_that_is_over_is_refused():
    session = debug_session()
    session.record_step(3, loss=1.0)
    with pytest.raises(ConfigError, match=r"step 3 is over: .* Count the steps of the whole training"):
        session.record_step(3, loss=1.0)
    with pytest.raises(ConfigError, match="step 1 is over"):
        session.begin_step(1)
    with pytest.raises(ConfigError, match="step: give a number from 0 on, not -1"):
        session.begin_step(-1)
    session.record_step(loss=0.5)
    assert session.stop().run.scalar("loss").steps.tolist() == [3, 4]


def test_a_metric_that_is_recorded_with_a_number_names_the_open_step():
    session = debug_session()
    for step in range(30):
        session.gradient_debugger.record_gradient_flow("w", [0.1, 0.2])
        if step % 10 == 0:
            session.model_diagnostics.record_performance(training_step=step, loss=1.0, learning_rate=0.1)
    run = session.stop().run
    assert run.steps == 30
    assert run.scalar("loss").steps.tolist() == [0, 10, 20]


def test_what_is_wrong_in_a_step_leaves_nothing_of_it():
    session = debug_session()
    session.record_step(0, loss=1.0, gradients={"w": [1.0]})
    with pytest.raises(ConfigError, match="gradients: 'w' are not numbers"):
        session.record_step(1, loss=0.5, gradients={"v": [1.0], "w": "text"})
    with pytest.raises(ConfigError, match="loss: give one real number"):
        session.record_step(1, loss=[1.0, 2.0])
    session.record_step(1, loss=0.25, gradients={"w": [1.0]})
    run = session.stop().run
    assert run.scalar("loss").values.tolist() == [1.0, 0.25]
    assert [site.module for site in run.layout.sites] == ["w"]


def test_threads_record_into_one_session():
    session = debug_session()
    session.begin_step(0)
    draw = np.random.default_rng(0)
    values = {f"layer{i}.weight": draw.normal(size=(4, 4)) for i in range(64)}

    def record(names):
        for name in names:
            session.gradient_debugger.record_gradient_flow(name, values[name])

    names = list(values)
    threads = [threading.Thread(target=record, args=(names[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = session.stop().run
    assert run.steps == 1
    assert len(run.layout.layers) == 64
    whole = math.sqrt(sum(float((value**2).sum()) for value in values.values()))
    assert np.isclose(run.scalar("grad_norm").values[0], whole)


# ---------------------------------------------------------------- numbers


def test_a_torch_training_by_hand_has_the_numbers_of_an_automatic_session():
    def trained(record=None, begin=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        draw = torch.Generator().manual_seed(1)
        if begin is not None:
            begin(dict(model.named_parameters()))
        for step in range(40):
            x = torch.randn(32, 6, generator=draw)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
            loss.backward()
            optimizer.step()
            if record is not None:
                record(step, model, loss)

    with debug_session() as session:

        def record(step, model, loss):
            named = dict(model.named_parameters())
            gradients = {name: one.grad for name, one in named.items()}
            session.record_step(step, loss=loss, learning_rate=0.1, parameters=named, gradients=gradients)

        trained(record, session.record_parameters)
    with NeuralDbg(None, discover=True, overhead=None) as dbg:
        trained()
    mine, live = session.record(), dbg.record()
    for name in ("loss", "grad_norm", "lr"):
        assert np.allclose(mine.scalar(name).values, live.scalar(name).values, rtol=1e-5), name
    for kind in ("param_grad", "param", "update"):
        for site in (s for s in live.layout.sites if s.kind == kind):
            mine_row = mine.layout.rows(kind, site.module, site.name)[0]
            live_row = live.layout.rows(kind, site.module, site.name)[0]
            for stat in ("rms", "mean", "max", "zeros", "total"):
                ours, theirs = (run.series(row, stat).values for run, row in ((mine, mine_row), (live, live_row)))
                assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-7), (site.label, stat)
    assert [layer.type for layer in mine.layout.layers] == ["Linear", "Linear"]
    ours, theirs = mine.scalar("update_ratio").values, live.scalar("update_ratio").values
    assert np.allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite(loss):
    session = debug_session()
    for step in range(30):
        session.record_step(step, loss=1.0 if step < 20 else loss, learning_rate=0.1)
    report = session.stop()
    assert report.diagnosis.verdict == "failing"
    assert "step 20" in report.diagnosis.summary
    json.dumps(report.to_dict(), allow_nan=False)


def test_an_evaluation_belongs_to_the_step_before_it():
    session = debug_session()
    for step in range(10):
        session.record_step(step, loss=1.0, accuracy=0.1 * step)
        if step in (4, 9):
            session.record_evaluation(loss=2.0 + step, accuracy=0.5)
    run = session.stop().run
    assert run.scalar("eval_loss").steps.tolist() == [4, 9]
    assert run.scalar("eval_loss").values.tolist() == [6.0, 11.0]
    assert run.metric("eval/accuracy").steps.tolist() == [4, 9]
    assert np.allclose(run.metric("accuracy").values, 0.1 * np.arange(10))


@pytest.mark.parametrize("ask", [lambda session: session.diagnose(), lambda session: session.hooks, lambda _: None])
def test_an_evaluation_after_a_question_is_not_lost(ask):
    session = debug_session()
    for step in range(5):
        session.record_step(step, loss=1.0)
        ask(session)
        session.record_evaluation(loss=2.0 + step, accuracy=0.1 * step)
    run = session.stop().run
    assert run.scalar("eval_loss").steps.tolist() == [0, 1, 2, 3, 4]
    assert run.metric("eval/accuracy").values.tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_gradients_have_the_steps_of_the_run():
    session = debug_session()
    for step in range(0, 1000, 100):
        session.gradient_debugger.record_gradient_flow("w", [1.0])
        session.model_diagnostics.record_performance(training_step=step, loss=1.0)
    run = session.stop().run
    assert run.history.steps.tolist() == list(range(0, 1000, 100))
    assert session.gradient_debugger.history("w")[0] == list(range(0, 1000, 100))


def test_what_comes_after_the_last_numbered_step_belongs_to_it():
    session = debug_session()
    for step in range(0, 50, 10):
        session.record_step(step, loss=1.0)
        session.gradient_debugger.record_gradient_flow("w", [float(step)])
    run = session.stop().run
    assert run.history.steps.tolist() == [0, 10, 20, 30, 40]
    gradients = run.series(run.layout.rows("param_grad", "w")[0], "max")
    assert gradients.steps.tolist() == gradients.values.tolist() == [0, 10, 20, 30, 40]
    assert session.gradient_debugger.history("w")[0] == [0, 10, 20, 30, 40]


def test_what_comes_before_a_whole_step_belongs_to_it():
    session = debug_session()
    for step in range(0, 50, 10):
        number = session.tensor_inspector.inspect_tensor([float(step)], "h")
        session.record_step(step, loss=1.0)
    run = session.stop().run
    values = run.series(run.layout.rows("activation", "h")[0], "max")
    assert values.steps.tolist() == values.values.tolist() == [0, 10, 20, 30, 40]
    assert session.tensor_inspector.get_tensor_info(number).stats.max == 40.0


def test_micro_batches_are_steps_and_their_numbers_are_said():
    session = debug_session()
    for batch in range(12):
        session.gradient_debugger.record_gradient_flow("w", [1.0])
        if batch % 4 == 3:
            session.model_diagnostics.record_performance(training_step=batch // 4, loss=1.0)
    run = session.stop().run
    assert run.steps == 12
    assert "step 0 was over when it was recorded, and is a part of step 3" in run.info.coverage["notes"]


def test_a_session_that_nobody_stops_is_saved_at_the_end_of_the_program(tmp_path):
    code = """
import numpy as np
from neuraldbg import debug_session
session = debug_session(output_dir="run")
for step in range(30):
    session.record_step(step, loss=1 / (step + 1), gradients={"a": np.ones(3)})
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    run = neuraldbg.load(tmp_path / "run")
    assert (run.steps, run.info.outcome.kind) == (30, "completed")


@pytest.mark.parametrize("loss", [1.0, 0.0, math.nan, math.inf])
def test_the_summary_of_losses_alone(loss):
    session = debug_session()
    for step in range(30):
        session.record_step(step, loss=loss)
    assert session.stop().summary().startswith(("SUSPECT", "FAILING"))


def test_threads_may_begin_a_session_together():
    session = debug_session()
    wrong = []

    def record(name):
        try:
            for _ in range(50):
                session.gradient_debugger.record_gradient_flow(name, np.ones(3))
        except Exception as error:  # noqa: BLE001 (asserted below)
            wrong.append(error)

    threads = [threading.Thread(target=record, args=(f"layer{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert set(session.stop().gradients.layers) == {f"layer{i}" for i in range(8)}


def test_a_layer_that_rests_is_no_lost_update():
    draw = np.random.default_rng(0)
    weights = {"encoder": draw.normal(size=(8, 8)), "head": draw.normal(size=(8, 2))}
    session = debug_session()
    session.record_optimizer("SGD", learning_rate=0.1)
    session.record_parameters(weights)
    for step in range(100):
        gradients = {name: 0.1 * draw.normal(size=one.shape) / (step + 1) ** 0.5 for name, one in weights.items()}
        weights = {**weights, "head": weights["head"] - 0.1 * gradients["head"]}
        session.record_step(step, loss=1 / (step + 1) + 0.01, gradients=gradients, parameters=weights)
    assert session.stop().diagnosis.verdict == "healthy"


def test_metrics_alone_keep_each_of_their_steps():
    session = debug_session()
    for step in (0, 5, 10):
        session.model_diagnostics.record_performance(training_step=step, accuracy=0.1 * step)
    run = session.stop().run
    assert run.metric("accuracy").steps.tolist() == [0, 5, 10]


def test_two_parameters_that_a_run_would_call_the_same_keep_sites_of_their_own():
    session = debug_session()
    for step in range(3):
        session.record_step(step, gradients={"dense": {"w": np.full(4, 2.0), "scale": np.full(4, 3.0)}})
    run = session.stop().run
    rows = {run.layout.sites[row].name: row for row in run.layout.rows("param_grad", "dense")}
    assert set(rows) == {"weight", "scale"}
    assert run.series(rows["weight"], "rms").values.tolist() == [2.0] * 3
    assert run.series(rows["scale"], "rms").values.tolist() == [3.0] * 3


def test_names_that_differ_in_their_signs_alone_keep_sites_of_their_own():
    session = debug_session()
    given = {"a": {"b": [1.0]}, "a.b": [2.0], "['a']['b']": [3.0]}
    for step in range(3):
        session.record_step(step, gradients=given)
    run = session.stop().run
    rows = {run.layout.sites[row].module: run.series(row, "max").values[0] for row in run.layout.rows("param_grad")}
    assert rows == {"a": 1.0, "a.b": 2.0, "['a']['b']": 3.0}
    assert run.scalar("grad_norm").values[0] == pytest.approx(math.sqrt(14))


def test_updates_too_small_for_float32_are_updates():
    weights = np.ones(4)
    session = debug_session()
    session.record_parameters({"w": weights})
    for step in range(30):
        weights = weights - 1e-12
        session.record_step(step, loss=1 - 1e-12 * step, parameters={"w": weights})
    report = session.stop()
    assert "no weight changed" not in report.summary().lower()
    assert report.run.scalar("update_ratio").values[3] == pytest.approx(1e-12, rel=1e-3)


def test_a_negative_learning_rate_is_no_schedule():
    weights = np.ones(4)
    session = debug_session()
    session.record_optimizer("SGD", learning_rate=-0.1)
    session.record_parameters({"w": weights})
    for step in range(50):
        gradient, weights = weights, weights + 0.1 * weights
        session.record_step(
            step,
            loss=float((weights**2).mean()),
            learning_rate=-0.1,
            gradients={"w": gradient},
            parameters={"w": weights},
        )
    first = session.stop().run.explain_failure()[0]
    assert "negative from the start" in first.sentence
    assert "schedule" not in first.sentence


def test_updates_are_those_of_consecutive_steps():
    session = debug_session()
    weight = np.full((4, 3), 2.0)
    for step in range(6):
        session.record_step(step, loss=1.0, parameters={"fc/kernel": weight})
        weight += 0.5 * (step + 1)  # in place: what was recorded before must not move with it
    run = session.stop().run
    row = run.layout.rows("update", "fc", "weight")[0]
    assert run.series(row, "rms").steps.tolist() == [1, 2, 3, 4, 5]
    assert run.series(row, "rms").values.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    weights = 2.0 + np.cumsum([0, 0.5, 1.0, 1.5, 2.0])  # those before each update
    assert np.allclose(run.scalar("update_ratio").values, np.array([0.5, 1.0, 1.5, 2.0, 2.5]) / weights)


def test_large_parameters_beyond_the_budget_have_a_sampled_update():
    session = debug_session(kept_mb=0)
    weight = np.zeros((200, 300))
    for step in range(3):
        session.record_step(step, loss=1.0, parameters={"fc/kernel": weight + step})
    run = session.stop().run
    row = run.layout.rows("update", "fc", "weight")[0]
    assert run.series(row, "rms").values.tolist() == [1.0, 1.0]
    assert run.series(row, "total").values[0] == 60_000
    assert run.series(row, "count").values[0] <= 4096


def test_a_share_of_the_steps_is_read_whole():
    session = debug_session(sampling_rate=0.1)
    for step in range(20):
        session.record_step(step, gradients={"w": np.ones(10_000)})
    run = session.stop().run
    counts = run.series(run.layout.rows("param_grad")[0], "count").values
    assert (counts == 10_000).nonzero()[0].tolist() == [0, 10]
    assert counts.min() > 1000
    assert any("one of 10 steps" in note for note in run.info.coverage["notes"])


# ---------------------------------------------------------------- the run


def test_the_run_is_one_like_any_other(tmp_path, capsys):
    draw = np.random.default_rng(0)
    with debug_session(output_dir=tmp_path / "run") as session:
        weight = draw.normal(size=(4, 4))
        for step in range(40):
            weight = weight * (1.6 if step > 20 else 1.0)
            loss = float((weight**2).sum())
            named = {"gradients": {"fc.weight": 2 * weight}, "parameters": {"fc.weight": weight}}
            session.record_step(step, loss=loss, learning_rate=1.0, **named, accuracy=0.5)
    folder = str(tmp_path / "run")
    saved = neuraldbg.load(folder)
    assert saved.diagnose() == session.diagnose()
    assert saved.diagnose().verdict == "failing"
    assert main(["explain", folder]) == 0
    capsys.readouterr()
    assert main(["explain", "-v", folder]) == 0
    assert "recorded by hand" in capsys.readouterr().out
    for line in (
        ["report", folder, "-o", str(tmp_path / "report.html")],
        ["plot", folder, "-o", str(tmp_path / "run.png")],
        ["export", folder, "-o", str(tmp_path / "tables"), "--format", "csv"],
        ["compare", folder, folder],
        ["profile", folder],
    ):
        assert main(line) == 0, capsys.readouterr().err
    assert "metric/accuracy" in next((tmp_path / "tables").glob("*steps*")).read_text(encoding="utf-8")
    session.report().save(tmp_path / "whole.html")
    assert "Health of the training" in (tmp_path / "whole.html").read_text(encoding="utf-8")


def test_a_session_that_nobody_fed_says_so(tmp_path):
    report = debug_session(output_dir=tmp_path / "run").stop()
    assert report.diagnosis.verdict == "inconclusive"
    assert report.health.score is None
    assert report.gradients is None
    assert report.tensors is None
    for suffix in ("html", "md", "json"):
        report.save(tmp_path / f"report.{suffix}")
    with pytest.raises(ConfigError, match="must end in"):
        report.save(tmp_path / "report.pdf")


def test_a_session_that_has_ended_takes_nothing_more():
    session = debug_session()
    session.record_step(0, loss=1.0)
    first = session.stop()
    assert session.stop() is first
    with pytest.raises(AttachError, match="has ended: make a new DebugSession"):
        session.record_step(1, loss=1.0)
    with pytest.raises(AttachError, match="has ended"):
        session.start()
    assert session.report() is first


def test_an_error_in_the_loop_is_the_outcome_and_passes():
    session = debug_session()

    def loop():
        with session:
            session.record_step(0, loss=1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert session.record().info.outcome.kind == "raised"
    assert "ZeroDivisionError" in session.diagnose().summary


def test_questions_are_answered_while_it_runs():
    session = debug_session()
    for step in range(30):
        session.record_step(step, loss=1.0 / (step + 1), gradients={"fc1.weight": np.full((3, 3), 0.1)})
    assert session.get_gradient_history("fc1").values.tolist() == pytest.approx([0.3] * 30)
    assert session.inspect("fc1", step=3).statistics["param_grad/weight"]["norm"] == pytest.approx(0.3)
    assert not session.has_vanishing_gradients()
    assert session.report().run.steps == 30
    session.record_step(30, loss=0.1)
    assert session.stop().run.steps == 31


def test_parts_that_are_off_take_everything_and_answer_nothing():
    off = dict.fromkeys(
        ("enable_tensor_inspection", "enable_gradient_debugging", "enable_model_diagnostics"), False
    )  # fmt: skip
    session = DebugSession(DebugConfig(**off))
    assert session.tensor_inspector.inspect_tensor([1.0], "a") == -1
    session.gradient_debugger.record_gradient_flow("a", [1.0])
    session.model_diagnostics.record_performance(training_step=0, loss=1.0)
    with pytest.raises(ConfigError, match="gradient_debugger is off: leave out enable_gradient_debugging=False"):
        session.gradient_debugger.analyze_gradient_flow()
    assert session.stop().run.steps == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampling_rate": 0}, "sampling_rate: must be greater than 0"),
        ({"sampling_rate": 1.5}, "sampling_rate: must be at most 1"),
        ({"max_tracked": 5}, "did you mean 'max_tracked_tensors'"),
        ({"max_tracked_tensors": 0}, "max_tracked_tensors: must be at least 1"),
        ({"output_dir": 3}, "output_dir: give a path"),
        ({"enable_visualization": True}, "give output_dir, too"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        DebugConfig(**settings)


def test_a_folder_that_cannot_be_written_keeps_the_run_in_memory(tmp_path):
    (tmp_path / "file").write_text("here", encoding="utf-8")
    session = debug_session(output_dir=tmp_path / "file")
    session.record_step(0, loss=1.0)
    report = session.stop()
    assert report.folder is None
    assert session.problem
    assert report.run.steps == 1


def test_a_hook_may_halt_the_loop():
    session = debug_session()
    hook = neuraldbg.HookBuilder("stop").trigger(neuraldbg.HookTrigger.loss_above(5)).action(neuraldbg.HookAction.HALT)
    session.hooks.register_hook(hook.build())

    def loop():
        with session:
            for step in range(10):
                session.record_step(step, loss=float(step))

    with pytest.raises(TrainingHalted):
        loop()
    assert session.record().scalar("loss").values.tolist() == [0, 1, 2, 3, 4, 5, 6], "step 6 has ended when it is seen"
    assert session.record().info.outcome.kind == "halted"


# ---------------------------------------------------------------- limits


def test_more_sites_than_allowed_are_counted_and_not_recorded():
    session = debug_session(max_tracked_tensors=10)
    for step in range(3):
        session.record_step(step, gradients={f"layer{i}.weight": np.ones((2, 2)) for i in range(25)})
    run = session.stop().run
    assert len(run.layout.sites) == 10
    assert any("15 tensors beyond the first 10 are not recorded" in note for note in run.info.coverage["notes"])


def test_what_is_kept_does_not_grow():
    tracemalloc = pytest.importorskip("tracemalloc")
    session = debug_session(max_tracked_tensors=50, max_gradient_history=20)
    values = np.ones((4, 4))

    def record(first, last):
        for i in range(first, last):
            session.tensor_inspector.inspect_tensor(values, f"tensor {i % 80}", f"layer{i % 80}")
            session.gradient_debugger.record_gradient_flow(f"layer{i % 20}.weight", values)
        session.record()

    record(0, 1000)
    tracemalloc.start()
    try:
        record(1000, 1500)
        middle = tracemalloc.get_traced_memory()[0]
        record(1500, 2500)
        assert tracemalloc.get_traced_memory()[0] < 2 * middle + 500_000
    finally:
        tracemalloc.stop()
    report = session.stop()
    assert report.run.history.mean.shape[1] <= 100, "50 of each kind"
    assert len(session.gradient_debugger.history("layer0.weight")[0]) == 20
    assert column("rms") >= 0
