"""Remedies pasted into the scripts that they were given for: a script's text and edits enter, a mended text leaves.

Where an edit goes follows from its kind and its line alone: nothing here knows a cause or a script.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from neuraldbg.explain.verdict.user_names import with_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Edit


class NotPasted(ValueError):
    """An edit does not say where it goes, or does not fit there."""


def pasted(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits to a script. NotPasted where one does not fit."""
    tree = ast.parse(text)
    lines = text.split("\n")
    changes = [_change(lines, tree, edit) for edit in edits]
    for first, last, new in sorted(changes, key=lambda change: change[0], reverse=True):
        lines[first:last] = new
    mended = "\n".join(lines)
    ast.parse(mended)
    return _with_imports(mended)


def _change(lines: list[str], tree: ast.Module, edit: Edit) -> tuple[int, int, list[str]]:
    """Return the lines to replace, counted from 0, and the new ones."""
    if edit.line is None:
        raise NotPasted(f"it is not known where {edit.code!r} goes")
    statement = _statement(tree, edit.line.line)
    start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
    indent = lines[start][: statement.col_offset]
    if edit.how == "arguments":
        new = with_arguments(ast.unparse(statement), edit.code)
        if not new:
            raise NotPasted(f"no call takes {edit.code!r} in {ast.unparse(statement)!r}")
        return start, end, [indent + line for line in new.split("\n")]
    new_lines = [indent + line for line in edit.code.split("\n")]
    return (start, start, new_lines) if edit.how == "before" else (end, end, new_lines)


def _statement(tree: ast.Module, line: int) -> ast.stmt:
    """Return the innermost statement of a line; of one with a body, the line must be its head."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        raise NotPasted(f"there is no statement in line {line}")
    return max(around, key=lambda node: (node.lineno, node.col_offset))


def _with_imports(text: str) -> str:
    """Import what remedies take for granted, behind a docstring and imports from the future."""
    lines = text.split("\n")
    body = ast.parse(text).body
    head = [
        node
        for node in body[:3]
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    at = max((node.end_lineno or 0 for node in head), default=0)
    return "\n".join([*lines[:at], "import torch", *lines[at:]])
