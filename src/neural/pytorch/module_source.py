"""The source of `modules/`, read as text: what a generated file uses is copied into it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Definition:
    """Hold one class or function."""

    name: str
    text: str
    uses: frozenset[str]
    """The names that it mentions."""


@cache
def definitions(folder: Path = FOLDER) -> dict[str, Definition]:
    """Return all definitions by name, in the order of the files."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names = frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
                lines = (line.partition("  # type: ignore")[0] for line in _segment(text, node).split("\n"))
                found[node.name] = Definition(node.name, "\n".join(lines), names - {node.name})
    return found


def _segment(text: str, node: ast.stmt) -> str:
    return ast.get_source_segment(text, node) or ""


def copied(names: Iterable[str], folder: Path = FOLDER) -> list[str]:
    """Return the texts of definitions and of all that they use, each after what it uses."""
    known = definitions(folder)
    found: dict[str, str] = {}

    def take(name: str) -> None:
        if name in found:
            return
        for used in sorted(known[name].uses & known.keys()):
            take(used)
        found[name] = known[name].text

    for name in sorted(set(names)):
        take(name)
    return list(found.values())
