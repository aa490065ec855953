"""The documents cannot drift: what they quote is compared with the code, and their code is run."""

from __future__ import annotations

import doctest
import functools
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from tests.browser import visiting

import neuraldbg
from neuraldbg import NeuralDbg
from neuraldbg.cli import COMMANDS, main
from neuraldbg.cli.command import FAILED, OK, USAGE, VERDICT
from neuraldbg.control.registered_hooks import registered
from neuraldbg.explain.causes import CAUSES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "neuraldbg"
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
GUIDED = {
    "cnn": "eval_mode_left_on",
    "gan": "detached_graph",
    "neural-cnn": "double_softmax",
    "neural-gan": "detached_graph",
    "neural-rnn": "lr_too_high",
    "neural-transformer": "dropout_too_high",
    "rnn": "batch_axis_mixup",
}
"""The guides, with the cause that each is about."""
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *GUIDES, ROOT / "corpus" / "README.md"]
LONGEST_README = 200


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(DOCS))  # as for a script there: they import each other
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


API = loaded("api_page")


@pytest.fixture(scope="module")
def capture():
    """Return the script that writes the documents."""
    return loaded("capture")


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def block(name, text=README):
    return re.search(rf"<!-- begin:{name} -->\n(.*?)\n<!-- end:{name} -->", text, re.DOTALL)[1]


OPTIONS = page("options.md")


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
    _, _, after = block("options", OPTIONS).partition(f"### neuraldbg {command}\n")
    rows = [row for row in after.partition("\n### ")[0].splitlines() if row.startswith("| `")]
    listed = [re.fullmatch(r"\| `(.+?)` \| (.*) \|", row.replace("\\|", "\0")).groups() for row in rows]
    for spelled, text in listed:
        for part in (spelled, text):
            assert words(part.replace("\0", "|").replace("&lt;", "<")) in words(said), part
    options = set(re.findall(r"^  (?:-\w, )?(--?[\w-]+)", said, re.MULTILINE)) - {"--help"}
    assert options == {re.search(r"(?:-\w, )?(--?[\w-]+)", spelled)[1] for spelled, _ in listed}


def test_every_command_is_documented():
    assert set(re.findall(r"^### neuraldbg (\S+)$", block("options", OPTIONS), re.MULTILINE)) == set(COMMANDS)
    for command in COMMANDS:
        assert f"neuraldbg {command}" in page("script.md"), "the table alone is no explanation"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_page_quotes_an_error_of_our_own(path):
    assert "error in NeuralDBG" not in path.read_text(encoding="utf-8")


def test_every_exit_status_is_documented():
    told = re.findall(r"^\| (\d) \|", OPTIONS, re.MULTILINE)
    assert told == [str(status) for status in (OK, FAILED, USAGE, VERDICT)]


def test_every_cause_is_listed_and_no_other():
    known = {cause.id for cause in CAUSES}
    assert set(re.findall(r"\[`(\w+)`\]\(#\w+\)", page("causes.md"))) == known
    assert set(re.findall(r'^<a id="(\w+)"></a>$', page("causes.md"), re.MULTILINE)) == known
    assert set(re.findall(r"^### .+ · `(\w+)`$", page("causes.md"), re.MULTILINE)) == known


@pytest.mark.parametrize(
    ("name", "told"),
    [("doomed", r" · lr_too_high\b"), ("softmax", r" · double_softmax\b"), ("healthy", "HEALTHY")],
)
def test_quoted_runs_are_of_examples_that_exist(name, told):
    command, *output = block(name, page("script.md")).removeprefix("```console\n").splitlines()
    script = re.match(r"\$ neuraldbg run .*(examples/\w+\.py)", command)[1]
    assert (ROOT / script).is_file()
    assert any(re.search(told, line) for line in output)
    assert (DOCS / "crash.png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- the README


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= LONGEST_README
    limits = README.partition("## Limits\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^- ", limits, re.MULTILINE)) <= 10


