"""Metrics of a program's own in real trainings: which step they belong to, and that none is lost."""

from __future__ import annotations

import math
import os
import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tests.capture.simulated_device import SimulatedDevice
from tests.session.seeded_trainings import Mlp, vectors
from torch import nn
from torch.nn import functional as F

import neuraldbg
from neuraldbg import NeuralDbg
from neuraldbg.capture.loop.logged_metrics import NAMES
from neuraldbg.capture.steps.native_light_steps import Light
from neuraldbg.capture.steps.overhead_budget import Governor
from neuraldbg.errors import AttachError, ConfigError, UnknownMetric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODES = pytest.mark.parametrize("overhead", [0.01, None], ids=["light_steps", "every_step"])
READ = 6
"""Full steps at the beginning; those after them are light, and taken by native code."""


@pytest.fixture(autouse=True)
def soon_light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions with a budget read a few steps in full alone."""
    monkeypatch.setattr(Governor, "decide", lambda self: self.overhead is None or self.full_steps < READ)


def train(
    model: nn.Module,
    steps: int,
    *,
    within: Callable[[int, torch.Tensor], None] = lambda step, loss: None,
    after: Callable[[int], None] = lambda step: None,
    lr: float = 0.05,
) -> list[float]:
    """Train; ``within`` is called between the loss and the step, ``after`` behind the step."""
    torch.manual_seed(0)
    x, y = vectors()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        loss = F.cross_entropy(model(x), y)
        within(step, loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after(step)
    return losses


# -- which step -----------------------------------------------------------------------------------------------------


@MODES
def test_a_value_belongs_to_the_open_step_or_to_the_one_that_has_just_ended(overhead: float | None) -> None:
    dbg = NeuralDbg(model := Mlp(), overhead=overhead)
    with dbg:
        losses = train(
            model,
            150,
            within=lambda step, loss: dbg.log(loss=loss, within=step),
            after=lambda step: dbg.log(after=step),
        )
    cost = dbg.record().info.coverage["cost"]
    assert cost["light_steps"] > 0 or overhead is None, "light steps are taken by native code"
    for name in ("within", "after"):
        series = dbg.metric(name)
        assert series.steps.tolist() == series.values.tolist() == list(range(150))
    assert dbg.metric("loss").values.tolist() == losses, "in the step whose loss it is"
    np.testing.assert_allclose(dbg.record().scalar("loss").values, losses, rtol=1e-6)


@MODES
def test_a_validation_belongs_to_the_step_before_it_and_the_last_one_is_kept(overhead: float | None) -> None:
    model, (x, _) = Mlp(), vectors()
    dbg = NeuralDbg(model, overhead=overhead)

    def validate(step: int) -> None:
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                model(x)
            dbg.log({"val/accuracy": step / 100})
            model.train()

    with dbg:
        dbg.log({"val/accuracy": 0.5})  # before the first step
        train(model, 60, after=validate)
        dbg.log(final=1.0)
    series = dbg.metric("val/accuracy")
    assert series.steps.tolist() == [0, 19, 39, 59]
    assert series.values.tolist() == [0.5, 0.19, 0.39, 0.59]
    assert dbg.metric("final").steps.tolist() == [59]


def test_a_value_that_comes_long_after_its_step_was_written_is_added_to_it(tmp_path: Path) -> None:
    dbg = NeuralDbg(model := Mlp(), out=tmp_path)
    with dbg:
        train(model, 700)
        before = dbg.record()  # all is delivered, and stored in closed blocks and an open one
        dbg.log(late=0.25)
        assert dbg.metric("late").at(699) == 0.25
        train(model, 3)
    record = neuraldbg.load(tmp_path)
    assert record.metric("late").steps.tolist() == [699]
    assert record.steps == before.steps + 3
    assert len(record.history) == len(np.unique(record.history.steps)), "no step is recorded twice"


def test_the_mean_of_several_values_of_a_step_counts() -> None:
    dbg = NeuralDbg(model := Mlp(), overhead=None)
    with dbg:
        train(
            model,
            5,
            within=lambda step, loss: [dbg.log(reward=step + k) for k in (0.0, 0.5)],
            after=lambda step: dbg.log(reward=step + 1.0),
        )
    np.testing.assert_allclose(dbg.metric("reward").values, np.arange(5) + 0.5)


def test_micro_batches_are_of_one_step() -> None:
    model, (x, y) = Mlp(), vectors()
    optimizer, dbg = torch.optim.SGD(model.parameters(), lr=0.05), NeuralDbg(model)
    with dbg:
        for step in range(6):
            optimizer.zero_grad()
            for part in range(2):
                loss = F.cross_entropy(model(x), y) / 2
                dbg.log(part=10 * step + part)
                loss.backward()
            optimizer.step()
    assert dbg.metric("part").steps.tolist() == list(range(6))
    assert dbg.metric("part").values.tolist() == [10 * step + 0.5 for step in range(6)]


def test_steps_by_hand_and_two_optimizers() -> None:
    one, other, (x, y) = Mlp(), Mlp(), vectors()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (one, other)]
    dbg = NeuralDbg(discover=True)
    with dbg:
        for step in range(10):
            for place, (model, optimizer) in enumerate(zip((one, other), optimizers, strict=True)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                dbg.log(place=2 * step + place)
    assert dbg.metric("place").values.tolist() == dbg.metric("place").steps.tolist() == list(range(20))


def test_a_step_that_never_ends_gives_its_values_to_the_last_one_and_without_any_step_it_is_said() -> None:
    model, (x, _) = Mlp(), vectors()
    dbg = NeuralDbg(model)
    with dbg:
        train(model, 3)
        model(x)  # with gradients: as the begin of a step
        dbg.log(accuracy=0.75)
    assert dbg.metric("accuracy").at(2) == 0.75
    with NeuralDbg(Mlp()) as idle:
        idle.log(accuracy=0.5, reward=1.0)
    assert idle.metrics == ()
    assert any("2 values of metrics" in note for note in idle.record().info.coverage["notes"])


def test_a_step_that_never_ends_adds_its_values_to_the_mean_of_the_last_one() -> None:
    model, (x, _) = Mlp(), vectors()
    dbg = NeuralDbg(model)
    with dbg:
        train(model, 3)
        dbg.log(accuracy=0.5, odd=math.nan)
        model(x)  # with gradients: as the begin of a step
        for value in (1.0, 0.75):
            dbg.log(accuracy=value, odd=math.inf)
    assert dbg.metric("accuracy").at(2) == 0.75
    assert dbg.record().scalar("metric_nonfinite/odd").at(2) == 3


@MODES
def test_a_thread_that_logs_with_a_lock_that_on_step_takes_does_not_wait(overhead: float | None) -> None:
    lock, begun, held = threading.Lock(), threading.Event(), threading.Event()
    got: list[bool] = []
    belongs: list[int] = []

    def on_step(step: neuraldbg.Step, events: object) -> None:
        if held.is_set() and not got:
            begun.set()
            got.append(lock.acquire(timeout=5.0))
            if got[0]:
                lock.release()

    dbg = NeuralDbg(model := Mlp(), on_step=on_step, overhead=overhead)

    def log() -> None:
        with lock:
            held.set()
            assert begun.wait(10.0)
            belongs.append(dbg._capture.steps - 1)  # on_step runs: the thread that trains is between two steps
            for value in (0.25, 0.75):
                dbg.log(reward=value)

    with dbg:
        train(model, 3)
        logger = threading.Thread(target=log)
        logger.start()
        assert held.wait(10.0)
        train(model, 200)
        dbg.record()
        logger.join()
    assert got == [True], "neither waits for the other"
    assert dbg.metric("reward").steps.tolist() == belongs
    assert dbg.metric("reward").values.tolist() == [0.5]


def test_a_value_finds_its_step_while_steps_move_from_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    dbg = NeuralDbg(model := Mlp())
    threads: list[threading.Thread] = []
    belongs: list[int] = []
    put_down = Light._put_down

    def slowly(light: Light, *args: object) -> None:
        threads.append(threading.Thread(target=dbg.log, kwargs={"late": 1.0}))
        threads[-1].start()
        threads[-1].join(0.2)  # native code has forgotten the steps, and Python does not know them yet
        put_down(light, *args)

    with dbg:
        light, lock = dbg._capture.light, dbg._capture.delivery.lock

        def take(step: int) -> None:
            with lock:  # so that the writer's thread takes none meanwhile
                if step > 20 and not threads and light.waiting > 1:
                    monkeypatch.setattr(Light, "_put_down", slowly)
                    light.drain()
                    monkeypatch.undo()
                    threads[0].join(5.0)
                    belongs.append(step)

        train(model, 200, after=take)
    if not belongs:
        pytest.skip("there is no native code")
    assert dbg.metric("late").steps.tolist() == belongs


def test_while_a_step_is_closed_a_value_of_another_thread_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dbg = NeuralDbg(model := Mlp(), overhead=None)
    with dbg:
        train(model, 3)
        learn = dbg._capture._learn

        def within() -> None:
            step = dbg._capture.steps
            thread = threading.Thread(target=dbg.log, kwargs={"closing": step})
            thread.start()
            thread.join()
            learn()

        monkeypatch.setattr(dbg._capture, "_learn", within)
        train(model, 4)
    series = dbg.metric("closing")
    assert series.steps.tolist() == series.values.tolist() == [2, 3, 4, 5, 6]


def test_a_late_mean_says_which_one_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    dbg, calls = NeuralDbg(model := Mlp()), []
    with dbg:
        train(model, 3, within=lambda step, loss: dbg.log(own=step))
        dbg.record()
        monkeypatch.setattr(dbg._recorder, "amend", lambda *late: calls.append(late))
        for value in (4.0, 9.0):
            dbg.log(own=value)
        monkeypatch.undo()
    assert calls == [(2, {"metric/own": 3.0}, {"metric/own": 2.0}), (2, {"metric/own": 5.0}, {"metric/own": 3.0})]


def test_on_step_gets_the_metrics_that_were_logged_before_it_is_called() -> None:
    seen = []
    dbg = NeuralDbg(model := Mlp(), overhead=None, on_step=lambda step, events: seen.append(dict(step.scalars)))
    with dbg:
        train(model, 4, within=lambda step, loss: dbg.log(own=step))
    assert [scalars["metric/own"] for scalars in seen] == [0, 1, 2, 3]


def test_a_thread_that_evaluates_logs_too() -> None:
    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 5)
        thread = threading.Thread(target=dbg.log, kwargs={"accuracy": 0.5})
        thread.start()
        thread.join()
    assert dbg.metric("accuracy").at(4) == 0.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_records_nothing_and_raises_nothing() -> None:
    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 2)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                dbg.log(accuracy=0.5)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert dbg.metrics == ()


# -- values and names -----------------------------------------------------------------------------------------------


def test_numbers_of_all_kinds() -> None:
    dbg = NeuralDbg(model := Mlp())
    values = {
        "float": 0.5, "int": 2, "bool": True, "numpy": np.float32(0.25), "array": np.array([3]),
        "zero_d": np.array(1.5),
        "tensor": torch.tensor(0.125), "graded": torch.tensor(2.0, requires_grad=True), "one": torch.ones(1, 1),
        "bfloat": torch.tensor(0.5, dtype=torch.bfloat16), "decimal": Decimal("0.75"), "count": torch.tensor(7),
    }  # fmt: skip
    with dbg:
        train(model, 1)
        dbg.log(values, step=17)
    assert dbg.metrics == tuple(sorted(values))
    values["graded"] = 2.0
    for name, value in values.items():
        assert dbg.metric(name).at(0) == float(value.reshape(-1)[0] if name in ("array", "one") else value)
    with pytest.raises(neuraldbg.errors.UnknownStep, match="the loop's own 17 is step 0"):
        dbg.inspect("fc1", step=17)


@MODES
def test_values_that_are_not_finite_are_kept(overhead: float | None, tmp_path: Path) -> None:
    dbg = NeuralDbg(model := Mlp(), overhead=overhead, out=tmp_path)
    given = [0.5, math.nan, math.inf, -math.inf, 1.0]
    with dbg:
        train(model, 5, after=lambda step: dbg.log(metric=given[step]))
    for run in (dbg, neuraldbg.load(tmp_path)):
        np.testing.assert_array_equal(run.metric("metric").values, given)
        assert run.metrics == ("metric",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"accuracy": "0.5"}, "takes a number, or a tensor of one element, not '0.5'"),
        ({"accuracy": None}, "not None"),
        ({"accuracy": torch.ones(3)}, r"not Tensor of shape \(3,\)"),
        ({"accuracy": np.ones((2, 2))}, r"not ndarray of shape \(2, 2\)"),
        ({"accuracy": 1j}, "takes a number"),
        ({"": 1.0}, "name of a metric is a text"),
        ({3: 1.0}, "name of a metric is a text"),
    ],
)
def test_what_is_no_number_is_refused_and_nothing_of_it_is_recorded(wrong: dict[str, object], said: str) -> None:
    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 1)
        with pytest.raises(ConfigError, match=said):
            dbg.log({"good": 1.0, **wrong})
    assert dbg.metrics == ()


def test_a_session_that_does_not_run_says_so() -> None:
    dbg = NeuralDbg(Mlp())
    for _ in range(2):
        with pytest.raises(AttachError, match="log between start"):
            dbg.log(accuracy=1.0)
        if dbg._recorder is None:
            with dbg:
                pass
    with pytest.raises(ConfigError, match="give a dictionary"):
        dbg.log(0.5)  # type: ignore[arg-type]


def test_names_beyond_the_limit_are_counted() -> None:
    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 1)
        dbg.log({f"m{k:03}": k for k in range(NAMES + 3)})
    assert len(dbg.metrics) == NAMES
    (note,) = [note for note in dbg.record().info.coverage["notes"] if "metrics" in note]
    assert note == "more than 64 metrics were logged: 'm064', 'm065', 'm066' are not recorded"


def test_an_unknown_name_gets_the_nearest() -> None:
    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 1)
        dbg.log({"val/accuracy": 0.5, "reward": 1.0})
    with pytest.raises(UnknownMetric, match="Did you mean: val/accuracy"):
        dbg.metric("val/acuracy")
    with pytest.raises(UnknownMetric, match=r"Logged were: reward, val/accuracy\."):
        dbg.metric("x")
    with pytest.raises(ConfigError, match="give 'min', 'mean' or 'max'"):
        dbg.metric("reward", reduce="median")  # type: ignore[arg-type]
    assert dbg.metric("metric/reward").at(0) == 1.0


# -- how long runs are kept -----------------------------------------------------------------------------------------


def test_a_thinned_run_keeps_mean_and_extremes_of_a_metric() -> None:
    settings = {"record": {"full_steps": 128, "budget_mb": 4}}
    steps, model = 4_500, nn.Linear(2, 1)
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.0), torch.ones(1, 2)
    dbg = NeuralDbg(model, settings=settings, probes=False)
    rng = np.random.default_rng(0)
    given = rng.normal(size=steps)
    given[1000] = math.nan
    with dbg:
        for step in range(steps):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            dbg.log(noise=given[step], noise_low=0.0)
    series, low, high = (dbg.metric("noise", reduce) for reduce in ("mean", "min", "max"))
    assert series.width.max() > 1
    for at, width, mean, least, most in zip(
        series.steps, series.width, series.values, low.values, high.values, strict=True
    ):
        part = given[at : at + width]
        finite = part[np.isfinite(part)]
        if width > 1:
            assert (mean, least, most) == pytest.approx((finite.mean(), finite.min(), finite.max()))
    assert series.width.sum() == steps
    assert not dbg.metric("noise_low").values.any(), "a metric of that name is not the least of another"


# -- what it does to the training -----------------------------------------------------------------------------------


@MODES
def test_training_stays_bitwise_the_same(overhead: float | None) -> None:
    def run(log: Callable[..., None]) -> tuple[list[float], list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(1)
        model = Mlp()
        losses = train(model, 60, within=lambda step, loss: log(loss=loss), after=lambda step: log(after=step))
        return losses, [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    bare = run(lambda **values: None)
    with NeuralDbg(discover=True, overhead=overhead) as dbg:
        watched = run(dbg.log)
    assert watched[0] == bare[0]
    assert all(torch.equal(one, other) for one, other in zip(watched[1], bare[1], strict=True))
    assert torch.equal(watched[2], bare[2])


def test_an_error_of_ours_is_counted_and_stays_away_from_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    dbg = NeuralDbg(model := Mlp())

    def broken(*_: object) -> int:
        raise RuntimeError("ours")

    with dbg:
        monkeypatch.setattr(dbg._capture.metrics, "_step", broken)
        train(model, 3, after=lambda step: dbg.log(accuracy=0.5))
        monkeypatch.undo()
    assert dbg.record().info.coverage["errors"] == 3
    assert dbg.record().steps == 3


def test_a_value_dies_when_the_program_lets_it_go() -> None:
    import weakref

    dbg = NeuralDbg(model := Mlp())
    with dbg:
        train(model, 1)
        value = torch.tensor(0.5)
        gone = weakref.ref(value)
        dbg.log(accuracy=value)
        del value
        assert gone() is None


# -- values on a device ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 7])
def test_a_value_on_a_device_arrives_later_in_its_own_step_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        device = SimulatedDevice(monkeypatch, delay)

        def log(step: int, loss: torch.Tensor) -> None:
            kept = loss.detach().clone()
            dbg.log(loss=kept, twice=2 * kept)
            kept.zero_()  # what the program does with it afterwards changes nothing

        losses = train(model, 20, within=log)
        waits = device.waits
    assert waits == 0
    np.testing.assert_array_equal(dbg.metric("loss").values, losses)
    np.testing.assert_array_equal(dbg.metric("twice").values, 2 * np.array(losses))
    assert dbg.metric("loss").steps.tolist() == list(range(20))


def test_of_a_device_that_lags_far_behind_values_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        train(model, 1)
        SimulatedDevice(monkeypatch, 10_000)
        for step in range(70):
            dbg.log(value=torch.tensor(float(step)))
    assert dbg.metric("value").values.tolist() == [np.arange(64).mean()]
    assert any("6 values of metrics were left out" in note for note in dbg.record().info.coverage["notes"])
