"""Stops on a dashboard, without a browser: the training and the dashboard's end of the connection in one process."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.control.page_link import PageAddress
from neuraldbg.dashboard.training_link import TrainingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "of this test"


class Page:
    """Asks as the page does: in a thread of its own, with a heartbeat, until it is closed."""

    def __init__(self, lease: float) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = PageAddress("127.0.0.1", listening.getsockname()[1], SECRET)
        self._listening = listening
        self.link = TrainingLink(listening, SECRET, lease)
        self.link.start()
        self._closed = threading.Event()
        self.told: list[dict[str, Any]] = []
        """The description of each stop."""

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        return self.link.ask({"do": do, **more})

    def open(self, *words: str) -> None:
        """Look again and again, and leave each stop by the next of some words, the last of them for ever."""
        thread = threading.Thread(target=self._look, args=(words,), daemon=True)
        thread.start()
        until(lambda: self.ask("look")["state"] == "running")
        self._thread = thread

    def _look(self, words: tuple[str, ...]) -> None:
        left = list(words)
        while not self._closed.is_set():
            state = self.ask("look")
            at = state.get("at")
            if at is not None and (not self.told or self.told[-1]["number"] != at["number"]):
                self.told.append(at)
                if left:
                    self.ask(left.pop(0) if len(left) > 1 else left[0], stop=at["number"])
            time.sleep(0.01)

    def leave_after(self, seconds: float) -> None:
        """Leave the first stop so long after it began."""
        until(lambda: self.told)
        time.sleep(seconds)
        self.ask("continue", stop=1)

    def close(self) -> None:
        self._closed.set()
        if hasattr(self, "_thread"):
            self._thread.join()

    @property
    def where(self) -> list[tuple[int, str]]:
        return [(at["step"], at["layer"]) for at in self.told]


def until(asked: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not asked():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def page(lease: float = 60.0) -> Iterator[Page]:
    made = Page(lease)
    try:
        yield made
    finally:
        made.close()
        made.link.close()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def train(model: nn.Module, steps: int, at: Callable[[int], Any] = lambda step: None) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        at(step)
        loss = model(torch.randn(5, 6)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def hooks_of(model: nn.Module) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


def test_words_lead_from_stop_to_stop_and_the_training_is_bitwise_the_same() -> None:
    bare = network()
    expected = train(bare, 8)
    state = torch.get_rng_state()
    model = network()
    with page() as seen, NeuralDbg(model, dashboard=seen.address) as dbg:
        seen.open("layer", "layer", "step", "continue")
        losses = train(model, 8, lambda step: step == 2 and seen.ask("pause"))
        run = dbg.record()
    assert seen.where == [(2, "0"), (2, "1"), (2, "2"), (3, "0")]
    assert losses == expected
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), bare.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert [at["loss_of"] for at in seen.told] == [1, 1, 1, 2]
    assert [float(at["loss"]) for at in seen.told] == pytest.approx([losses[1]] * 3 + [losses[2]], rel=1e-3)
    assert any("stopped on the dashboard 4 times" in note for note in run.info.coverage["notes"])


def test_numbers_of_a_stop_are_those_of_the_tensors() -> None:
    model, given = network(), []
    model[3].register_forward_hook(lambda module, args, output: given.append((args[0].detach(), output.detach())))
    with page() as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open("continue")
        train(model, 1)
        seen.ask("set", layer="3", moment="after_layer")
        train(model, 1)
    (at,) = seen.told
    cells = {one["name"]: one for one in at["tensors"]}
    for name, x in zip(("inputs", "output"), given[-1], strict=True):
        y = x.double()
        wanted = [y.mean(), y.std(correction=0), y.square().mean().sqrt(), y.min(), y.max(), y.norm()]
        assert cells[name]["cells"][:3] == [str(x.numel()), "0", str(int((x == 0).sum()))]
        assert [float(text) for text in cells[name]["cells"][3:]] == pytest.approx([float(w) for w in wanted], rel=2e-3)
        assert cells[name]["shape"] == [*x.shape]
    assert at["why"] == "breakpoint"
    assert any(line[1] == "train" and "model(torch.randn" in line[2] for line in at["lines"])


def test_without_a_request_there_is_no_hook_and_none_is_left_behind() -> None:
    model = network()
    with page() as seen, NeuralDbg(model, dashboard=seen.address) as dbg:
        seen.open("continue")
        train(model, 1)
        before, batch = hooks_of(model), dbg._capture.delivery.batch
        seen.ask("set", layer="1", moment="after_backward")
        assert hooks_of(model) > before
        train(model, 2)
        seen.ask("clear", layer="1", moment="after_backward")
        assert (hooks_of(model), dbg._capture.delivery.batch) == (before, batch)
        train(model, 2)
    assert seen.where == [(1, "1"), (2, "1")]
    assert hooks_of(model) == 0


@pytest.mark.budget
def test_light_steps_by_native_code_are_stopped_within_a_step_and_none_is_lost() -> None:
    model = network()
    settings = {"capture": {"allowance_s": 0.0}}
    with page() as seen, NeuralDbg(model, dashboard=seen.address, settings=settings) as dbg:
        seen.open("step", "continue")
        train(model, 400, lambda step: step == 333 and seen.ask("pause"))
        run = dbg.record()
    assert seen.where == [(333, "0"), (334, "0")]
    assert run.steps == 400
    assert run.info.coverage["cost"]["light_steps"] > 300


def test_the_time_of_a_stop_is_in_no_duration_and_no_overhead() -> None:
    model, began = network(), time.monotonic()
    with page() as seen, NeuralDbg(model, dashboard=seen.address) as dbg:
        seen.open()
        held = 2.0
        leaving = threading.Thread(target=seen.leave_after, args=(held,))
        leaving.start()
        train(model, 6, lambda step: step == 3 and seen.ask("pause"))
        run, took = dbg.record(), time.monotonic() - began
    leaving.join()
    assert took > held
    assert run.scalar("duration").values.max() < held
    assert run.scalar("duration").values.sum() < took - held
    assert run.scalar("overhead").values.sum() < took - held
    assert float(run.history.time[-1]) < took - held


def test_a_page_that_is_closed_lets_the_training_go_on(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    with page(lease=1.0) as seen, NeuralDbg(model, dashboard=seen.address) as dbg:
        seen.open()
        seen.ask("set", layer="0", moment="after_layer")
        until_stopped = threading.Thread(target=lambda: (until(lambda: seen.told), seen.close()))
        until_stopped.start()
        train(model, 4)
        until_stopped.join()
        run = dbg.record()
    said = "continued by itself at step 0, after layer '0' (Linear): no page of the dashboard was open"
    assert seen.where == [(0, "0")]
    assert any(said in note for note in run.info.coverage["notes"])
    assert said in caplog.text
    assert hooks_of(model) == 0


def test_a_breakpoint_of_a_page_that_is_gone_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    with page(lease=1.0) as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open()
        seen.ask("set", layer="0", moment="after_layer")
        seen.close()
        time.sleep(1.2)
        train(model, 2)
    assert seen.told == []
    assert "did not stop at step 0, after layer '0'" in caplog.text


def test_a_late_click_on_an_older_stop_does_nothing() -> None:
    model = network()
    with page() as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open("layer", "look")

        def late() -> None:
            until(lambda: len(seen.told) == 2)
            for do in ("continue", "step", "layer"):
                assert seen.ask(do, stop=1)["at"]["number"] == 2
            time.sleep(0.3)
            assert seen.ask("look")["at"]["number"] == 2
            seen.ask("continue", stop=2)

        clicks = threading.Thread(target=late)
        clicks.start()
        train(model, 3, lambda step: step == 1 and seen.ask("pause"))
        clicks.join()
    assert seen.where == [(1, "0"), (1, "1")]


def test_a_pause_within_the_backward_pass_stops_before_the_step() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with page() as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open("continue")
        loss = model(torch.randn(5, 6)).square().mean()
        seen.ask("pause")
        loss.backward()
        before = [x.clone() for x in model.parameters()]
        optimizer.step()
        (at,) = seen.told
    assert (at["step"], at["where"], at["tensors"]) == (0, "step 0, before step", [])
    assert float(at["loss"]) == pytest.approx(loss.item(), rel=1e-3)
    assert at["loss_of"] == 0
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_gradient_in_a_thread_of_autograds_is_shown_before_the_step() -> None:
    model = network()
    with page() as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open("continue")
        seen.ask("set", layer="0", moment="after_backward")
        thread = threading.Thread(target=train, args=(model, 2))  # as on a GPU, backward runs in no main thread
        thread.start()
        thread.join()
    assert [at["where"] for at in seen.told] == [
        f"step {step}, at the gradient of the output of layer '0' (Linear)" for step in (0, 1)
    ]
    assert seen.told[0]["tensors"][0]["name"] == "gradient of the output"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_a_time_limit_of_the_program_stands_still() -> None:
    class TimeLimitError(Exception):
        pass

    def over(number: int, frame: Any) -> None:
        raise TimeLimitError

    model, before = network(), signal.signal(signal.SIGALRM, over)
    try:
        with page() as seen, NeuralDbg(model, dashboard=seen.address):
            seen.open()
            train(model, 1)
            seen.ask("pause")
            leaving = threading.Thread(target=seen.leave_after, args=(4.0,))
            leaving.start()
            signal.setitimer(signal.ITIMER_REAL, 3.5)
            train(model, 1)
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
            leaving.join()
            with pytest.raises(TimeLimitError):
                time.sleep(10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_never_held() -> None:
    model = network()
    with page() as seen, NeuralDbg(model, dashboard=seen.address):
        seen.open("continue")
        train(model, 1)
        seen.ask("set", layer="0", moment="after_layer")
        child = os.fork()
        if child == 0:
            try:
                model(torch.randn(5, 6))
            finally:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert seen.told == []
        train(model, 1)
    assert seen.where == [(1, "0")]


def test_another_program_at_the_port_neither_stops_nor_delays_the_training() -> None:
    model = network()
    with page() as seen:
        for address in (seen.address._replace(secret="another secret"), PageAddress("127.0.0.1", 1, SECRET)):
            with NeuralDbg(model, dashboard=address) as dbg:
                train(model, 2, lambda _: seen.ask("pause"))
                assert dbg.record().steps == 2
                assert seen.ask("pause") == {"state": "waiting"}
        with NeuralDbg(model, dashboard=seen.address):
            seen.open("continue")
            train(model, 2, lambda _: seen.ask("pause"))
    assert seen.where == [(0, "0"), (1, "0")]
