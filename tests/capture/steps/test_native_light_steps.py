"""Light steps that native code takes: the record is what Python's hooks would have written, whatever a program does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from tests.families import some
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.parameters import usual_norm
from neuraldbg.capture.readers import experiment_runner
from neuraldbg.capture.steps import fact_schedule, native_light_steps, overhead_budget, step_accounting
from neuraldbg.capture.steps.delivery import BACKLOG_S
from neuraldbg.capture.steps.overhead_budget import Governor
from neuraldbg.nouns import STATS
from neuraldbg.saved import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.nouns import RunRecord

pytestmark = [
    pytest.mark.budget,
    pytest.mark.skipif(native is None, reason="without the kernel Python takes all steps"),
]
TIGHT = {"capture": {"allowance_s": 0.0, "overhead": 1e-6}}
"""All steps are light, but those whose facts are read (a few at an even pace, and the bursts there)."""
STEPS = 120


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an experiment may seem too long, and come later in one of two runs."""
    monkeypatch.setattr(experiment_runner, "SECONDS", 60.0)


class Loop:
    """A training of the usual form. What a subclass does besides is what is tested."""

    rate = 0.05

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = nn.Sequential(
            nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
        )
        self.draw = torch.Generator().manual_seed(1)
        self.opt = self.optimizer()
        self.step = 0

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=self.rate)

    def batch(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(16, 6, generator=self.draw)
        return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()

    def loss(self) -> Tensor:
        x, y = self.batch()
        return F.cross_entropy(self.model(x), y)

    def backward(self) -> None:
        self.loss().backward()

    def between(self) -> None:
        """Between backward and step."""

    def train_step(self) -> None:
        self.opt.zero_grad()
        self.backward()
        self.between()
        self.opt.step()

    def after(self, dbg: NeuralDbg) -> None:
        """After each step."""

    def run(self, **options: Any) -> tuple[RunRecord, int]:
        """Train under a session; returns its record, and how many steps native code has taken."""
        dbg = NeuralDbg(self.model, settings=TIGHT, **options)
        with dbg:
            made = dbg._capture.light
            taken, drain = 0, made.drain

            def counted() -> None:
                nonlocal taken
                taken += made.waiting
                drain()

            made.drain = counted  # type: ignore[method-assign]
            for self.step in range(STEPS):
                self.train_step()
                self.after(dbg)
        return dbg.record(), taken


class MicroBatches(Loop):
    def backward(self) -> None:
        for _ in range(3):
            (self.loss() / 3).backward()


class Schedule(Loop):
    def after(self, dbg: NeuralDbg) -> None:
        for group in self.opt.param_groups:
            group["lr"] = 0.05 / (1 + self.step)


class Groups(Loop):
    def optimizer(self) -> torch.optim.Optimizer:
        first, *others = self.model.parameters()
        return torch.optim.SGD([{"params": [first], "lr": 0.2}, {"params": others}], lr=0.01)


class Evaluates(Loop):
    def after(self, dbg: NeuralDbg) -> None:
        if self.step % 5 == 0:
            self.model.eval()
            with torch.no_grad():
                F.cross_entropy(self.model(self.batch()[0]), self.batch()[1])
            self.model.train()


class Spikes(Loop):
    """A few batches out of range, and one that is not a number."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return (x * {70: 400.0, 90: float("nan")}.get(self.step, 1.0), y)

    def between(self) -> None:
        if self.step == 90:
            self.opt.zero_grad()


class BadGradient(Loop):
    def between(self) -> None:
        if self.step == 77:
            for p in self.model.parameters():
                assert p.grad is not None
                p.grad.fill_(float("nan"))
        if self.step == 78:
            with torch.no_grad():
                for p in self.model.parameters():
                    p.fill_(0.1)


class LargeGradient(Loop):
    def between(self) -> None:
        if self.step in (60, 61, 90):
            for p in self.model.parameters():
                assert p.grad is not None
                p.grad.mul_(1e4)
                p.grad.clamp_(-1.0, 1.0)


class Raises(Loop):
    """Steps that fail in the model, in the backward pass and in the optimizer, and are tried again."""

    def train_step(self) -> None:
        with contextlib.suppress(RuntimeError):
            if self.step % 7 == 3:
                x, y = self.batch()
                self.model(x[:, :4]) if self.step % 2 else F.cross_entropy(self.model(x), y).backward(torch.ones(3))
        with contextlib.suppress(RuntimeError):
            if self.step % 11 == 4:
                self.model(torch.randn(2, 5, generator=self.draw))
        super().train_step()


class Remade(Loop):
    def after(self, dbg: NeuralDbg) -> None:
        if self.step % 40 == 39:
            self.opt = self.optimizer()


class Second(Loop):
    """A second optimizer begins in mid-course, and steps now and then."""

    def after(self, dbg: NeuralDbg) -> None:
        if self.step == 50:
            self.other = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        if self.step > 50 and self.step % 4 == 0:
            self.loss().backward()
            self.other.step()


class Closures(Loop):
    def train_step(self) -> None:
        def closure() -> Tensor:
            self.opt.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        if self.step % 10 > 7:
            self.opt.step(closure)
        else:
            super().train_step()


class Outer(torch.optim.SGD):
    """A subclass whose step calls torch's."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Subclass(Loop):
    def optimizer(self) -> torch.optim.Optimizer:
        return Outer(self.model.parameters(), lr=self.rate, momentum=0.9)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front, self.end = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.end(checkpoint(self.front, x, use_reentrant=True).tanh())
        return out


class Nested(Loop):
    """Backward passes inside of a backward pass, which calls layers again."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Checkpointed()
        self.opt = self.optimizer()

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x.requires_grad_(), y


class Parts(Loop):
    """The program calls the parts of its model one after the other."""

    def loss(self) -> Tensor:
        x, y = self.batch()
        for part in self.model.children():
            x = part(x)
        return F.cross_entropy(x, y)


class NoBackward(Loop):
    def train_step(self) -> None:
        if self.step % 9 == 5:
            self.opt.step()
        else:
            super().train_step()


class Penalty(Loop):
    """A gradient penalty in each tenth step."""

    def loss(self) -> Tensor:
        loss = super().loss()
        if self.step % 10 == 9:
            grads = torch.autograd.grad(loss, list(self.model.parameters()), create_graph=True)
            loss = loss + 0.01 * sum(g.square().sum() for g in grads)  # type: ignore[assignment]
        return loss


class Others(Loop):
    """Another model is trained in between: whether a backward reaches the watched one is then asked for each time."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(4, 1)
        self.side_opt = torch.optim.SGD(self.side.parameters(), lr=0.1)

    def after(self, dbg: NeuralDbg) -> None:
        if self.step % 3 == 0:
            self.side_opt.zero_grad()
            self.side(torch.randn(5, 4, generator=self.draw)).square().mean().backward()
            self.side_opt.step()


class Frozen(Loop):
    """The first layer stops to learn, and its gradients with it."""

    def after(self, dbg: NeuralDbg) -> None:
        if self.step == 60:
            first = next(self.model.children())
            for p in first.parameters():
                p.requires_grad_(False)
                p.grad = None


class Threads(Loop):
    """Another thread calls the model while this one trains."""

    def after(self, dbg: NeuralDbg) -> None:
        if self.step % 6 == 0:
            with torch.no_grad():
                thread = threading.Thread(target=lambda: self.model(torch.zeros(2, 6)))
                thread.start()
                thread.join()


class Half(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.model = self.model.to(torch.bfloat16)
        self.opt = self.optimizer()

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x.to(torch.bfloat16), y


class Loads(Loop):
    """A checkpoint is loaded in mid-course: a fact that belongs to its step."""

    def after(self, dbg: NeuralDbg) -> None:
        if self.step == 30:
            self.state = self.opt.state_dict()
        if self.step == 97:
            self.opt.load_state_dict(self.state)


class InnerBackward(Loop):
    """A backward pass inside of a step, without a call of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.opt.register_step_pre_hook(lambda *_: self.decay())

    def decay(self) -> None:
        if self.step % 30 == 20:
            (1e-4 * sum(p.square().sum() for p in self.model.parameters())).backward()  # type: ignore[union-attr]


class CallsInStep(Loop):
    """The model is called inside of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.opt.register_step_post_hook(lambda *_: self.look())

    def look(self) -> None:
        if self.step % 20 == 11:
            with torch.no_grad():
                self.model(torch.zeros(2, 6))


class TensorRate(Loop):
    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=torch.tensor(0.05))  # type: ignore[arg-type]


class MoreGroups(Loop):
    """Parameters join the optimizer in mid-course."""

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(list(self.model.parameters())[2:], lr=self.rate)

    def after(self, dbg: NeuralDbg) -> None:
        if self.step == 53:
            self.opt.add_param_group({"params": list(self.model.parameters())[:2]})


class OwnCall(nn.Linear):
    """A layer that is called in a way of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)


class Odd(Loop):
    """Layers that are called otherwise, or whose output a hook of the program replaces after ours."""

    def __init__(self) -> None:
        super().__init__()
        assert isinstance(self.model, nn.Sequential)
        self.model[2] = OwnCall(16, 16)
        self.opt = self.optimizer()
        self.hooked = False

    def train_step(self) -> None:
        if not self.hooked:
            self.hooked = True
            self.model[0].register_forward_hook(lambda _m, _a, out: 10 * out)  # type: ignore[index, union-attr]
        super().train_step()


class Asks(Loop):
    """The program asks the session while it trains."""

    def after(self, dbg: NeuralDbg) -> None:
        assert dbg.steps == self.step + 1
        if self.step % 25 == 20:
            dbg.diagnose()


LOOPS = [
    Loop, MicroBatches, Schedule, Groups, Evaluates, Spikes, BadGradient, LargeGradient, Raises, Remade, Second,
    Closures, Subclass, Nested, Parts, NoBackward, Penalty, Others, Frozen, Threads, Half, Loads, InnerBackward,
    CallsInStep, TensorRate, MoreGroups, Odd, Asks,
]  # fmt: skip
SAME = ("loss", "loss_nonfinite", "lr", "backwards")
TIMES = {"duration", "overhead"}


@contextlib.contextmanager
def without_native() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_light_steps, "native", None)
        yield


def told(run: RunRecord, name: str) -> dict[int, float]:
    series = run.scalar(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) if series is not None else {}


def steps_of_facts(run: RunRecord) -> list[tuple[int, str]]:
    # Of this moment, and no other; a change of settings is seen when light steps are processed.
    measured = {"timing", "footprint", "growth", "change"}
    return sorted((fact.step, fact.key) for fact in run.facts if fact.key not in measured)


@pytest.mark.parametrize("loop", some(LOOPS, 3), ids=lambda loop: loop.__name__)
def test_the_record_is_what_python_would_have_written(loop: Callable[[], Loop]) -> None:
    with without_native():
        expected, none = loop().run()
    run, taken = loop().run()
    assert none == 0
    assert taken > 0 or loop in (Others, TensorRate)
    assert list(run.history.steps) == list(expected.history.steps)
    for name in SAME:
        there = told(run, name)
        assert there == pytest.approx(told(expected, name), rel=1e-6, nan_ok=True), name
        assert len(there) > 100
    # A norm that both have read is of the same gradients; blocks of it may be others.
    norms, others = told(run, "grad_norm"), told(expected, "grad_norm")
    both = norms.keys() & others.keys()
    assert len(both) > 10
    for step in both:
        assert norms[step] == pytest.approx(others[step], rel=1e-5, nan_ok=True), step
    assert steps_of_facts(run) == steps_of_facts(expected)
    assert {(e.kind, e.layer) for e in run.events} == {(e.kind, e.layer) for e in expected.events}


@pytest.mark.parametrize("loop", [Loop, MicroBatches, Schedule, Evaluates, Groups, Subclass, Parts, Half, Asks])
def test_what_goes_as_usual_is_taken(loop: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    # Facts in a few steps: after each Python takes some steps before native code goes on.
    monkeypatch.setattr(fact_schedule, "_PACES", ((96, 32),))
    run, taken = loop().run()
    light_steps = int((~run.history.read).sum())
    assert light_steps > 90
    assert taken >= 0.8 * light_steps


HANGS = """
    import sys, time
    from tests.capture.steps.test_native_light_steps import TIGHT, Loop
    from neuraldbg import NeuralDbg

    loop = Loop()
    with NeuralDbg(loop.model, settings=TIGHT, out=sys.argv[1]) as dbg:
        for loop.step in range(180):
            loop.train_step()
        assert dbg._capture.light.waiting > 0
        print("hangs", flush=True)
        time.sleep(60)
"""


def test_steps_before_a_loop_that_hangs_are_in_the_file_of_a_killed_run(tmp_path: Path) -> None:
    code = textwrap.dedent(HANGS)
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"hangs\n"
        time.sleep(2.5)  # a second is promised, and this machine may be busy
        process.send_signal(signal.SIGKILL)
    assert list(Run.load(tmp_path).history.steps) == list(range(180))


FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@FORKS
def test_a_forked_child_trains_on_and_the_parents_record_is_its_own() -> None:
    loop = Loop()
    dbg = NeuralDbg(loop.model, settings=TIGHT)
    with dbg:
        for loop.step in range(60):
            loop.train_step()
        child = os.fork()
        if not child:  # 40 steps whose lines nobody reads
            try:
                for loop.step in range(60, 100):
                    loop.train_step()
            except BaseException:  # noqa: BLE001
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for loop.step in range(60, 80):
            loop.train_step()
    assert list(dbg.record().history.steps) == list(range(80))


def test_a_change_of_pace_is_told_within_ten_steps() -> None:
    loop = Loop()
    dbg = NeuralDbg(loop.model, settings=TIGHT)
    told = []
    with dbg:
        for loop.step in range(60):
            loop.train_step()
        capture = dbg._capture
        settle = capture.pace.settle
        capture.pace.settle = lambda *a, **k: (told.append(loop.step), settle(*a, **k))  # type: ignore[assignment, func-returns-value]
        for loop.step in range(60, 64):
            loop.train_step()
        for loop.step in range(65, 80):  # the run's 64th step is read in full anyway
            loop.train_step()
            time.sleep(0.03)
    assert told
    assert min(told) <= 75


ALL = ("input", "activation", "output_grad", "param", "param_grad", "update")


def read_in_full(loop: Loop) -> tuple[RunRecord, int, int]:
    """Train without a budget. Returns the record, the steps without facts, and how many of them native code took."""
    dbg, spared, taken = NeuralDbg(loop.model, overhead=None), 0, 0
    with dbg:
        capture = dbg._capture
        for loop.step in range(STEPS):
            spared += not capture.switch.in_full_step()
            taken += capture.light.entered
            loop.train_step()
            loop.after(dbg)
    assert dbg.diagnose().run["coverage"]["errors"] == 0
    return dbg.record(), spared, taken


def sites(run: RunRecord) -> dict[tuple[str, str, int, str], dict[str, list[tuple[int, float]]]]:
    """Every number of the sites that are read in each step, but what is learnt of units over many."""
    found = {}
    for row, site in enumerate(run.layout.sites):
        if site.kind in ALL:
            stats = {stat: run.series(row, stat) for stat in STATS if stat not in ("units", "dead")}
            found[site.kind, site.module, site.call, site.name] = {
                stat: list(zip(s.steps.tolist(), s.values.tolist(), strict=True)) for stat, s in stats.items()
            }
    return found


@pytest.mark.parametrize("loop", some(LOOPS, 3), ids=lambda loop: loop.__name__)
def test_every_site_is_read_in_every_step_as_by_python(loop: Callable[[], Loop]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Governor, "spares", lambda *_: False)
        expected, none, _ = read_in_full(loop())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEARNT", 12), ("FACTS", 3), ("OF", 16)):
            patch.setattr(overhead_budget, name, value)
        run, spared, taken = read_in_full(loop())
    assert none == 0
    if loop not in (Others, Raises, Closures):
        assert spared > 20
        assert taken > 15 or loop is TensorRate
    assert list(run.history.steps) == list(expected.history.steps)
    assert run.history.read.all()
    here, there = sites(run), sites(expected)
    assert here.keys() == there.keys()
    for key, stats in there.items():
        for stat, course in stats.items():
            assert repr(here[key][stat]) == repr(course), (key, stat)
    for name in SAME if loop is not InnerBackward else ():  # in light steps a loss is not asked for what it reaches
        assert told(run, name) == pytest.approx(told(expected, name), rel=1e-6, nan_ok=True), name


def test_layers_that_hooks_or_calls_of_their_own_make_odd_are_read_alike_in_every_step() -> None:
    run, _, _ = read_in_full(Odd())
    rows = {(site.kind, site.module): row for row, site in enumerate(run.layout.sites) if site.kind == "activation"}
    for layer in "01234":
        assert set(run.series(rows["activation", layer], "count").values.tolist()) == {
            16.0 * (3 if layer == "4" else 16)
        }
    first = run.series(rows["activation", "0"], "rms").values
    assert first.max() < 3 * first.min()  # the hook makes it ten times as large: always seen before it, or always after


def test_a_layer_of_two_models_is_read_for_both() -> None:
    shared = nn.Linear(6, 6)
    models = [nn.Sequential(shared, nn.Tanh(), nn.Linear(6, 3)) for _ in range(2)]
    opt = torch.optim.SGD([*models[0].parameters(), *models[1][2].parameters()], lr=0.01)
    dbg = NeuralDbg(None, discover=True, overhead=None)
    with dbg:
        for _ in range(12):
            opt.zero_grad()
            sum(model(torch.randn(4, 6)).square().mean() for model in models).backward()
            opt.step()
    run = dbg.record()
    counts = [run.series(row, "count") for row, site in enumerate(run.layout.sites) if site.kind == "activation"]
    assert all(len(count.steps) >= 11 for count in counts)


def test_a_settlement_that_fails_writes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may come at any place: what waits stays, and steps go on in Python until there is room."""
    monkeypatch.setattr(native_light_steps, "ROWS", 80)
    for name, value in (("LEARNT", 12), ("FACTS", 3), ("OF", 64)):
        monkeypatch.setattr(overhead_budget, name, value)
    loop = Loop()
    dbg = NeuralDbg(loop.model, overhead=None)
    with dbg:
        capture = dbg._capture
        for loop.step in range(30):
            loop.train_step()
        assert capture.light.entered
        told, failed = capture.tell_light, 0

        def interrupted(**how: Any) -> None:
            nonlocal failed
            failed += 1
            if failed < 4:
                raise KeyboardInterrupt
            told(**how)

        monkeypatch.setattr(capture, "tell_light", interrupted)
        for loop.step in range(30, 60):
            with contextlib.suppress(KeyboardInterrupt):
                loop.train_step()
    assert failed > 4
    assert list(dbg.record().history.steps) == list(range(60))


@FORKS
def test_a_child_forked_while_the_writer_works_does_not_wait_for_it() -> None:
    loop = Loop()
    with NeuralDbg(loop.model, settings=TIGHT) as dbg:
        for loop.step in range(60):
            loop.train_step()
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with dbg._capture.delivery.lock:
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that hangs
            for loop.step in range(60, 100):
                loop.train_step()
            os._exit(0)
        done.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0


def test_tracing_a_model_in_mid_course_gives_no_warning_of_ours(recwarn: pytest.WarningsRecorder) -> None:
    loop = Loop()
    with NeuralDbg(loop.model, overhead=None) as dbg, pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEARNT", 12), ("FACTS", 3), ("OF", 64)):
            patch.setattr(overhead_budget, name, value)
        for loop.step in range(40):
            loop.train_step()
        assert dbg._capture.light.entered
        torch.jit.trace(loop.model, torch.zeros(2, 6))
        torch.func.grad(lambda x: loop.model(x).sum())(torch.zeros(2, 6))
        loop.train_step()
    assert not [one for one in recwarn if issubclass(one.category, torch.jit.TracerWarning)]


def test_native_code_and_python_have_the_same_numbers() -> None:
    folder = Path(native_light_steps.__file__).parents[1]
    header = (folder / "kernel/light_step.h").read_text()
    said = dict(re.findall(r"#define (\w+) +([\d.]+)", header))
    assert float(said["LONGEST_S"]) == step_accounting.LONGEST_S == BACKLOG_S
    assert int(said["SOON"]) == step_accounting.MOST
    assert (float(said["FAR"]), float(said["KNOWN"])) == (usual_norm.FAR, usual_norm.KNOWN)
    for names in re.findall(r"enum \{ ([\w, ]+) \}", header):
        assert [getattr(native_light_steps, name) for name in names.split(", ")] == list(range(names.count(",") + 1))
