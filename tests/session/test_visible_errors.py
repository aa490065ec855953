"""An error of our own is said where the diagnosis is read: terminal, report, JSON; such a run is not called healthy."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.capture.layers.layer_hook import Probe
from neuraldbg.capture.loop.backward import Losses
from neuraldbg.capture.parameters.parameters import Params
from neuraldbg.capture.readers.data import batches
from neuraldbg.capture.readers.loop import loop_order
from neuraldbg.show.report.write import report
from neuraldbg.show.terminal.diagnosis import print_diagnosis

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis

STEPS = 60


def broken(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError


def train() -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(256, 4)
    y = x.sum(1, keepdim=True).sin()
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            rows = slice(step % 8 * 32, step % 8 * 32 + 32)
            optimizer.zero_grad()
            F.mse_loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return dbg


def screen(diagnosis: Diagnosis, *, verbose: bool = False) -> str:
    out = io.StringIO()
    print_diagnosis(diagnosis, Console(file=out, width=200), verbose=verbose)
    return " ".join(out.getvalue().split())


def test_without_an_error_the_run_is_healthy_and_nothing_is_said_of_one() -> None:
    diagnosis = train().diagnose()
    assert diagnosis.verdict == "healthy", diagnosis.summary
    assert "may be incomplete" not in screen(diagnosis)


@pytest.mark.parametrize(
    ("owner", "name", "doing"),
    [
        (Params, "read_before", "reading parameters and gradients"),
        (Losses, "read_graph", "reading losses and facts"),
        (Probe, "read_units", "reading layers"),
        (loop_order.LoopOrder, "call_begins", "reading loop order"),
        (batches.Batches, "call_begins", "reading batches"),
    ],
)
def test_an_error_is_said_on_the_screen_in_the_report_and_in_the_json(
    owner: type, name: str, doing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    monkeypatch.setattr(owner, name, broken)
    dbg = train()
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "inconclusive", diagnosis.summary
    times = diagnosis.run["coverage"]["failed"][doing]
    failed = f"failed {times} time{'s' if times > 1 else ''}"
    assert times >= 1
    assert f"{doing} {failed}" in diagnosis.summary
    assert f"{doing} {failed}" in screen(diagnosis)
    assert f"Not judged: {doing}" in screen(diagnosis)
    assert f"{doing}: {failed}; the result may be incomplete" in screen(diagnosis, verbose=True)
    assert failed in report(dbg.record(), diagnosis, "md", {})
