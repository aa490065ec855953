"""A working directory that is deleted, and Ctrl-C while torch or this package is imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.families import some

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.place import Place

TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(3, 4)).square().mean()
    loss.backward()
    optimizer.step()
print(repr(loss.item()))
"""
DELETED = "import os, shutil; shutil.rmtree(os.getcwd())"


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for whatever must outlive the program's own."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.long
def test_a_working_directory_that_is_deleted_in_the_run(place: Place, scratch: Path) -> None:
    train = scratch / "train.py"
    train.write_text(TRAIN.format(before=DELETED))
    bare = place.python(str(train))
    place.path.mkdir()
    watched = place.run("--json", str(scratch / "told.json"), str(train))
    assert (watched.status, watched.out) == (bare.status, bare.out) != (1, "")
    assert "the run was not saved" in watched.err
    assert "Only 5 steps of training" in watched.err
    assert json.loads((scratch / "told.json").read_text())["run"]["steps"] == 5


def test_a_working_directory_that_was_deleted_before(place: Place, scratch: Path) -> None:
    """torch itself does not load there (oneMKL ends the process), so this is of programs without it."""
    (scratch / "count.py").write_text("import sys\nprint(__file__, sys.path[0])\n")
    (scratch / "named.py").write_text("print(__name__)\n")
    code = f"import os, sys\n{DELETED}\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    env = {"PYTHONPATH": f"{place.env()['PYTHONPATH']}:{scratch}"}
    for program in ([str(scratch / "count.py")], ["-m", "named"]):
        place.path.mkdir(exist_ok=True)
        bare = place.python("-c", code, *program, **env)
        place.path.mkdir(exist_ok=True)
        watched = place.python("-c", code, "-m", "neuraldbg", "run", *program, **env)
        assert (watched.status, watched.out) == (0, bare.out)
        assert watched.err == "neuraldbg: the working directory was deleted: nothing was recorded\n"
    for command in (["report", "x"], ["plot", "x"], ["run", "train.py"], ["run", "-m", "nothing_of_this_name"]):
        place.path.mkdir(exist_ok=True)
        done = place.python("-c", code, "-m", "neuraldbg", *command)
        assert done.status == 2
        assert "Traceback" not in done.err


def interrupt(module: str, where: str) -> str:
    """Return a program that presses Ctrl-C while a module is imported."""
    return f"""
import _thread, importlib.abc, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {where!r}:
            sys.meta_path.remove(self)
            _thread.interrupt_main()

sys.meta_path.insert(0, Interrupting())
try:
    import {module}
except KeyboardInterrupt:
    print("interrupted in the import")
    if "on" not in sys.argv:
        raise
try:
    for _ in range(10_000_000):
        pass
except KeyboardInterrupt:
    print("interrupted after it", {module}.__name__)
    if "on" not in sys.argv:
        raise
"""


def test_ctrl_c_while_torch_is_imported(place: Place) -> None:
    place.write("train.py", interrupt("torch", "torch.nn.functional"))
    bare, watched = place.python("train.py"), place.run("train.py")
    assert (watched.status, watched.out) == (bare.status, bare.out) == (-2, "interrupted in the import\n")
    assert "KeyboardInterrupt" in watched.err
    assert watched.err.endswith("neuraldbg: the import of torch did not finish: nothing was recorded\n")


@pytest.mark.parametrize(
    "where", some(["neuraldbg.session", "neuraldbg.capture.loop.backward", "neuraldbg.record.store"], 3)
)
def test_ctrl_c_while_we_are_imported(place: Place, where: str) -> None:
    """The program's import of torch is done by then, and must not fail: what is pressed comes right after it."""
    place.write("train.py", interrupt("torch", where) + TRAIN.format(before=""))
    watched = place.run("train.py", "on")
    assert watched.status == 0, watched.err
    assert watched.out.startswith("interrupted after it torch\n")
    assert watched.err == "neuraldbg: watching was interrupted as it began: nothing was recorded\n"
    ended = place.run("train.py")
    assert (ended.status, ended.out) == (-2, "interrupted after it torch\n")
    assert "Traceback" in ended.err
    assert ended.err.endswith("neuraldbg: watching was interrupted as it began: nothing was recorded\n")


@pytest.mark.long
def test_ctrl_c_while_the_diagnosis_is_imported(place: Place) -> None:
    """The program is over by then: its run is saved, and its ending stays its own."""
    place.write("train.py", interrupt("torch", "neuraldbg.explain") + TRAIN.format(before=""))
    watched = place.run("train.py", "on")
    assert watched.status == 0, watched.err
    assert watched.err.startswith("neuraldbg: the diagnosis was interrupted; `neuraldbg explain ")
    assert (watched.run / "rank0.ndbg").exists()
