"""Timers and layers by hand: real times, threads, wrong use, constant memory, and the profile that comes of them."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import threading
import time
import tracemalloc
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.cli import main
from neuraldbg.config import RecordSettings
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import STATS, Layout, RunInfo, RunRecord, Step
from neuraldbg.profile import profile
from neuraldbg.record import Recorder
from neuraldbg.record.fact_shapes import fitting
from neuraldbg.saved import Run
from neuraldbg.show.report.costs import costs_of
from neuraldbg.toolbox import hand_timers, timed_steps
from neuraldbg.toolbox.duration_sketch import ERROR, EXACT, DurationSketch
from neuraldbg.toolbox.hand_profiler import HandProfiler

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Fact
    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.nouns.facts.growth import GrowthFact
    from neuraldbg.nouns.facts.timing import TimingFact


class Clock:
    """A clock that stands still unless it is told otherwise, for times that are known exactly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in ("hand_timers", "hand_profiler"):
            monkeypatch.setattr(f"neuraldbg.toolbox.{module}.perf_counter", lambda: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Loop:
    """A training whose steps are counted by hand, and its profiler."""

    def __init__(self) -> None:
        self.step = 0
        self.profiler = HandProfiler(step=lambda: self.step)

    def timing(self) -> TimingFact:
        return known(self.profiler.facts(self.step), "timing")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def known(facts: tuple[Fact, ...], key: str) -> Any:
    return next(fact.known for fact in facts if fact.key == key)


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class TestTimers:
    """The time between start and end."""

    def test_real_times_have_the_ratio_of_the_work(self, loop: Loop) -> None:
        profiler = loop.profiler
        for _ in range(5):
            profiler.start_timer("long")
            busy(0.008)
            with profiler.timer("short") as span:
                busy(0.002)
            took = profiler.end_timer("long")
            assert span.seconds is not None
            assert 0.002 <= span.seconds < took
        long, short = profiler.timings()["long"], profiler.timings()["short"]
        assert (long.calls, short.calls) == (5, 5)
        assert long.median_s / short.median_s == pytest.approx(5, rel=0.5)
        assert long.total_s == pytest.approx(long.own_s + short.total_s)
        assert long.share + short.share == pytest.approx(1.0)
        assert long.max_s >= long.p95_s >= long.median_s >= 0.01

    def test_nested_in_itself_counts_its_time_once(self, loop: Loop, clock: Clock) -> None:
        profiler = loop.profiler

        @profiler.timer("fib")
        def fib(n: int) -> int:
            clock.pass_(1.0)
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        assert fib(4) == 3
        assert fib.__name__ == "fib"
        one = profiler.timings()["fib"]
        assert (one.calls, one.total_s, one.own_s) == (9, 9.0, 9.0)
        assert one.max_s == 9.0
        assert one.median_s == 1.0

    def test_an_exception_passes_and_its_time_counts(self, loop: Loop, clock: Clock) -> None:
        with pytest.raises(KeyError), loop.profiler.timer("outer"):  # noqa: PT012
            loop.profiler.start_timer("lost")
            clock.pass_(3.0)
            raise KeyError
        assert loop.profiler.timings()["outer"].total_s == 3.0
        assert "lost" not in loop.profiler.timings()
        assert loop.profiler.notes == ("Never ended: lost. Their time is not known.",)
        with loop.profiler.timer("outer"):
            clock.pass_(1.0)
        assert loop.profiler.timings()["outer"].total_s == 4.0

    def test_ends_out_of_order_say_what_to_end_first_and_end_nothing(self, loop: Loop) -> None:
        profiler = loop.profiler
        profiler.start_timer("a")
        profiler.start_timer("b")
        with pytest.raises(
            ConfigError, match="'a' cannot end before 'b', which was started inside of it: end 'b' first"
        ):
            profiler.end_timer("a")
        with pytest.raises(ConfigError, match=r"'c' does not run: start_timer\('c'\) comes first; running here: a, b"):
            profiler.end_timer("c")
        assert "Still running: a, b." in profiler.notes
        profiler.end_timer("b")
        profiler.end_timer("a")
        assert profiler.notes == ("Ended while not running, or out of order: a, c.",)

    @pytest.mark.parametrize("name", [None, 3, b"a", ["a"]])
    def test_a_name_is_text(self, loop: Loop, name: Any) -> None:
        for call in (loop.profiler.start_timer, loop.profiler.end_timer, loop.profiler.timer):
            with pytest.raises(ConfigError, match="a timer is named by text"):
                call(name)

    def test_what_returns_before_its_code_has_run_is_refused(self, loop: Loop) -> None:
        async def later() -> None:
            await asyncio.sleep(0)

        def many() -> Any:
            yield 1

        for function in (later, many, 3):
            with pytest.raises(ConfigError, match="write `with profiler"):
                loop.profiler.timer("x")(function)  # type: ignore[type-var]


class TestThreads:
    """Each thread has its own stack."""

    def test_threads_do_not_see_the_timers_of_others(self, loop: Loop) -> None:
        profiler, gate, errors = loop.profiler, threading.Barrier(4, timeout=5), []

        def work(name: str) -> None:
            try:
                for _ in range(50):
                    with profiler.timer("shared"), profiler.timer(name):
                        gate.wait()
            except Exception as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        times = profiler.timings()
        assert not errors
        assert times["shared"].calls == 200
        assert [times[f"t{i}"].calls for i in range(4)] == [50] * 4
        assert times["shared"].total_s == pytest.approx(
            times["shared"].own_s + sum(times[f"t{i}"].total_s for i in range(4))
        )
        assert profiler.notes == ()

    def test_a_timer_of_a_thread_that_is_gone_was_never_ended(self, loop: Loop) -> None:
        def forget() -> None:
            loop.profiler.start_timer("forgotten")

        for _ in range(3):
            thread = threading.Thread(target=forget)
            thread.start()
            thread.join()
        gc.collect()
        assert loop.profiler.notes == ("Never ended: forgotten (3 times). Their time is not known.",)

    def test_a_timer_of_another_thread_cannot_be_ended_here(self, loop: Loop) -> None:
        loop.profiler.start_timer("mine")
        found: list[Exception] = []

        def end() -> None:
            try:
                loop.profiler.end_timer("mine")
            except ConfigError as error:
                found.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert "'mine' runs in another thread" in str(found[0])
        assert loop.profiler.end_timer("mine") > 0

    def test_a_loader_in_another_thread_is_no_part_of_the_step(self, loop: Loop, clock: Clock) -> None:
        def load() -> None:
            with loop.profiler.timer("data"):
                clock.pass_(5.0)

        for loop.step in range(4):
            with loop.profiler.timer("forward"):
                clock.pass_(1.0)
                thread = threading.Thread(target=load)
                thread.start()
                thread.join()
        assert loop.profiler.timings()["data"].calls == 4
        assert loop.timing().data_s is None
        assert loop.timing().forward_s == 6.0


class TestDistribution:
    """Quantiles of many durations."""

    @given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=300), st.floats(0.01, 1.0))
    def test_few_are_exact(self, durations: list[float], share: float) -> None:
        sketch = DurationSketch()
        for one in durations:
            sketch.add(one)
        assert sketch.quantile(share) == np.quantile(durations, share, method="inverted_cdf")

    @pytest.mark.parametrize("kind", ["lognormal", "two kinds", "constant", "with zeros"])
    def test_many_are_within_the_stated_error(self, kind: str) -> None:
        rng = np.random.default_rng(3)
        many = {
            "lognormal": rng.lognormal(-7, 2, 20_000),
            "two kinds": np.where(np.arange(20_000) % 10 == 0, 1.0, 1e-3) * rng.uniform(0.9, 1.1, 20_000),
            "constant": np.full(5_000, 0.25),
            "with zeros": np.maximum(rng.normal(0, 1e-6, 5_000), 0.0),
        }[kind]
        sketch = DurationSketch()
        for one in many:
            sketch.add(float(one))
        for share in (0.01, 0.25, 0.5, 0.9, 0.95, 0.999, 1.0):
            told, right = sketch.quantile(share), float(np.quantile(many, share, method="inverted_cdf"))
            assert told == pytest.approx(right, rel=ERROR * 1.0001, abs=1.01e-9), share
        assert sketch.largest == many.max()
        assert sketch.count == len(many) > EXACT

    def test_without_any_there_is_none(self) -> None:
        assert math.isnan(DurationSketch().quantile(0.5))

    def test_the_programs_generators_are_left_alone(self, loop: Loop) -> None:
        before = np.random.get_state()[1].tolist()  # noqa: NPY002 (the state that a program has)
        for _ in range(3_000):
            with loop.profiler.timer("x"):
                pass
        loop.profiler.timings()
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_a_million_calls_take_constant_memory(loop: Loop) -> None:
    profiler = loop.profiler
    start, end = profiler.start_timer, profiler.end_timer
    for i in range(1_000_000):
        if i == 5_000:
            gc.collect()
            tracemalloc.start()
            first = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        if i == 995_000:  # tracing all of them would take ten times as long
            tracemalloc.start()
        if not i % 1_000:
            loop.step = i // 1_000
        start("op")
        end("op")
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    times = profiler.timings()["op"]
    assert times.calls == 1_000_000
    assert grown < 100_000, "5,000 calls of 5 steps"
    assert times.total_s == pytest.approx(times.calls * times.mean_s)
    sketch = profiler._timers._timers["op"].sketch
    assert len(sketch._buckets) < 4_000
    assert len(profiler._steps._kept) == timed_steps.KEPT
    assert loop.timing().steps == 999