@pytest.mark.parametrize("name", ["doomed", "healthy"])
def test_its_examples_are_parts_of_whole_ones(capture, name):
    whole = block(name, page("script.md"))
    quoted = block(name)
    assert quoted == capture.shortened(whole, capture.MOST_LINES[name], "docs/script.md"), "python docs/capture.py"
    assert len(quoted.splitlines()) <= capture.MOST_LINES[name]


def test_a_session_is_shortened_at_the_script_first_and_says_so(capture):
    printed = [f"epoch {number}" for number in range(9)]
    told = ["", "✗ FAILING ────", "The loss rose.", "", "1. cause", "   + evidence", "", "Saved in runs/x"]
    whole = "\n".join(("```console", "$ neuraldbg run x.py", *printed, *told, "```"))
    assert capture.shortened(whole, 30, "p.md") == whole
    some = "\n".join(
        ("```console", "$ neuraldbg run x.py", "epoch 0", "[... 7 lines of the script]", "epoch 8", *told, "```")
    )
    assert capture.shortened(whole, 14, "p.md") == some
    few = capture.shortened(whole, 12, "p.md").splitlines()
    assert few[-3:] == ["The loss rose.", "[... 5 more lines: p.md]", "```"]


# ---------------------------------------------------------------- code that readers will copy


def run_blocks(capture, name, text):
    """Run the Python of a document, block after block, as a reader would; return its names."""
    names: dict[str, object] = {"__name__": "document"}
    for number, code in enumerate(capture.python_blocks(text)):
        exec(compile(code, f"{name}, Python block {number + 1}", "exec"), names)
    return names


