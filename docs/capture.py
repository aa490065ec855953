"""Writes what the documents quote, so that nobody copies it by hand and nothing is invented.

    python docs/capture.py             runs the examples, the guides and the tutorial, and writes their output,
                                       the picture, and the lists
    python docs/capture.py --lists     only what is generated from the code and docs/performance.md, running nothing

What stands between `<!-- begin:NAME -->` and `<!-- end:NAME -->` is replaced, and nothing else. The lists are compared
with the code by `tests/test_docs.py`. Output of runs is the same at each call on one machine, but for the times. Where
the README has no room for the whole of it, it says how many lines are left out, and which page has them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from api_page import api_page

from neuraldbg.capture.contracts import CONTRACTS, nodes
from neuraldbg.cli import COMMANDS
from neuraldbg.cli.causes import _reflowed
from neuraldbg.cli.command import Command
from neuraldbg.cli.group import LazyGroup
from neuraldbg.cli.plot import known_views
from neuraldbg.config import CaptureSettings, RecordSettings, TriggerSettings
from neuraldbg.detect import DETECTORS
from neuraldbg.explain.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.checked_values import CheckedValues
    from neuraldbg.explain.cause import Cause

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
README = ROOT / "README.md"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
TUTORIAL = DOCS / "tutorial.ipynb"
COLUMNS = "80"
WIDTH = 100
MOST_LINES = {"doomed": 30, "healthy": 20}
"""Lines that each example may take in the README."""
VERDICT_LINE = re.compile(r"\W+(FAILING|SUSPECT|HEALTHY|INCONCLUSIVE)\b")
CATEGORIES = {
    "architecture": "the network itself",
    "data": "what goes in",
    "loop": "how the training program is wired",
    "loss": "what is optimised",
    "optimisation": "how large the steps are",
    "precision": "the number format",
}
CAUSE_PAGES = """# The causes

Every cause that a diagnosis can name. `neuraldbg causes` lists them, `neuraldbg causes ID` shows one's page: what it
is, how it shows, how it is told apart from what it resembles, what to do. This file is written from the docstrings of
`src/neuraldbg/explain/causes/` by `docs/capture.py`.

A symptom alone names no cause: "the gradients explode" is an event, and the cause has to be shown by other evidence.
Where nothing convinces, no cause is named. The evidence is, in this order:

1. facts about the program: the order of its loop, the graph of its loss, who holds which parameter, what the batches
   and the targets are;
2. a few experiments on a copy of the model: do the samples of a batch leak into each other, is the future visible, does
   the input matter, which operation and which of your lines gave the first NaN;
3. statistics of layers, losses, gradients and updates.

How often the first cause named is the true one, on several hundred trainings, faulty or healthy and scary, beside
threshold and per-symptom rules on the same runs: [accuracy.md](accuracy.md), written by `make accuracy`.

{table}
"""
CONTRACT_PAGE = """# Contracts of torch's functions

What torch's functions expect of their arguments beyond what torch itself checks, {count} in all, each checked on the
real values of the steps whose facts are read. A contract that is broken is the cause
[`function_misused`](causes.md#function_misused). Loss functions whose breach has a cause of its own (cross entropy,
NLL, binary cross entropy, shapes that broadcast) are read from the graph of the loss and are not listed.
This file is written from the docstrings of `src/neuraldbg/capture/contracts/` by `docs/capture.py`.

Calls are seen however a program names the function: the built-in part that the public function looks up is wrapped.
What a model calls in each layer, and what is called as a method of a tensor, is checked in the graph of the loss
instead; there no line is known, but the layer is.

{table}
"""
DETECTOR_PAGES = """# Detectors and settings

What each detector sees, and every number that can be changed, with its default and where the default comes from.
This file is written from the docstrings and settings of `src/neuraldbg/` by `docs/capture.py`.

Change a threshold by the detector's name, and a setting by its group:

```python
from neuraldbg import NeuralDbg

dbg = NeuralDbg(
    model,
    thresholds={"vanishing_gradients": {"floor": 1e-9}},
    settings={"capture": {"every": 10}, "record": {"full_steps": 4096}},
)
```
"""


# ---------------------------------------------------------------- from the code


def options() -> str:
    """Return each command with its usage and a table of its options, in the words of ``--help``."""
    group = LazyGroup("neuraldbg", members={name: f"neuraldbg.cli.{name}" for name in COMMANDS})
    parts = ["`neuraldbg --version`: Show the version and exit. `neuraldbg COMMAND --help`: Show the options."]
    with click.Context(group) as above:
        for name in COMMANDS:
            command = group.get_command(above, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=above) as ctx:
                usage = " ".join(("neuraldbg", name, *command.collect_usage_pieces(ctx)))
                parts.append(f"### neuraldbg {name}\n\n{_cell(command.get_short_help_str(200))}\n\n`{usage}`")
                parts += _option_tables(command, ctx)
        shown = "\n".join(f"| {name} | {_cell(text)} |" for name, text in known_views())
        place = next(n for n, part in enumerate(parts) if part.startswith("| option") and "`--view VIEW`" in part)
        parts.insert(place + 1, f"Views:\n\n| view | what it shows |\n|---|---|\n{shown}")
    return "\n\n".join(parts)


def _option_tables(command: click.Command, ctx: click.Context) -> list[str]:
    """Return a table for each group of options, below its title where there are several."""
    assert isinstance(command, Command)
    tables = []
    for title, members in command.titled(ctx):
        records = [record for one in members if (record := one.get_help_record(ctx)) and "--help" not in record[0]]
        rows = [f"| {_cell(f'`{spelled}`')} | {_cell(text)} |" for spelled, text in records]
        tables += [f"{title}:"] if rows and command.groups else []
        tables += ["\n".join(("| option | what it does |", "|---|---|", *rows))] if rows else []
    return tables


def cause_table() -> str:
    """Return the causes by category, each linked to its page."""
    rows = ["| category | causes |", "|---|---|"]
    for category, members in _by_category().items():
        names = ", ".join(f"[`{one.id}`](#{one.id})" for one in members)
        rows.append(f"| {category}: {CATEGORIES.get(category, '')} | {names} |")
    return "\n".join((f"{len(CAUSES)} causes, {len(DETECTORS)} detectors.", "", *rows))


def cause_pages() -> str:
    """Return the page of every cause as one document."""
    parts = [CAUSE_PAGES.format(table=cause_table())]
    for category, members in _by_category().items():
        parts.append(f"## {category}: {CATEGORIES.get(category, '')}\n")
        parts += [f'<a id="{one.id}"></a>\n\n### {one.title} · `{one.id}`\n\n{_page(one.page)}\n' for one in members]
    return "\n".join(parts)


def detector_pages() -> str:
    """Return every detector's page with its thresholds, and the settings of a session."""
    parts = [DETECTOR_PAGES, "## Detectors\n"]
    for detector in DETECTORS:
        module = sys.modules[detector.__module__]
        text = "\n\n".join(" ".join(part.split()) for part in cleandoc(module.__doc__ or "").split("\n\n"))
        parts.append(f"### {detector.name}\n\n{_plain(text)}\n\n{_fields(type(detector().thresholds))}\n")
    parts.append("## Settings\n")
    for name, settings in (("capture", CaptureSettings), ("record", RecordSettings), ("trigger", TriggerSettings)):
        parts.append(f"### {name}\n\n{_plain(' '.join((settings.__doc__ or '').split()))}\n\n{_fields(settings)}\n")
    return "\n".join(parts)


def contract_page() -> str:
    """Return the contracts of torch's functions as one document: what each expects, with its documentation."""
    expected = [(one.function, one.check, one.link) for one in CONTRACTS]
    expected += [(function, check, nodes.link(function)) for function, check in nodes.CHECKS.values()]
    rows = {
        f"| [`{function}`]({link}) | {' '.join((check.__doc__ or '').split())} |" for function, check, link in expected
    }
    table = "\n".join(("| function | what it expects |", "|---|---|", *sorted(rows)))
    return CONTRACT_PAGE.format(count=len(rows), table=table)


def numbers() -> str:
    """Return the numbers of causes and detectors, as the README gives them."""
    return (
        f"It knows {len(CAUSES)} causes, found with {len(DETECTORS)} detectors and experiments on a copy of the model."
    )


def _by_category() -> dict[str, list[Cause]]:
    return {name: [one for one in CAUSES if one.category == name] for name in sorted({one.category for one in CAUSES})}


