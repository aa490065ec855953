"""A stop inside an IDE: its debugger, with a real client of the debug adapter protocol, holds at the user's line."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest
from tests.end_to_end.debug_adapter import Ide
from tests.end_to_end.test_debug import TRAIN, arguments, bare, losses

import neuraldbg
from neuraldbg.debugger.stop import NAMES

LIBRARIES = os.pathsep.join(
    map(str, (Path(neuraldbg.__file__).parents[1], Path(pytest.__file__).parents[1], sysconfig.get_path("stdlib")))
)
"""Folders that an IDE takes for installed packages: ours, too, as where it was installed by pip."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN.replace("{inner}", "h"), encoding="utf-8")
    return tmp_path


@pytest.mark.long
def test_the_variables_of_a_stop_stand_above_the_users_own_frames(folder: Path) -> None:
    expected = bare(folder)
    with Ide(folder, *arguments("--breakpoint", "fc2", "train.py"), LIBRARY_ROOTS=LIBRARIES) as ide:
        for step in range(6):
            thread, frames = ide.stopped()
            assert [(one["name"], Path(one["source"]["path"]).name, one["line"]) for one in frames] == [
                (f"<NeuralDBG: step {step}, after layer 'fc2'>", "train.py", 14),
                ("forward", "train.py", 14),
                ("<module>", "train.py", 21),
            ]
            seen = ide.variables(frames[0])
            assert set(seen) == set(NAMES)
            assert seen["step"]["value"] == str(step)
            assert seen["layer_name"]["value"] == "'fc2'"
            parts = {one["name"]: one["value"] for one in ide.inside(seen["output"])}
            assert parts["shape"] == "torch.Size([5, 4])"
            assert parts["dtype"] == "torch.float32"
            assert ide.variables(frames[1])["h"]["type"] == "Tensor"
            again = ide.value(frames[0], "nn.functional.linear(inputs[0], layer.weight, layer.bias).equal(output)")
            assert again == "True"
            if step:
                assert float(seen["loss"]["value"]) == pytest.approx(float(expected[step - 1]))
                assert seen["optimizer"]["type"] == "SGD"
            ide.goes_on(thread)
        status, text = ide.ended()
    assert status == 0
    assert losses(text) == expected
    assert "by hand" not in (folder / "run" / "diagnosis.json").read_text(encoding="utf-8")


def test_a_session_of_the_script_stops_in_the_ide_and_goes_on_without_it(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    start = "from neuraldbg import NeuralDbg\ndbg = NeuralDbg(model, out='run')\ndbg.start()\n"
    start += "".join(f"dbg.add_breakpoint(layers='fc1', step={step})\n" for step in (1, 4))
    text = text.replace("for _ in range(6):", start + "for _ in range(6):") + "dbg.stop()\n"
    (folder / "own.py").write_text(text, encoding="utf-8")
    with Ide(folder, "own.py") as ide:
        _, frames = ide.stopped()
        assert ide.variables(frames[0])["step"]["value"] == "1"
        ide.ask("disconnect", terminateDebuggee=False)
        assert ide.process.wait(120) == 0
        said = ide.output.read_text(encoding="utf-8")
    assert losses(said) == bare(folder)
    assert "does not stop at step 4, after layer 'fc1' (Linear): there is no terminal" in said
    (row,) = map(json.loads, (folder / "run" / "stops.jsonl").read_text(encoding="utf-8").splitlines())
    assert (row["step"], row["layer"]) == (4, "fc1")
