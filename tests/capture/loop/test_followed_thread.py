"""Programs that train in several threads: one is followed, the others pass through, and coverage names them.

Each runs in a process of its own, so that a crash is a failed assertion.
"""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from tests.families import some
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.loop import followed_thread
from neuraldbg.saved import Run

PROGRAMS = Path(__file__).parents[2] / "guest" / "programs" / "threads"


def watched(tmp_path: Path, program: str, *options: str, switching: bool = False) -> Run:
    """Run a program of the standing suite under ``neuraldbg run`` and load what was recorded."""
    path = PROGRAMS / f"{program}.py"
    if switching:  # threads change places at nearly every instruction
        text = path.read_text(encoding="utf-8")
        path = tmp_path / path.name
        path.write_text("import sys\nsys.setswitchinterval(1e-6)\n" + text, encoding="utf-8")
    out = tmp_path / "run.ndbg"
    command = [sys.executable, "-m", "neuraldbg", "run", *options, "-o", str(out), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    run = Run.load(out)
    assert run.info.coverage["errors"] == 0
    return run


@pytest.mark.parametrize("options", some([((),), (("--overhead", "full"),)], 2))
@pytest.mark.parametrize("switching", [False, True])
def test_one_of_four_trainings_is_followed_and_the_others_are_named(tmp_path, options, switching):
    run = watched(tmp_path, "four_trainings", *options, switching=switching)
    (said,) = (f"{what} {rest}" for what, rest in run.info.coverage["unread"].items())
    diagnosis = run.diagnose()

    assert len(run.info.models) == 1
    # A thread that is displaced in its very first step may have been seen to step.
    assert 1 <= len(run.info.optimizers) <= 1 + switching
    assert 130 <= run.steps <= 150
    assert said.startswith("3 other threads trained (trainer-")
    assert "only the first, trainer-" in said
    assert diagnosis.verdict == "inconclusive"
    assert "3 other threads" in diagnosis.summary
    assert not diagnosis.hypotheses


@pytest.mark.parametrize(
    ("program", "steps", "losses"),
    some(
        [
            ("scored_meanwhile", 300, 300),
            ("one_after_another", 240, 240),
            ("thread_for_each_step", 150, 150),
            ("only_backward", 120, 119),
            ("only_steps", 120, 120),
            ("pool_turns", 197, 197),
        ],
        3,
    ),
)
def test_a_training_that_several_threads_share_is_one_run(tmp_path, program, steps, losses):
    run = watched(tmp_path, program)

    assert run.steps == steps
    assert losses - 1 <= len(run.scalar("loss")) <= losses  # of the step in which the thread changes it may be missing
    assert run.info.coverage["unread"] == {}
    assert run.diagnose().verdict == "healthy"


@pytest.mark.long
def test_steps_that_raise_do_not_end_the_recording(tmp_path):
    run = watched(tmp_path, "step_raises")

    assert run.steps >= 195


def test_a_question_of_another_thread_closes_no_step_twice():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters())
    over = threading.Event()
    before = sys.getswitchinterval()

    def ask():
        while not over.is_set():
            dbg.diagnose()
            dbg.has_vanishing_gradients()

    sys.setswitchinterval(1e-6)
    try:
        with NeuralDbg(discover=True) as dbg:
            asking = threading.Thread(target=ask)
            asking.start()
            for _ in range(100):
                opt.zero_grad()
                model(torch.ones(4, 8)).square().mean().backward()
                opt.step()
            over.set()
            asking.join(60)
    finally:
        sys.setswitchinterval(before)
    assert not asking.is_alive()
    assert dbg.steps == 100


