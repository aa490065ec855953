# ruff: noqa: INP001, T201 (a script that prints, not a package)
"""Writes what the documents quote, so that nobody copies it by hand and nothing is invented.

    python docs/capture.py             runs the examples and writes their output, the picture, and the lists
    python docs/capture.py --lists     only what is generated from the code and docs/performance.md, running nothing

What stands between `<!-- begin:NAME -->` and `<!-- end:NAME -->` is replaced, and nothing else. The lists are compared
with the code by `tests/test_docs.py`. Output of runs is the same at each call on one machine, but for the times.
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

from neuraldbg.cli import COMMANDS
from neuraldbg.cli.causes import _reflowed
from neuraldbg.cli.group import LazyGroup
from neuraldbg.config import CaptureSettings, RecordSettings, TriggerSettings
from neuraldbg.detect import DETECTORS
from neuraldbg.explain.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from neuraldbg.explain.cause import Cause

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
COLUMNS = "80"
WIDTH = 100
CATEGORIES = {
    "architecture": "the network itself",
    "data": "what goes in",
    "loop": "how the training program is wired",
    "loss": "what is optimised",
    "optimisation": "how large the steps are",
    "precision": "the number format",
}
CAUSE_PAGES = """# The causes

Every cause that a diagnosis can name, {count} of them. `neuraldbg causes` lists them, `neuraldbg causes ID` shows one.
This file is written from the docstrings of `src/neuraldbg/explain/causes/` by `docs/capture.py`.
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
    """Return a table of every command and its options, in the words of ``--help``."""
    group = LazyGroup("neuraldbg", members={name: f"neuraldbg.cli.{name}" for name in COMMANDS})
    rows = ["| command | option | what it does |", "|---|---|---|"]
    rows.append("| `neuraldbg --version` | | Show the version and exit. |")
    with click.Context(group) as above:
        for name in COMMANDS:
            command = group.get_command(above, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=above) as ctx:
                usage = " ".join(("neuraldbg", name, *command.collect_usage_pieces(ctx)))
                rows.append(f"| `{usage}` | | {_cell(command.get_short_help_str(200))} |")
                for parameter in command.get_params(ctx):
                    record = parameter.get_help_record(ctx)
                    if isinstance(parameter, click.Option) and record is not None and "--help" not in record[0]:
                        rows.append(f"| | `{_cell(record[0])}` | {_cell(record[1])} |")
    return "\n".join(rows)


def cause_table() -> str:
    """Return the causes by category, each linked to its page."""
    rows = ["| category | causes |", "|---|---|"]
    for category, members in _by_category().items():
        names = ", ".join(f"[`{one.id}`](docs/causes.md#{one.id})" for one in members)
        rows.append(f"| {category}: {CATEGORIES.get(category, '')} | {names} |")
    return "\n".join((f"{len(CAUSES)} causes, {len(DETECTORS)} detectors.", "", *rows))


def cause_pages() -> str:
    """Return the page of every cause as one document."""
    parts = [CAUSE_PAGES.format(count=len(CAUSES))]
    for category, members in _by_category().items():
        parts.append(f"## {category}: {CATEGORIES.get(category, '')}\n")
        parts += [f"### {one.id}\n\n{_page(one.page)}\n" for one in members]
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


def _by_category() -> dict[str, list[Cause]]:
    return {name: [one for one in CAUSES if one.category == name] for name in sorted({one.category for one in CAUSES})}


def _page(page: str) -> str:
    """Turn a cause's docstring into Markdown: its first line stays, its headings become bold."""
    lines: list[str] = []
    code = False
    for number, line in enumerate([*_reflowed(cleandoc(page), WIDTH), ""]):
        deep = line.startswith("    ")
        if deep and not code:
            lines += ["", "```python"]
        if code and not deep:
            lines += ["```", ""]
        code = deep
        if deep:
            lines.append(line[4:])
        elif line and not line.startswith(" ") and number:
            lines += ["", f"**{line.strip()}**", ""]
        else:
            lines.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _fields(settings: type[BaseModel]) -> str:
    rows = ["| name | default | what it is |", "|---|---|---|"]
    for name, info in settings.model_fields.items():
        rows.append(f"| `{name}` | {_number(info.default)} | {_cell(info.description or '')} |")
    return "\n".join(rows) if settings.model_fields else "It has no thresholds."


def _number(value: Any) -> str:
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|").replace("<", "\\<")


def _plain(text: str) -> str:
    return text.replace("``", "`")


# ---------------------------------------------------------------- from runs


def session(*commands: str, hide: Iterable[str] = ()) -> str:
    """Return a terminal session: each command line and all it printed, in a folder of its own that is then removed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
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
    readme = put((ROOT / "README.md").read_text(encoding="utf-8"), "options", options())
    measured = (DOCS / "performance.md").read_text(encoding="utf-8")  # written by `make bench`
    readme = put(readme, "overhead", got(measured, "short"))
    return {
        ROOT / "README.md": put(readme, "causes", cause_table()),
        DOCS / "causes.md": cause_pages(),
        DOCS / "detectors.md": detector_pages(),
    }


def python_blocks(text: str) -> list[str]:
    """Return the Python code of a Markdown document, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def quick() -> str:
    """Return what the first Python block of the README prints."""
    code = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return f"```\n{done.stdout.rstrip()}\n```"


def runs() -> dict[str, str]:
    """Run the examples; return the sessions by the name of their block. Writes ``crash.png``."""
    doomed, draw = "neuraldbg run -o runs/doomed examples/doomed_digits.py", "neuraldbg plot runs/doomed -o crash.png"
    look = "neuraldbg plot runs/doomed --view heatmap --terminal"
    return {
        "doomed": session(doomed, draw, hide=(draw,)),
        "look": session(doomed, look, hide=(doomed,)),
        "quick": quick(),
        "softmax": session("neuraldbg run -o runs/softmax examples/char_gpt.py --softmax"),
    }


def main() -> None:
    """Write the documents."""
    parser = argparse.ArgumentParser(description="Write what the documents quote.")
    parser.add_argument("--lists", action="store_true", help="only what is generated from the code; runs nothing")
    only_lists = parser.parse_args().lists
    for path, text in lists().items():
        path.write_text(text, encoding="utf-8")
    if not only_lists:
        readme = ROOT / "README.md"
        for name, body in runs().items():
            readme.write_text(put(readme.read_text(encoding="utf-8"), name, body), encoding="utf-8")
    print("wrote README.md, docs/causes.md, docs/detectors.md" + ("" if only_lists else ", docs/crash.png"))


if __name__ == "__main__":
    main()
