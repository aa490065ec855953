"""The shape of the house: who may import whom, what is free of torch, and habits that can be checked by reading."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "neuraldbg"
LANGUAGE = SOURCE / "neural"
SOURCES = sorted(path for package in (PACKAGE, LANGUAGE) for path in package.rglob("*.py"))
TORCH_ROOMS = {
    "capture",
    "replay",
    "profile",
    "integrations",
    "session",
    "session.py",
    "session_alerts.py",
    "session_hooks.py",
    "session_profile.py",
    "session_controls.py",
    "session_dashboard.py",
    "session_stops.py",
}
"""Where torch is imported, or where those that import it are wired together."""
TESTS = ROOT / "tests"
PROGRAMS = (
    "faults/injectors/", "faults/programs/", "faults/scripts/", "guest/killed/", "guest/programs/", "guest/ranks/",
)  # fmt: skip
"""Folders of programs that tests run: no modules of tests."""
APART = {".", "end_to_end", "faults", "faults/late", "guest", "ranks", "session", "typing"}
"""Folders of tests that are about no one folder of the package."""


def name(path):
    return path.relative_to(SOURCE).as_posix()


def dotted(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_arrows_of_the_design_hold():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def imported(path):
    """Return the modules of ours that a file imports anywhere: at its top, in a function, and for types alone."""
    known = {dotted(each) for each in SOURCES}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neural"):
            each = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in known else node.module for one in each}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("neural")}
    return found


def floors():
    """Return the rooms of capture as the design has them, and the floor of each: 0 is the ground."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [each["layers"] for each in contracts if each["id"] == "rooms"]
    return {
        room.strip("() "): floor for floor, layer in enumerate(reversed(layers)) for room in re.split(r"[|:]", layer)
    }


@pytest.mark.parametrize("path", sorted((PACKAGE / "capture").rglob("*.py")), ids=name)
def test_no_room_of_capture_knows_one_above_it_not_even_for_types(path):
    floor = floors()
    own = dotted(path).removeprefix("neuraldbg.capture").strip(".").partition(".")[0]
    rooms = {m.split(".")[2] for m in imported(path) if m.startswith("neuraldbg.capture.")}
    assert {room for room in rooms if own and floor[room] > floor[own]} == set()


def circle(graph):
    """Return the files of one circle of imports, the first again at its end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle_not_even_for_types():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle({dotted(path): imported(path) - {dotted(path)} for path in SOURCES}) == []


def test_all_that_is_no_capture_runs_without_torch():
    """Not only as written: importing every such module must not bring torch in by any way."""
    # Read as text, and part of the models that are written.
    copied = {LANGUAGE / room / "modules" for room in ("pytorch", "keras_code")}
    modules = [
        dotted(p)
        for p in SOURCES
        if not copied & set(p.parents) and (LANGUAGE in p.parents or p.relative_to(PACKAGE).parts[0] not in TORCH_ROOMS)
    ]
    modules = [module for module in modules if not module.endswith("__main__")]
    code = (
        "import importlib, sys\n"
        f"for module in {modules!r}:\n"
        "    importlib.import_module(module)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{module} imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["torch._dynamo", "pdb", "urllib.request", "torch.autograd.profiler"])
def test_a_session_does_not_bring_what_few_programs_need(module):
    """Dynamo takes several times as long to import as all of ours. Most programs compile nothing, stop nowhere, send
    nothing, and ask for no profile.
    """
    code = (
        "import sys, torch; before = set(sys.modules); from neuraldbg import NeuralDbg\n"
        f"sys.exit({module!r} in set(sys.modules) - before)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_each_file_says_first_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "a module starts with its docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_each_file_can_be_read_in_one_sitting(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500, "about 200 lines a file; a seam follows the sense"
    assert path.stem not in {"utils", "util", "helpers", "misc", "common"}, "name it after what it holds"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_each_function_can_be_seen_at_once(path):
    """40 lines are wanted; nothing is longer than a screen."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = [node for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    assert [node.name for node in functions if node.end_lineno - node.lineno >= 60] == []


def modules_of_the_tests():
    """Return the paths below ``tests``, without programs that tests run."""
    paths = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))
    return [path for path in paths if not path.as_posix().startswith(PROGRAMS)]


def test_no_two_modules_of_the_tests_share_a_name():
    counts = Counter(path.stem for path in modules_of_the_tests() if path.stem not in {"conftest", "__main__"})
    assert len(counts) > 100
    assert [stem for stem, count in counts.items() if count > 1] == []


def test_each_folder_of_the_tests_mirrors_a_folder_of_the_package():
    folders = {path.parent.as_posix() for path in modules_of_the_tests()}
    assert folders >= APART
    homes = {folder: SOURCE if folder.partition("/")[0] == "neural" else PACKAGE for folder in folders - APART}
    assert [folder for folder, home in sorted(homes.items()) if not (home / folder).is_dir()] == []


def test_nothing_of_one_machine_is_written_down():
    """No folder of the machine that it was written on, and no host to install from."""
    own = Path(__file__).resolve()
    written = [p for p in ROOT.glob("*") if p.is_file() and p.name != ".git"]
    for folder in (".ci", "src", "tests", "corpus", "examples", "benchmarks", "docs"):
        written += [p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    marks = ("/" + "root/", "/" + "home/", "file:" + "//", "--index" + "-url", "--find" + "-links")
    for path in written:
        if path == own or path.suffix in {".png", ".ndbg", ".so"}:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not [mark for mark in marks if mark in text], path.relative_to(ROOT)


def test_everything_that_is_installed_for_the_tests_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + [
        one for name in ("plot", "dashboard", "export", "neural", "dev") for one in extras[name]
    ]
    asked = {re.match(r"[\w.-]+", line).group().lower().replace("_", "-") for line in asked} - {"neuraldbg"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if line and not line.startswith("#"))
    assert asked <= set(pins), "make pins"
    assert not [pin for pin in pins.values() if "+" in pin], "a pin names a version, not one machine's build of it"


def test_the_commands_that_contributors_are_told_exist():
    told = set(re.findall(r"`make (\w+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= told <= made
