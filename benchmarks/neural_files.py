"""A table of the `.neural`, `.nr` and `.rnr` files below a folder: read, checked, layers, parameters, why not.

python benchmarks/neural_files.py FOLDER
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from neural import NeuralError, SourceError, checked, read
from neural.language.reader import EXTENSIONS


@dataclass(frozen=True)
class Row:
    """Hold one line of the table."""

    file: str
    network: str
    read: bool
    checked: bool
    layers: int
    parameters: int
    approximated: int
    why: str


def why(error: NeuralError) -> str:
    """Return the first problem in one line."""
    if isinstance(error, SourceError):
        first = error.problems[0]
        return f"line {first.span.line}: {first.message}"
    return str(error)


def rows(path: Path, name: str) -> list[Row]:
    """Return one row for each network of a file, or one for a file without any."""
    try:
        source = read(path)
    except NeuralError as error:
        return [Row(name, "", read=False, checked=False, layers=0, parameters=0, approximated=0, why=why(error))]
    if not source.networks:
        what = "research, no network" if source.research else "no network"
        return [Row(name, "", read=True, checked=True, layers=0, parameters=0, approximated=0, why=what)]
    found = []
    for network in dict.fromkeys(each.name for each in source.networks):
        try:
            plan = checked(source, network)
        except NeuralError as error:
            reason = why(error)
            found.append(
                Row(name, network, read=True, checked=False, layers=0, parameters=0, approximated=0, why=reason)
            )
            continue
        approximated = sum(note.approximated for note in plan.notes)
        found.append(
            Row(
                name,
                network,
                read=True,
                checked=True,
                layers=len(plan.layers),
                parameters=plan.parameter_count,
                approximated=approximated,
                why="",
            )
        )
    return found


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.stderr.write("usage: python benchmarks/neural_files.py FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    paths = sorted(path for path in folder.rglob("*") if path.suffix in EXTENSIONS and path.is_file())
    began = time.perf_counter()
    table = [row for path in paths for row in rows(path, str(path.relative_to(folder)))]
    taken = time.perf_counter() - began
    width = max((len(row.file) for row in table), default=4)
    print(f"{'file':<{width}}  {'network':<28}  read  checked  layers   parameters  approximated  why not")
    for row in table:
        yes = ("yes" if row.read else "no", "yes" if row.checked else "no")
        numbers = f"{row.layers:>6}  {row.parameters:>11,}  {row.approximated:>12}"
        print(f"{row.file:<{width}}  {row.network:<28}  {yes[0]:<4}  {yes[1]:<7}  {numbers}  {row.why}".rstrip())
    files = {row.file for row in table}
    unread = {row.file for row in table if not row.read}
    unchecked = {row.file for row in table if not row.checked}
    print(
        f"\n{len(files)} files: {len(files) - len(unread)} read, {len(files) - len(unchecked)} checked; "
        f"{sum(row.checked for row in table)} of {len(table)} networks or research; {taken:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
