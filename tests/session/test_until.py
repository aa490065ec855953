"""``continue until``, answered by a script in place of a person: it stops once, and not at what it has just shown."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, session_stops
from neuraldbg.debugger.entry import NOT_MAIN, Entry
from neuraldbg.errors import ConfigError
from neuraldbg.session_dashboard import left_out_of_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.debugger.stop import Stop

LOST = (3, 8)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Stop], None]], list[str]]:
    """Return a function that has all stops answered by another, and returns the list of their titles."""

    def answer(person: Callable[[Stop], None]) -> list[str]:
        titles: list[str] = []

        def stop(at: Stop, _: Entry) -> str:
            titles.append(at.title)
            person(at)
            return ""

        def entry(*, later: bool = False) -> Entry:
            main = threading.current_thread() is threading.main_thread()
            return Entry("" if later or main else NOT_MAIN)

        monkeypatch.setattr(session_stops, "entry", entry)
        monkeypatch.setattr(session_stops, "stop", stop)
        return titles

    return answer


def train(model: nn.Module, steps: int) -> None:
    """Train, with a loss that is NaN at the steps LOST, and gradients of zero."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 4, (16,)))
        if step in LOST:
            loss = loss * 0 + float("nan")
        loss.backward()
        optimizer.step()


def net(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), *more)


def test_until_an_event_at_a_stop_of_that_event_waits_for_the_next(answered: Callable) -> None:
    def person(at: Stop) -> None:
        assert at.controls.stop_at("nonfinite_loss") == "nonfinite_loss"

    titles = answered(person)
    model = net()
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint("nonfinite_loss")
        train(model, 12)
    assert [title.partition(",")[0] for title in titles] == ["step 3", "step 8"]


def test_until_stops_once(answered: Callable) -> None:
    titles = answered(lambda at: at.controls.stop_at("nonfinite_loss") if "layer" in at.title else None)
    model = net()
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint(layers="0", step=1)
        train(model, 12)
    assert [title.partition(",")[0] for title in titles] == ["step 1", "step 3"]


def test_until_is_spent_by_a_stop_before_it(answered: Callable) -> None:
    titles = answered(lambda at: at.controls.stop_at("nonfinite_loss") if "step 1," in at.title else None)
    model = net()
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint(layers="0", step=1)
        dbg.add_breakpoint(layers="0", step=2)
        train(model, 12)
    assert [title.partition(",")[0] for title in titles] == ["step 1", "step 2"]


def test_until_a_cause_that_is_credible_already_is_refused(answered: Callable) -> None:
    def person(at: Stop) -> None:
        with pytest.raises(ConfigError, match="double_softmax is credible already"):
            at.controls.stop_at("double_softmax")

    titles = answered(person)
    model = net(nn.Softmax(-1))
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint("double_softmax")
        train(model, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(9):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 4, (16,))).backward()
            optimizer.step()
    assert len(titles) == 1


def test_the_time_of_a_stop_as_a_step_is_delivered_is_no_overhead() -> None:
    model = net()
    with NeuralDbg(model) as dbg:

        def waits(step: int, loss: float | None) -> None:
            del loss
            if step == 2:
                with left_out_of_time(dbg._capture):  # as a prompt does
                    time.sleep(3)

        dbg.register_hook("after_step", waits)
        train(model, 6)
    assert dbg.record().info.coverage["cost"]["own_s"] < 2


def test_a_gradient_that_another_thread_has_seen_stops_the_main_thread(answered: Callable) -> None:
    """As on a GPU, where autograd has a thread of its own."""
    seen: list[tuple[bool, torch.Tensor]] = []
    titles = answered(
        lambda at: seen.append((threading.current_thread() is threading.main_thread(), at.names["grad"].clone()))
    )
    expected = []
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint(layers=("0", "2"), backward=True, step=1)
        for step in range(4):
            optimizer.zero_grad()
            out = model(torch.randn(16, 8))
            out.retain_grad()
            thread = threading.Thread(target=F.cross_entropy(out, torch.randint(0, 4, (16,))).backward)
            thread.start()
            thread.join()
            expected += [out.grad.clone()] if step == 1 else []
            optimizer.step()
    assert titles == ["step 1, at the gradient of the output of layer '2' (Linear) (breakpoint 0, 2)"]
    assert seen[0][0]
    assert torch.equal(seen[0][1], expected[0])
