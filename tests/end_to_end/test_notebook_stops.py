"""A stop in a notebook: a real kernel of Jupyter, with and without somebody who can answer it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel
from tests.end_to_end.test_debug import TRAIN, bare, losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from jupyter_client.blocking import BlockingKernelClient

WAIT_S = 120.0
INTERRUPT = "interrupt the kernel"
START = """
from neuraldbg import NeuralDbg
dbg = NeuralDbg(model, out="run")
dbg.start()
dbg.add_breakpoint(layers="fc2")
"""
SCRIPT = TRAIN.replace("{inner}", "h")
CELL = SCRIPT.replace("for _ in range(6):", f"{START}for _ in range(6):") + "dbg.stop()\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingKernelClient]:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    manager, client = start_new_kernel(
        startup_timeout=WAIT_S, cwd=str(tmp_path), env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


class Cell:
    """One executed cell: its output, what it asked, and the kernel's reply."""

    def __init__(self, client: BlockingKernelClient, code: str, answers: Sequence[str] | None) -> None:
        """Execute a cell and give ``answers`` to its requests for input, in order; None if nobody answers."""
        self.text, self.errors = "", ""
        self.asked: list[str] = []
        self._left, self._client = list(answers or []), client
        self.reply = client.execute_interactive(
            code, allow_stdin=answers is not None, output_hook=self._output, stdin_hook=self._input, timeout=WAIT_S
        )["content"]

    def _output(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            self.text += content["text"]
            self.errors += content["text"] if content["name"] == "stderr" else ""

    def _input(self, message: dict[str, Any]) -> None:
        self.asked.append(message["content"]["prompt"])
        answer = self._left.pop(0)
        if answer is INTERRUPT:
            self._client.parent.interrupt_kernel()
        else:
            self._client.input(answer)


def test_a_cell_stops_and_its_prompt_is_that_of_the_notebook(kernel: BlockingKernelClient, tmp_path: Path) -> None:
    answers = ["stats", "layers", "where", "p layer.out_features, step", "next", "continue until fc2"]
    cell = Cell(kernel, CELL, [*answers, *["continue"] * 5])
    assert cell.reply["status"] == "ok", cell.reply
    assert set(cell.asked) == {"(neuraldbg) "}
    assert len(cell.asked) == len(answers) + 5
    for words in (
        "NeuralDBG stops: step 0, after layer 'fc2' (Linear) (breakpoint fc2)\noutput: 20 values, 0 NaN or infinite",
        "> fc2   Linear",
        "in forward\n    return self.fc2(h)",
        "(4, 0)",
        "step 1, before layer 'fc1' (Linear) (next)\ngoes on until layer fc2",
        "step 5, after layer 'fc2'",
    ):
        assert words in cell.text
    assert losses(cell.text) == bare(tmp_path)


@pytest.mark.long
def test_an_interrupt_of_the_kernel_leaves_the_prompt_and_the_cell(kernel: BlockingKernelClient) -> None:
    cell = Cell(kernel, CELL, [INTERRUPT])
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "KeyboardInterrupt")
    assert Cell(kernel, "dbg.stop(); print(dbg.steps)", None).text.strip() == "0"


@pytest.mark.long
def test_where_no_input_is_taken_a_cell_goes_on_and_says_so(kernel: BlockingKernelClient, tmp_path: Path) -> None:
    cell = Cell(kernel, CELL, None)
    assert cell.reply["status"] == "ok", cell.reply
    assert losses(cell.text) == bare(tmp_path)
    assert "does not stop at step 0, after layer 'fc2' (Linear): this notebook takes no input" in cell.errors
    rows = [json.loads(line) for line in (tmp_path / "run" / "stops.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows] == [*range(6)]
    assert all(row["statistics"]["output"]["total"] == 20 for row in rows)
