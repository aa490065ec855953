"""Executes a notebook as a person would, with IPython, and writes its outputs into it.

    python docs/notebook.py docs/tutorial.ipynb [-o COPY]

A cell that raises ends it with an error. Nothing of Jupyter is needed.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from PIL import Image

BEST = ("text/html", "image/png", "text/plain")
"""Formats that a value may offer. The first that it has is written: a text may hold an address of this process."""
PNG = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in their order. SystemExit if one raises."""
    shell = InteractiveShell.instance(colors="nocolor")
    values: list[Any] = []
    shell.display_trap.hook = values.append  # the value of a cell's last line, which would be printed
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        count += 1
        code = "".join(cell["source"])
        values.clear()
        with capture_output(display=False) as seen:
            result = shell.run_cell(code)
        if not result.success:
            error = result.error_before_exec or result.error_in_exec
            sys.exit(f"cell {count} raised {error!r}:\n{code}\n{seen.stdout}")
        offered = [shell.display_formatter.format(value)[0] for value in values if value is not None]
        cells.append({**cell, "execution_count": count, "outputs": _outputs(seen.stdout, offered, count)})
    return {**notebook, "cells": cells}


def _outputs(printed: str, offered: list[dict[str, str]], count: int) -> list[dict[str, Any]]:
    """Return what a cell printed, and its value as notebooks write it."""
    found: list[dict[str, Any]] = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": _lines(printed)})
    for formats in offered:
        best = next(name for name in BEST if name in formats)
        data = {best: _lines(PNG.sub(_fewer_colours, formats[best]))}
        found.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def _fewer_colours(picture: re.Match[str]) -> str:
    """Return a picture with 32 colours, which take an eighth of the room in the repository and look the same."""
    made = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture[1]))) as whole:
        whole.convert("RGB").quantize(32).save(made, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(made.getvalue()).decode()


def _lines(text: str) -> list[str]:
    """Return a text as notebooks keep it: line by line, so that a change of one shows as such."""
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute the notebook that the command line names."""
    parser = argparse.ArgumentParser(description="Execute a notebook and write its outputs into it.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="write here instead")
    asked = parser.parse_args()
    done = executed(json.loads(asked.notebook.read_text(encoding="utf-8")))
    (asked.out or asked.notebook).write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