def test_the_python_of_the_readme_runs(capture, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(capture.python_blocks(README)) == 2, "one for each quick start that has Python"
    names = run_blocks(capture, "README.md", README)
    first = names["dbg"].explain_failure()[0]
    said = capsys.readouterr().out
    assert first.cause == "missing_zero_grad"
    for quoted in (first.remedy.text, first.sentence):
        assert quoted in said
        assert quoted in block("quick"), "python docs/capture.py"
    assert "failing ['missing_zero_grad'" in said, "the saved run gives the same diagnosis"
    assert "missing_zero_grad" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_python_of_the_page_on_python_runs(capture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(capture.python_blocks(page("python.md"))) >= 6
    names = run_blocks(capture, "docs/python.md", page("python.md"))
    assert names["diagnosis"].verdict == "failing"
    assert names["chain"]
    assert (tmp_path / "runs" / "one" / "rank0.ndbg").is_file()
    assert (tmp_path / "crash_dump.json").is_file()


def test_the_python_of_the_page_on_hooks_runs(capture, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        run_blocks(capture, "docs/hooks.md", page("hooks.md"))
    finally:
        for hook in registered():
            hook.remove()
    told = capsys.readouterr().out
    assert "1 is zero for" in told
    assert "<Hook 'look': after_layer of 1, " in told
    assert "0 0 (32, 64)" in told, "the statistics of the first layer at step 0"


def test_the_python_of_the_page_on_alerts_runs(capture, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks(capture, "docs/alerts.md", page("alerts.md"))
    assert "INFO [program] half of the steps are done" in capsys.readouterr().out
    written = [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text(encoding="utf-8").splitlines()]
    documented = set(re.findall(r"`(\w+)`", page("alerts.md").partition("| Field |")[2].partition("\n## ")[0]))
    assert set(written[0]) <= documented


def test_the_python_of_the_page_on_numbers_by_hand_runs(capture, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks(capture, "docs/toolbox.md", page("toolbox.md"))
    assert names["report"].diagnosis.verdict == "healthy"
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "runs" / "by_hand" / "rank0.ndbg").is_file()
    assert "differ" in capsys.readouterr().out, "what the comparison of two tensors says"


def test_the_python_of_the_page_on_pictures_runs(capture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(capture, "docs/pictures.md", page("pictures.md"))
    assert list((tmp_path / "plots").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cause"), GUIDED.items())
def test_the_script_of_a_guide_has_its_fault_and_the_change_cures_it(capture, tmp_path, name, cause):
    path, text = DOCS / f"guides/{name}.md", page(f"guides/{name}.md")
    for script, block_name in zip(capture.guide_scripts(text), ("faulty", "cured"), strict=True):
        for file, code in capture.guide_files(path, text, script).items():
            (tmp_path / file).write_text(code, encoding="utf-8")
        tool, *rest = capture.guide_command(path, text).split()
        command = (sys.executable, "-m", tool, *rest[:-1], "-o", block_name, rest[-1])
        subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        said = json.loads((tmp_path / block_name / "diagnosis.json").read_text(encoding="utf-8"))
        if block_name == "faulty":
            assert said["verdict"] in {"failing", "suspect"}
            assert said["hypotheses"][0]["cause"] == cause
            assert cause in block("faulty", text)
        else:
            assert said["verdict"] == "healthy"
            assert "HEALTHY" in block("cured", text)


def test_there_is_a_guide_for_each_kind_of_network_that_was_promised():
    assert {path.stem for path in GUIDES} == set(GUIDED)


@pytest.mark.parametrize("name", [name for name in GUIDED if name.startswith("neural-")])
def test_the_examples_of_the_language_are_those_of_its_guides(capture, name):
    path, text = DOCS / f"guides/{name}.md", page(f"guides/{name}.md")
    for script, suffix in zip(capture.guide_scripts(text), ("_faulty", ""), strict=True):
        for file, code in capture.guide_files(path, text, script).items():
            stem, _, end = file.partition(".")
            with_fault = f"{stem}{suffix if code is script else ''}.{end}"
            assert code == (ROOT / "examples/neural" / with_fault).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_tutorial_runs_and_says_what_its_saved_outputs_say(tmp_path):
    command = (sys.executable, DOCS / "notebook.py", DOCS / "tutorial.ipynb", "-o", tmp_path / "again.ipynb")
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    saved, again = (
        json.loads(path.read_text(encoding="utf-8"))["cells"]
        for path in (DOCS / "tutorial.ipynb", tmp_path / "again.ipynb")
    )
    printed = ["".join(output.get("text", ())) for cell in again for output in cell.get("outputs", ())]
    assert "98% double_softmax in layer head" in printed[1]
    assert "param_not_in_optimizer in layer head" in printed[1]
    assert [_told(cell) for cell in saved] == [_told(cell) for cell in again], "make docs"


def _told(cell):
    """Return what a cell printed, without numbers, which differ from processor to processor, without pictures, and
    without what a busy machine has not read.
    """
    found = []
    for output in cell.get("outputs", ()):
        text = "".join(output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"])
        text = re.sub(r"data:image/png;base64,[^\"]+|ipython-input-[\w-]+", "", text)
        text = re.sub(r"<li>layers in most steps:[^<]*</li>", "", text)
        text = re.sub(r"<details><summary>Not judged[^<]*</summary><ul[^>]*></ul></details>", "", text)
        found.append(re.sub(r"[-+]?\d[\d.,e+-]*", "#", text))
    return "".join(cell["source"]), found


def test_the_settings_of_the_detectors_page_are_accepted(capture):
    (code,) = capture.python_blocks(page("detectors.md"))
    names: dict[str, object] = {"model": torch.nn.Linear(2, 1)}
    exec(compile(code, "docs/detectors.md", "exec"), names)
    assert isinstance(names["dbg"], NeuralDbg)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_settings_that_are_named_exist(path):
    for text in re.findall(r'settings=(\{"\w+": \{"\w+": [^{}]+?\}\})', path.read_text(encoding="utf-8")):
        if "..." not in text:
            NeuralDbg(torch.nn.Linear(2, 1), settings=eval(text))


# ---------------------------------------------------------------- the API

FUNCTIONS = {"debug_session", "load", "register_hook"}
CLASSES = [(module, name) for _, module, name in API.public() if name not in FUNCTIONS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run what the page of the API says that its examples use; return its names, in a folder of its own."""
    folder = tmp_path_factory.mktemp("api")
    (code,) = loaded("capture").python_blocks(page("api.md").partition("## A training that is watched")[0])
    names = {"__name__": "document"}
    here = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(code, "docs/api.md", "exec"), names)
    finally:
        os.chdir(here)
    return folder, names


@pytest.mark.parametrize(
    ("module", "name"), [*CLASSES, *(("neuraldbg", name) for name in sorted(FUNCTIONS))], ids=lambda text: text
)
def test_the_examples_of_the_api_print_what_they_say(trained, monkeypatch, module, name):
    folder, names = trained
    monkeypatch.chdir(folder)
    thing = getattr(importlib.import_module(module), name)
    names = {**names, **{each: getattr(neuraldbg, each) for each in neuraldbg.__all__}}
    members = API.members(thing) if isinstance(thing, type) else []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    told: list[str] = []
    for place, doc in ((name, thing.__doc__), *((f"{name}.{one.name}", one.doc) for one in members)):
        test = doctest.DocTestParser().get_doctest(inspect.cleandoc(doc or ""), names, place, None, 0)
        doctest.DocTestRunner(optionflags=flags).run(test, out=told.append, clear_globs=False)
        names = test.globs  # of a class, its methods use what its docstring makes
    for session in (one for one in list(names.values()) if isinstance(one, neuraldbg.DebugSession)):
        session.stop()
    assert not told, "".join(told)


def test_every_public_method_has_an_example():
    docs = {
        f"{name}.{member.name}": member.doc
        for module, name in CLASSES
        for member in API.members(getattr(importlib.import_module(module), name))
        if member.signature
    }
    without = {place for place, doc in docs.items() if ">>>" not in doc}
    assert without == {"NeuralDbg.stop"}, "the example of `start` has it"


def test_every_public_name_says_what_it_is():
    empty = [
        f"{name}.{member.name}"
        for module, name in CLASSES
        for member in API.members(getattr(importlib.import_module(module), name))
        if not member.doc
    ]
    assert empty == []
    assert [name for module, name in CLASSES if not getattr(importlib.import_module(module), name).__doc__] == []


# ---------------------------------------------------------------- names and places


def test_every_public_name_is_documented():
    told = README + ARCHITECTURE + page("python.md") + page("pictures.md") + page("api.md")
    assert [name for name in neuraldbg.__all__ if not re.search(rf"\b{name}\b", told)] == []


def test_every_question_is_in_the_changelog():
    plumbing = {"start", "stop", "record", "folder", "file", "problem", "remark", "busy", "steps"}
    public = {name for name in vars(NeuralDbg) if not name.startswith("_")} - plumbing
    assert [name for name in sorted(public) if f"`{name}`" not in CHANGELOG] == []


def test_every_part_of_the_house_is_drawn():
    parts = {p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()} - {"__main__.py"}
    house = re.search(r"```\nsrc/neuraldbg/\n(.*?)```", ARCHITECTURE, re.DOTALL)[1]
    assert set(re.findall(r"^  ([\w.]+)", house, re.MULTILINE)) == parts


def test_every_part_of_the_language_is_drawn():
    folder = PACKAGE.with_name("neural")
    parts = {p.name for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()} - {"__main__.py"}
    house = re.search(r"```\nsrc/neural/\n(.*?)```", ARCHITECTURE, re.DOTALL)[1]
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
            there = page.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", there, re.MULTILINE)
            named = re.findall(r'^<a id="([\w.]+)"></a>$', there, re.MULTILINE)
            assert anchor in {*named, *(heading.lower().replace(" ", "-") for heading in headings)}, target


def test_the_make_commands_that_readers_are_told_exist():
    told = {
        name
        for path in PAGES
        for name in re.findall(r"(?:`|^)make (\w+)(?=`|  )", path.read_text("utf-8"), re.MULTILINE)
    }
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test", "bench", "docs", "site"} <= told <= made
    for command in ("make demo    #", "make test    #"):
        assert command in README


def test_the_version_is_that_of_the_project():
    if sys.version_info < (3, 11):
        pytest.skip("tomllib came with Python 3.11")
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(rf"^## {re.escape(version)}\b", CHANGELOG, re.MULTILINE)


# ---------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as `make site` does, in strict mode: a warning, such as of a link that leads nowhere, fails."""
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def served(site):
    """Serve the site on this machine; return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_has_every_document_and_every_docstring(site):
    for path in PAGES:
        name = path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/").removesuffix("README")
        assert (site / name / "index.html").is_file(), name
    api = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in neuraldbg.__all__:
        assert f'id="neuraldbg.{name}"' in api
    assert "or call <code>action</code>" in api, "of a method, too"
    assert 'id="NeuralDbg.explain_failure"' in api, "of one that it inherits, too"
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {f"neural.{path.parent.name}" for path in PACKAGE.with_name("neural").glob("*/__init__.py")}
    assert {path.parent.name for path in (site / "reference").glob("*/index.html")} == rooms
    assert not (ROOT / "site").exists() or "site/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.seen = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_no_words_of_a_page_are_taken_for_tags(site):
    pages = {page.relative_to(site).as_posix(): Tags(page).seen for page in site.rglob("*.html")}
    scripts = {name: tags.count("script") for name, tags in pages.items() if name != "404.html"}
    assert set(scripts.values()) == {scripts["index.html"]}, "a page has a script that is not the theme's"
    assert [name for name, tags in pages.items() if {"blockquote", "time", "layer", "name"} & set(tags)] == []


def test_docstrings_become_markdown():
    written = "Keep `a < b` and a<b.\n\n>>> 1 + 1\n2\n>>> 2\n2\n\nMore."
    assert loaded("docstring_markdown").as_markdown(written) == (
        "Keep `a < b` and a&lt;b.\n\n```pycon\n>>> 1 + 1\n2\n>>> 2\n2\n```\n\nMore."
    )
    assert loaded("docstring_markdown").as_markdown("One line:\n\n>>> f()") == "One line:\n\n```pycon\n>>> f()\n```\n"


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_a_link_means_the_same_on_the_site_as_in_the_repository(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    for there in ("causes/", "guides/cnn/", "tutorial.ipynb/", "examples/doomed_digits.py/", "CONTRIBUTING/"):
        assert f'href="{there}"' in start
        assert (site / there / "index.html").is_file()
    shown = (site / "examples" / "doomed_digits.py" / "index.html").read_text(encoding="utf-8")
    assert "LEARNING_RATE" in shown
    tutorial = (site / "tutorial.ipynb" / "index.html").read_text(encoding="utf-8")
    assert "<b>FAILING</b>" in tutorial


@pytest.mark.slow
@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 400])
def test_the_site_asks_no_other_host_for_anything(served, browser, scheme, width):
    with visiting(browser, color_scheme=scheme, viewport={"width": width, "height": 900}) as visit:
        for address in ("", "api/", "options/", "tutorial.ipynb/", "guides/gan/", "reference/detect/"):
            visit.page.goto(served + address, wait_until="networkidle")
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, f"{address} is too wide"
        visit.page.goto(served, wait_until="networkidle")
        visit.page.evaluate("document.querySelector('[data-md-toggle=search]').click()")
        visit.page.fill(".md-search__input", "zero_grad")
        visit.page.wait_for_selector(".md-search-result__item")
    assert [one for one in visit.requests if not one.startswith((served, "blob:"))] == []
    left = [one for one in visit.errors if "ERR_ABORTED" not in one]  # what a page still loaded when it was left
    assert left == []