def test_names_without_end_are_counted_together(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_timers, "TIMERS", 10)
    monkeypatch.setattr("neuraldbg.toolbox.hand_profiler.LAYERS", 5)
    for i in range(30):
        with loop.profiler.timer(f"batch {i}"):
            pass
        loop.profiler.record_layer_execution(f"layer{i}", "Dense", 0.001)
    times = loop.profiler.timings()
    assert len(times) == 11
    assert times[hand_timers.OTHERS].calls == 20
    assert len(loop.profiler.layer_types) == 6
    layers = {one.layer: one for one in loop.timing().layers}
    assert layers[hand_timers.OTHERS].calls == 25
    assert sum(one.forward_s for one in layers.values()) == pytest.approx(0.030)
    assert len(loop.profiler.notes) == 2


class TestSteps:
    """The parts of a typical step."""

    def train(self, loop: Loop, clock: Clock, steps: int = 12) -> None:
        for loop.step in range(steps):
            with loop.profiler.timer("Data-Loading"):
                clock.pass_(2.0)
            with loop.profiler.timer("forward"):
                clock.pass_(3.0)
                with loop.profiler.timer("attention"):
                    clock.pass_(1.0)
            with loop.profiler.timer("backward"):
                clock.pass_(8.0 if loop.step else 80.0)  # the first one compiles
            with loop.profiler.timer("optimizer"):
                clock.pass_(0.5)
            clock.pass_(1.5)

    def test_parts_sum_to_the_step_and_a_first_step_that_compiles_is_no_typical_one(
        self, loop: Loop, clock: Clock
    ) -> None:
        self.train(loop, clock)
        timing = loop.timing()
        assert timing.step_s == pytest.approx(16.0)
        parts = timing.data_s, timing.forward_s, timing.backward_s, timing.optimizer_s, timing.other_s
        assert parts == pytest.approx((2.0, 4.0, 8.0, 0.5, 1.5))
        assert timing.evaluation_s is None
        assert (timing.steps, timing.first, timing.last, timing.clock, timing.batches) == (11, 0, 10, "hand", 1.0)
        assert timing.alike == 1.0
        assert not timing.doubtful
        assert [one.name for one in timing.timers] == ["backward", "forward", "Data-Loading", "attention", "optimizer"]

    def test_a_timer_named_step_bounds_the_step(self, loop: Loop, clock: Clock) -> None:
        for _ in range(6):
            with loop.profiler.timer("train_step"):
                with loop.profiler.timer("forward"):
                    clock.pass_(2.0)
                clock.pass_(1.0)
                loop.step += 1  # the session goes on to the next step inside of the timer
            clock.pass_(50.0)
        timing = loop.timing()
        assert (timing.step_s, timing.forward_s, timing.other_s) == pytest.approx((3.0, 2.0, 1.0))
        assert timing.steps == 6

    def test_only_one_step_is_said_and_no_share_told(self, loop: Loop, clock: Clock) -> None:
        with loop.profiler.timer("forward"):
            clock.pass_(2.0)
        timing = loop.timing()
        assert (timing.steps, timing.step_s, timing.other_s, timing.doubtful) == (1, 2.0, None, True)
        assert "time a second one" in timing.caution()
        assert loop.profiler.bottlenecks() == ()
        assert loop.profiler.suggestions() == ()
        assert any("only one step was timed" in note.lower() for note in loop.profiler.profile().notes)

    def test_a_step_that_is_open_is_left_out(self, loop: Loop, clock: Clock) -> None:
        self.train(loop, clock, 4)
        loop.step = 4
        with loop.profiler.timer("data"):
            clock.pass_(100.0)
        assert loop.timing().steps == 4
        assert loop.timing().data_s == pytest.approx(2.0)

    def test_nothing_recorded_gives_nothing(self, loop: Loop) -> None:
        assert loop.profiler.facts(10) == ()
        assert loop.profiler.timings() == {}
        assert loop.profiler.profile().timing is None
        assert "no step was timed" in loop.profiler.summary()

    def test_steps_in_which_nothing_was_timed_are_divided_out(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(0, 100, 10):
            with loop.profiler.timer("forward"):
                clock.pass_(1.0)
            clock.pass_(39.0)
        assert (loop.timing().step_s, loop.timing().forward_s) == (4.0, 1.0)

    def test_an_evaluation_now_and_then_is_weighed_by_its_steps(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(41):
            with loop.profiler.timer("forward"):
                clock.pass_(1.0)
            if loop.step % 4 == 3:
                with loop.profiler.timer("validation"):
                    clock.pass_(8.0)
        timing = loop.timing()
        assert (timing.evaluation_s, timing.forward_s, timing.step_s) == pytest.approx((2.0, 1.0, 3.0))
        assert timing.alike == 0.75


class TestLayers:
    """Seconds and bytes that are given."""

    def test_own_times_are_without_the_layers_inside(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(4):
            for _ in range(2):
                loop.profiler.record_layer_execution("block.0.attention", "Attention", 1.0, 2.0)
            loop.profiler.record_layer_execution("block.0", "Block", timedelta(seconds=3), np.float32(5.0))
            loop.profiler.record_layer_execution("head", "Dense", forward_time=0.5)
            clock.pass_(20.0)
        timing = loop.timing()
        layers = {one.layer: one for one in timing.layers}
        assert (layers["block.0"].own_forward_s, layers["block.0"].own_backward_s) == (1.0, 1.0)
        assert (layers["block.0.attention"].calls, layers["block.0.attention"].backward_s) == (2, 4.0)
        assert layers["head"].backward_s is None
        assert layers["block.0"].type == "Block"
        assert (timing.forward_s, timing.backward_s, timing.step_s, timing.other_s) == (3.5, 5.0, 20.0, 11.5)

    def test_given_times_that_are_longer_than_the_clock_saw_make_the_step(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(4):
            clock.pass_(0.001)
            loop.profiler.record_layer_execution("a", "Dense", 2.0, 3.0)
        timing = loop.timing()
        assert (timing.step_s, timing.forward_s, timing.backward_s, timing.other_s) == (5.0, 2.0, 3.0, 0.0)

    def test_a_layer_that_dominates_is_told_in_words_of_no_framework(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(6):
            loop.profiler.record_layer_execution("attn", "Attention", 6.0, 1.0, parameter_count=100)
            loop.profiler.record_layer_execution("fc", "Dense", 0.5, 1.0, parameter_count=900)
            clock.pass_(10.0)
        one = next(one for one in loop.profiler.bottlenecks() if one.kind == "one_layer")
        assert one.layer == "attn"
        assert one.share == pytest.approx(0.7)
        assert one.text == "'attn' takes 70% of the step and has 10% of the parameters"
        assert "1.54 times as fast" in one.remedy
        assert loop.profiler.suggestions()[0].startswith("'attn' takes 70% of the step")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"forward_time": -1.0},
            {"forward_time": math.nan},
            {"forward_time": math.inf},
            {"forward_time": "1"},
            {"forward_time": True},
            {"forward_time": np.ones(3)},
            {"backward_time": timedelta(seconds=-1)},
            {"memory_usage": -1},
            {"memory_usage": 1.5},
            {"parameter_count": None, "memory_usage": "1 GB"},
            {"layer_type": 3},
        ],
    )
    def test_bad_numbers_are_refused_and_nothing_is_recorded(self, loop: Loop, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            loop.profiler.record_layer_execution(**{"layer_name": "a", "forward_time": 0.1, **wrong})
        assert loop.profiler.layer_types == {}
        assert loop.profiler.facts(1) == ()


class TestMemory:
    """Resident memory, memory of layers, and memory that grows."""

    def test_peaks_and_numbers_of_parameters(self, loop: Loop) -> None:
        for loop.step, used in enumerate((50, 90, 70)):
            loop.profiler.record_layer_execution("a", "Dense", 0.1, memory_usage=used << 20, parameter_count=12)
        fact: FootprintFact = known(loop.profiler.facts(3), "footprint")
        assert (fact.peak, fact.peak_at, fact.step, fact.by_hand) == (90 << 20, "'a'", 1, True)
        assert (fact.layers[0].peak, fact.layers[0].parameter_count) == (90 << 20, 12)
        assert all(one.kind != "peak" for one in loop.profiler.bottlenecks())

    def test_the_resident_memory_is_read_by_itself_and_given_numbers_come_first(self, loop: Loop) -> None:
        with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
            right = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
        assert loop.profiler.memory()["resident"] == pytest.approx(right, abs=8 << 20)
        loop.profiler.record_memory(device=5)
        assert loop.profiler.memory()["device_memory"] == 5.0
        loop.profiler.record_memory()
        assert loop.profiler.memory()["resident"] == pytest.approx(right, abs=8 << 20)
        loop.step = 1
        assert "device_memory" not in loop.profiler.memory()
        with pytest.raises(ConfigError):
            loop.profiler.record_memory(resident=-1)

    def test_memory_that_grows_is_a_leak_and_steady_memory_is_none(self, loop: Loop) -> None:
        steady = Loop()
        for step in range(4_000):
            loop.step = steady.step = step
            loop.profiler.record_memory(resident=10**9 + step * 200_000, device=10**8)
            steady.profiler.record_memory(resident=10**9 + (step % 7) * 1_000, device=10**8)
        growth: GrowthFact = known(loop.profiler.facts(4_000), "growth")
        assert growth.resident_per_step == pytest.approx(200_000, rel=0.05)
        assert growth.device_per_step == 0.0
        told = loop.profiler.bottlenecks()
        assert [one.kind for one in told] == ["leak"]
        assert told[0].text.startswith("resident memory grows by 195 KiB a step")
        assert steady.profiler.bottlenecks() == ()


class TestRunFile:
    """The facts in a run file, and what is shown of it."""

    def record(self, loop: Loop, clock: Clock) -> None:
        for loop.step in range(30):
            with loop.profiler.timer("data"):
                clock.pass_(0.040)
            with loop.profiler.timer("forward"):
                clock.pass_(0.020)
            loop.profiler.record_layer_execution("dense_1", "Dense", 0.015, 0.010, memory_usage=3 << 20)
            loop.profiler.record_layer_execution("dense_2", "Dense", 0.005, 0.010, parameter_count=20)
            with loop.profiler.timer("backward"):
                clock.pass_(0.020)
            clock.pass_(0.030)

    def test_facts_have_the_shapes_that_a_run_file_is_checked_by(self, loop: Loop, clock: Clock) -> None:
        self.record(loop, clock)
        facts = loop.profiler.facts(30)
        assert [fact.key for fact in facts] == ["timing", "footprint"]
        for fact in facts:
            assert fitting(fact.key, json.loads(json.dumps(fact.value))) == fact.value

    def test_a_run_file_gives_the_same_profile_and_the_command_shows_it(
        self, loop: Loop, clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.record(loop, clock)
        recorder = Recorder(tmp_path / "run", RecordSettings(), RunInfo())
        for index in range(30):
            recorder.put(Step(index, 0, 0.1 * index, np.zeros((0, len(STATS))), {"loss": 1.0 / (index + 1)}), Layout())
        recorder.note(loop.profiler.facts(30))
        recorder.close()
        assert recorder.problem is None
        run = Run.load(tmp_path / "run")
        told = run.profile()
        assert told.timing == known(loop.profiler.facts(30), "timing")
        assert told.footprint == known(loop.profiler.facts(30), "footprint")
        assert told.bottlenecks == loop.profiler.bottlenecks()
        assert [one.kind for one in told.bottlenecks] == ["data_loading", "outside"]
        assert told.bottlenecks[0].text == "36% of the step, 40 ms, waits for data"
        for one in (*told.bottlenecks, *told.notes):
            for word in ("torch", "DataLoader", "num_workers"):
                assert word not in str(one)
        assert main(["profile", str(tmp_path / "run")]) == 0
        shown = capsys.readouterr().out
        for said in ("110 ms a step", "29 timed steps", "waits for data", "dense_1 (Dense)", "Timers", "3 MiB"):
            assert said in shown
        for word in ("torch", "DataLoader", "num_workers", "--profile", "0 B"):
            assert word not in shown
        costs = costs_of(told)
        assert costs is not None
        assert {"Timers", "The parts of a step", "The layers"} == {table.title for table in costs.tables}
        for sentence in (*costs.sentences, *costs.notes):
            assert "torch" not in sentence
        assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")]) == 0
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "waits for data" in page
        assert "Timers" in page

    def test_a_profile_in_memory_and_one_of_a_record_are_one(self, loop: Loop, clock: Clock) -> None:
        self.record(loop, clock)
        record = RunRecord(facts=loop.profiler.facts(30))
        assert profile(record).bottlenecks == loop.profiler.bottlenecks()
        assert str(loop.profiler.profile()) in loop.profiler.summary()
