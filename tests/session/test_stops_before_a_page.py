"""``debug --dashboard`` before a page is open: a stop that was asked for once is made up for, or is in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tests.session.test_page_stops import page
from torch import nn

from neuraldbg import NeuralDbg, session_stops
from neuraldbg.debugger.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from neuraldbg.debugger.stop import Stop


def train(steps: int, address: object, at: Callable[[int], object] = lambda _: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, dashboard=address) as dbg:
        dbg.add_breakpoint()
        for step in range(steps):
            at(step)
            optimizer.zero_grad()
            model(torch.randn(4, 4)).pow(2).mean().backward()
            optimizer.step()


def test_the_stop_before_the_first_layer_is_made_up_for_when_a_page_is_open(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_stops, "entry", lambda: Entry("there is no terminal"))
    with page() as seen:
        train(6, seen.address, lambda step: step == 3 and seen.open("continue"))
    assert seen.where == [(3, "0")]
    told = [one.getMessage() for one in caplog.records if "does not stop" in one.getMessage()]
    assert len(told) == 1
    assert "step 0, before layer '0' (Linear): no page of the dashboard is open, and there is no terminal" in told[0]
    assert "(it stops once a page is open)" in told[0]


def test_a_stop_in_the_terminal_before_a_page_is_open_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    remarks: list[str] = []

    def stop(at: Stop, way: Entry) -> str:
        assert "step 0, before layer '0'" in at.title
        remarks.append(way.remark)
        return ""

    monkeypatch.setattr(session_stops, "entry", Entry)
    monkeypatch.setattr(session_stops, "stop", stop)
    with page() as seen:
        train(2, seen.address)
    assert len(remarks) == 1
    assert "Open the page, then `continue`" in remarks[0]