def _page(page: str) -> str:
    """Turn a cause's docstring into Markdown: its first paragraph stays, its headings become bold."""
    lines: list[str] = []
    code, first = False, True
    for line in [*_reflowed(cleandoc(page), WIDTH), ""]:
        first = first and bool(line)
        deep = line.startswith("    ")
        if deep and not code:
            lines += ["", "```python"]
        if code and not deep:
            lines += ["```", ""]
        code = deep
        if deep:
            lines.append(line[4:])
        elif line and not line.startswith(" ") and not first:
            lines += ["", f"**{line.strip()}**", ""]
        else:
            lines.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _fields(settings: type[CheckedValues]) -> str:
    rows = ["| name | default | what it is |", "|---|---|---|"]
    for name, info in settings.fields.items():
        rows.append(f"| `{name}` | {_number(info.default)} | {_cell(info.description or '')} |")
    return "\n".join(rows) if settings.fields else "It has no thresholds."


def _number(value: Any) -> str:
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str) -> str:
    """Return a text for a cell of a table. Outside of code `<` is written as HTML: not every Markdown can escape it."""
    parts = _plain(" ".join(text.split())).replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def _plain(text: str) -> str:
    return text.replace("``", "`")


# ---------------------------------------------------------------- from runs


def session(*commands: str, hide: Iterable[str] = (), files: Mapping[str, str] | None = None) -> str:
    """Return a terminal session: each command line and all it printed, in a folder of its own that is then removed.

    The folder holds the examples, or the ``files`` that are given instead.
    """
    with tempfile.TemporaryDirectory() as folder:
        if files is None:
            shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        for name, text in (files or {}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        shown = []
        for command in commands:
            printed = _run(command, Path(folder))
            if command not in hide:
                shown.append(f"$ {command}\n{printed}")
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, DOCS / picture.name)
    return "```console\n" + "\n".join(shown).rstrip() + "\n```"


def _run(command: str, folder: Path) -> str:
    """Run one command line as a person would see it: 80 columns, no colour, both streams in their order."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        "COLUMNS": COLUMNS,
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
    }
    done = subprocess.run(  # noqa: S603 (the examples of this repository)
        command.split(), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    printed = done.stdout.decode("utf-8")
    if done.returncode:
        sys.exit(f"{command} ended with status {done.returncode}:\n{printed}")
    if "error in NeuralDBG" in printed:
        sys.exit(f"{command} has found an error of our own:\n{printed}")
    return "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"


# ---------------------------------------------------------------- into the documents


def put(text: str, name: str, body: str) -> str:
    """Replace what stands between the marks of a name; SystemExit if they are not there once."""
    pattern = re.compile(rf"(<!-- begin:{name} -->\n).*?(\n?<!-- end:{name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"there must be one pair of marks begin:{name}, end:{name}")
    return pattern.sub(lambda m: f"{m[1]}{body}\n<!-- end:{name} -->", text)


def got(text: str, name: str) -> str:
    """Return what stands between the marks of a name; SystemExit if they are not there once."""
    found: list[str] = re.findall(rf"<!-- begin:{name} -->\n(.*?)\n<!-- end:{name} -->", text, re.DOTALL)
    if len(found) != 1:
        sys.exit(f"there must be one pair of marks begin:{name}, end:{name}")
    return found[0]


def lists() -> dict[Path, str]:
    """Return the documents as they are with their generated parts brought up to date, by path."""
    measured = (DOCS / "performance.md").read_text(encoding="utf-8")  # written by `make bench`
    parts = (
        (README, "numbers", numbers()),
        (DOCS / "options.md", "options", options()),
        (DOCS / "overhead.md", "overhead", got(measured, "short")),
    )
    return {
        **{path: put(path.read_text(encoding="utf-8"), name, body) for path, name, body in parts},
        DOCS / "api.md": api_page(),
        DOCS / "causes.md": cause_pages(),
        DOCS / "contracts.md": contract_page(),
        DOCS / "detectors.md": detector_pages(),
    }


def python_blocks(text: str, language: str = "python") -> list[str]:
    """Return the Python code of a Markdown document, block by block; or that of another language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def quick() -> str:
    """Return what the first Python block of the README prints."""
    code = python_blocks(README.read_text(encoding="utf-8"))[0]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return f"```\n{done.stdout.rstrip()}\n```"