def test_sessions_begin_and_end_while_threads_train():
    over, died = threading.Event(), []

    def train():
        model = nn.Linear(4, 2)
        opt = torch.optim.SGD(model.parameters(), 1e-3)
        try:
            while not over.is_set():
                opt.zero_grad()
                model(torch.ones(3, 4)).sum().backward()
                opt.step()
        except BaseException as error:  # noqa: BLE001 (any is one too many)
            died.append(error)

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            with NeuralDbg(discover=True):
                time.sleep(0.02)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert died == []
    assert not any(thread.is_alive() for thread in threads)


def trained(model: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        opt.zero_grad()
        model(torch.ones(3, 4)).square().sum().backward()
        opt.step()


def test_a_training_in_a_thread_that_is_not_listed_is_one_run_whatever_is_asked_meanwhile():
    over = threading.Event()

    def train():
        model = nn.Linear(4, 2)
        trained(model, torch.optim.SGD(model.parameters(), 1e-3), 200)
        over.set()

    with NeuralDbg(discover=True) as dbg:
        _thread.start_new_thread(train, ())
        while not over.wait(0.002):
            dbg.diagnose()
    assert dbg.steps == 200
    assert len(dbg.record().scalar("loss")) >= 199


def test_sessions_begin_and_end_while_threads_train_that_are_not_listed():
    over, ended = threading.Event(), []

    def train():
        model = nn.Linear(4, 2)
        opt = torch.optim.SGD(model.parameters(), 1e-3)
        try:
            while not over.is_set():
                trained(model, opt, 1)
        finally:
            ended.append(sys.exc_info()[1])

    for _ in range(2):
        _thread.start_new_thread(train, ())
    for _ in range(6):
        with NeuralDbg(discover=True) as dbg:
            time.sleep(0.02)
            dbg.diagnose()
    over.set()
    until = time.monotonic() + 60
    while len(ended) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert ended == [None, None]


def test_what_was_given_up_for_another_training_is_looked_at_again(monkeypatch):
    monkeypatch.setattr(followed_thread, "IDLE_S", 0.05)
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    opt, probe = (torch.optim.SGD(each.parameters(), 1e-3) for each in (model, other))

    def beside() -> None:
        trained(other, probe, 1)  # finds that the owner does nothing
        time.sleep(0.1)
        trained(other, probe, 10)

    with NeuralDbg(discover=True, overhead=None) as dbg:
        trained(model, opt, 10)
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        trained(model, opt, 10)
    run = dbg.record()
    rows = {site.module: row for row, site in enumerate(run.layout.sites) if site.kind == "param_grad"}
    read = {module: len(run.series(row, "mean")) for module, row in rows.items()}
    assert dbg.steps == 30
    assert read == {"model": 20, "model2": 10}


def test_a_layer_is_no_model_of_a_thread_that_was_refused_as_its_model_was_called():
    scoring, calling, scored = threading.Event(), threading.Event(), threading.Event()

    class Scored(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scoring.set()
            assert calling.wait(60)
            return super().forward(x)

    class Trained(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calling.set()
            assert scored.wait(60)
            time.sleep(0.02)  # longer than it takes until it is worth to ask again
            return super().forward(x)

    def train() -> None:
        assert scoring.wait(60)
        model = Trained(nn.Linear(4, 8), nn.Linear(8, 2))
        trained(model, torch.optim.SGD(model.parameters(), 1e-3), 3)

    with NeuralDbg(discover=True) as dbg:
        beside = threading.Thread(target=train)
        beside.start()
        Scored(4, 2)(torch.ones(3, 4))
        scored.set()
        beside.join()
        names = {site.module.split(".")[0] for site in dbg.record().layout.sites}
    assert dbg.steps == 2, "its first call was not seen"
    assert dbg.record().info.models == ("model",)
    assert not any(name.startswith("Linear") for name in names), names


@pytest.mark.long
def test_no_experiment_runs_beside_a_thread_that_draws(tmp_path):
    run = watched(tmp_path, "loads_ahead")
    reasons = {fact.value.get("reason") for fact in run.facts if fact.key == "experiment"}

    assert "another thread of the program runs (loader)" in reasons
