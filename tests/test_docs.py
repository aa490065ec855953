"""The documents cannot drift: what they quote is compared with the code, and their code is run."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

import neuraldbg
from neuraldbg import NeuralDbg
from neuraldbg.cli import COMMANDS, main
from neuraldbg.cli.command import FAILED, OK, USAGE, VERDICT
from neuraldbg.explain.causes import CAUSES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "neuraldbg"
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "corpus" / "README.md"]


@pytest.fixture(scope="module")
def capture():
    """Return the script that writes the documents."""
    spec = importlib.util.spec_from_file_location("docs_capture", ROOT / "docs" / "capture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block(name):
    return re.search(rf"<!-- begin:{name} -->\n(.*?)\n<!-- end:{name} -->", README, re.DOTALL)[1]


def words(text):
    """Return a text as the help breaks it nowhere: it may break a line in a word that has a hyphen."""
    return re.sub(r"\s+", "", text)


# ---------------------------------------------------------------- generated parts


def test_generated_lists_are_those_of_the_code(capture):
    for path, text in capture.lists().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python docs/capture.py --lists"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_option_tables_are_what_help_says(command, capsys):
    assert main([command, "--help"]) == OK
    said = capsys.readouterr().out
    _, _, after = block("options").partition(f"| `neuraldbg {command} ")
    rows = [row for row in after.partition("\n| `neuraldbg ")[0].splitlines()[1:] if row.startswith("| | `")]
    listed = [re.fullmatch(r"\| \| `(.+?)` \| (.*) \|", row.replace("\\|", "\0")).groups() for row in rows]
    for spelled, text in listed:
        for part in (spelled, text):
            assert words(part.replace("\0", "|").replace("\\<", "<")) in words(said), part
    options = set(re.findall(r"^  (?:-\w, )?(--?[\w-]+)", said, re.MULTILINE)) - {"--help"}
    assert options == {re.search(r"(?:-\w, )?(--?[\w-]+)", spelled)[1] for spelled, _ in listed}


def test_every_command_is_documented():
    assert set(re.findall(r"^\| `neuraldbg (\w+) ", block("options"), re.MULTILINE)) == set(COMMANDS)
    for command in COMMANDS:
        assert f"neuraldbg {command}" in README.replace(block("options"), ""), "the table alone is no explanation"


def test_every_exit_status_is_documented():
    told = re.findall(r"^\| (\d) \|", README, re.MULTILINE)
    assert told == [str(status) for status in (OK, FAILED, USAGE, VERDICT)]


def test_every_cause_is_listed_and_no_other():
    known = {cause.id for cause in CAUSES}
    assert set(re.findall(r"\[`(\w+)`\]\(docs/causes\.md#\w+\)", block("causes"))) == known
    pages = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\w+)$", pages, re.MULTILINE)) == known


@pytest.mark.parametrize(("name", "cause"), [("doomed", "lr_too_high"), ("softmax", "double_softmax")])
def test_quoted_runs_are_of_examples_that_exist(name, cause):
    command, *output = block(name).removeprefix("```console\n").splitlines()
    script = re.match(r"\$ neuraldbg run .*(examples/\w+\.py)", command)[1]
    assert (ROOT / script).is_file()
    assert any(line.startswith(f"1. {cause}") for line in output)
    assert (ROOT / "docs" / "crash.png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- code that readers will copy


def test_the_python_of_the_readme_runs(capture, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = capture.python_blocks(README)
    assert len(blocks) >= 5
    names: dict[str, object] = {"__name__": "readme"}
    for number, code in enumerate(blocks):
        exec(compile(code, f"README.md, Python block {number + 1}", "exec"), names)
        if number == 0:
            first = names["dbg"].explain_failure()[0]
            said = capsys.readouterr().out
            assert first.cause == "missing_zero_grad"
            assert first.remedy.text in said
            assert first.remedy.text in block("quick")
            assert first.sentence in block("quick"), "python docs/capture.py"
    assert names["diagnosis"].verdict == "failing"
    assert names["chain"]
    assert (tmp_path / "runs" / "one" / "rank0.ndbg").is_file()
    assert (tmp_path / "crash_dump.json").is_file()


def test_the_settings_of_the_detectors_page_are_accepted(capture):
    (code,) = capture.python_blocks((ROOT / "docs" / "detectors.md").read_text(encoding="utf-8"))
    names: dict[str, object] = {"model": torch.nn.Linear(2, 1)}
    exec(compile(code, "docs/detectors.md", "exec"), names)
    assert isinstance(names["dbg"], NeuralDbg)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_settings_that_are_named_exist(path):
    for text in re.findall(r'settings=(\{"\w+": \{"\w+": [^{}]+?\}\})', path.read_text(encoding="utf-8")):
        if "..." not in text:
            NeuralDbg(torch.nn.Linear(2, 1), settings=eval(text))


# ---------------------------------------------------------------- names and places


def test_every_public_name_is_documented():
    told = README + ARCHITECTURE
    assert [name for name in neuraldbg.__all__ if not re.search(rf"\b{name}\b", told)] == []


def test_every_question_is_in_the_changelog():
    plumbing = {"start", "stop", "record", "folder", "file", "problem", "remark", "busy", "steps"}
    public = {name for name in vars(NeuralDbg) if not name.startswith("_")} - plumbing
    assert [name for name in sorted(public) if f"`{name}`" not in CHANGELOG] == []


def test_every_part_of_the_house_is_drawn():
    parts = {p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()} - {"__main__.py"}
    house = re.search(r"```\nsrc/neuraldbg/\n(.*?)```", ARCHITECTURE, re.DOTALL)[1]
    assert set(re.findall(r"^  ([\w.]+)", house, re.MULTILINE)) == parts


def test_every_file_of_capture_is_told():
    files = {p.name for p in (PACKAGE / "capture").glob("*.py")} - {"__init__.py"}
    assert [name for name in sorted(files) if f"`{name}`" not in ARCHITECTURE] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_the_make_commands_that_readers_are_told_exist():
    told = set(re.findall(r"\bmake (\w+)(?=`|  )", README))
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test", "bench"} <= told <= made


def test_the_version_is_that_of_the_project():
    if sys.version_info < (3, 11):
        pytest.skip("tomllib came with Python 3.11")
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(rf"^## {re.escape(version)}\b", CHANGELOG, re.MULTILINE)