def guide_scripts(text: str) -> tuple[str, str]:
    """Return the script of a guide, and the same with the change of its ```diff block, which must fit exactly once."""
    (script,) = python_blocks(text) or python_blocks(text, "neural")
    (change,) = re.findall(r"^```diff\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    cured = script
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", change, re.MULTILINE):
        before, after = (re.sub(r"^[-+]", "", lines, flags=re.MULTILINE) for lines in (old, new))
        if cured.count(before) != 1:
            sys.exit(f"the change of a guide does not fit its script:\n{before}")
        cured = cured.replace(before, after)
    return script, cured


def guide_runs(path: Path) -> dict[str, str]:
    """Run the script of a guide, and its cured twin; return both sessions by the name of their block."""
    text = path.read_text(encoding="utf-8")
    scripts = dict(zip(("faulty", "cured"), guide_scripts(text), strict=True))
    return {
        name: session(guide_command(path, text), files=guide_files(path, text, code)) for name, code in scripts.items()
    }


def guide_command(path: Path, text: str) -> str:
    """Return the command line of a guide."""
    stem = path.stem.removeprefix("neural-")
    command = "neuraldbg run" if stem == path.stem else "neural debug --no-dashboard"
    return f"{command} {stem}.{'py' if python_blocks(text) else 'neural'}"


def guide_files(path: Path, text: str, code: str) -> dict[str, str]:
    """Return the files that the command line of a guide needs: the script, and the networks that it builds."""
    stem = path.stem.removeprefix("neural-")
    if not python_blocks(text):
        return {f"{stem}.neural": code}
    return {f"{stem}.py": code, **{f"{stem}.neural": networks for networks in python_blocks(text, "neural")}}


def execute_notebook() -> None:
    """Run the tutorial in a folder of its own, and write its outputs into it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, DOCS / "notebook.py", TUTORIAL]
        subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)  # noqa: S603 (ours)


def shortened(block: str, most: int, page: str) -> str:
    """Return a session that fits: of a longer one first the script's own lines are left out, then the end."""
    lines = block.splitlines()
    verdict = next((number for number, line in enumerate(lines) if VERDICT_LINE.match(line)), 0)
    if len(lines) > most and verdict > 6:  # the fence, the command, the script's first and last line, a blank one
        lines[3 : verdict - 2] = [f"[... {verdict - 5} lines of the script]"]
    if len(lines) <= most:
        return "\n".join(lines)
    room = lines[: most - 2]
    paragraph = max((number for number, line in enumerate(room) if not line and number > most // 2), default=0)
    kept = room[:paragraph] if paragraph else room
    return "\n".join((*kept, f"[... {len(lines) - 1 - len(kept)} more lines: {page}]", "```"))


def runs() -> dict[Path, dict[str, str]]:
    """Run the examples; return the sessions by page and name of their block. Writes ``crash.png``."""
    doomed, draw = "neuraldbg run -o runs/doomed examples/doomed_digits.py", "neuraldbg plot runs/doomed -o crash.png"
    look = "neuraldbg plot runs/doomed --view heatmap --terminal"
    whole = {
        "doomed": session(doomed, draw, hide=(draw,)),
        "softmax": session("neuraldbg run -o runs/softmax examples/char_gpt.py --softmax"),
        "healthy": session("neuraldbg run -o runs/healthy examples/healthy_digits.py"),
    }
    return {
        README: {
            "quick": quick(),
            **{name: shortened(whole[name], most, "docs/script.md") for name, most in MOST_LINES.items()},
        },
        DOCS / "script.md": whole,
        DOCS / "neural.md": {"debug": session("neural run examples/neural/cnn.neural")},
        DOCS / "toolbox.md": {
            "numpy": session("python examples/by_hand/numpy_sigmoids.py"),
            "jax": session("python examples/by_hand/jax_optax.py"),
            "keras": session("python examples/by_hand/keras_fit.py"),
        },
        DOCS / "pictures.md": {"look": session(doomed, look, hide=(doomed,))},
        **{path: guide_runs(path) for path in GUIDES},
    }


def main() -> None:
    """Write the documents."""
    parser = argparse.ArgumentParser(description="Write what the documents quote.")
    parser.add_argument("--lists", action="store_true", help="only what is generated from the code; runs nothing")
    only_lists = parser.parse_args().lists
    written = lists()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    for path, blocks in ({} if only_lists else runs()).items():
        for name, body in blocks.items():
            path.write_text(put(path.read_text(encoding="utf-8"), name, body), encoding="utf-8")
        written[path] = ""
    if not only_lists:
        execute_notebook()
    print("wrote", ", ".join(sorted(path.relative_to(ROOT).as_posix() for path in written)))


if __name__ == "__main__":
    main()
