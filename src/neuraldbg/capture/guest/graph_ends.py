"""The line at which a program ends the autograd graph, found in the source: the line of a call enters that is given a
tensor without its graph, the line of the ``detach()``, ``.data``, ``.item()`` or ``no_grad`` leaves.

Nothing is executed (``source_trace.py``). What the call is given is followed back, through names and functions of the
same file. The nearest operation that ends a graph is the one; two at the same distance are none.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.source_trace import Source, Trace, called_name, is_lossy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.guest.source_trace import Scope
    from neuraldbg.capture.guest.user_code import Place

_METHODS = frozenset({"detach", "detach_", "item", "numpy", "tolist"})
"""Methods of a tensor whose result has no graph."""
_FUNCTIONS = frozenset({"tensor", "as_tensor", "from_numpy"})
"""Functions of torch whose result has no graph."""
_MODES = frozenset({"no_grad", "inference_mode"})
_NEAR = 4
"""Names and calls that are followed one after the other."""
_MOST = 200
"""Expressions of one search at the same distance."""


class GraphEnds:
    """The search for the ends of graphs in one file."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def before(self, line: int) -> Place | None:
        """Return the line that ends the graph of what a call on a line is given; None if it is not certain."""
        scope = self.source.scope(line)
        trace = Trace(self.source)
        level = [(given, scope) for given in self._given(scope, line)]
        for _ in range(_NEAR):
            nodes = (node for value, _ in level for node in ast.walk(value) if isinstance(node, ast.expr))
            ends = {self.source.place(node) for node in nodes if _ends(node)}
            ends |= {place for value, _ in level if (place := self._off(value.lineno, line)) is not None}
            if ends:
                return next(iter(ends)) if len(ends) == 1 else None
            level = [step for value, where in level for step in trace.behind(value, where)]
            if not level or len(level) > _MOST:
                return None
        return None

    def switched_off(self, line: int) -> Place | None:
        """Return the line that switches gradients off around a line: the nearest ``with torch.no_grad()``, or the
        decorator of its function; None if there is none.
        """
        return self._off(line, None)

    def _given(self, scope: Scope, line: int) -> Iterator[ast.expr]:
        """Yield the arguments of the calls on a line, those of loss functions left out: their targets have no graph."""
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or line):
                continue
            if not is_lossy(node) and not _ends(node):
                yield from (*node.args, *(keyword.value for keyword in node.keywords))

    def _off(self, line: int, other: int | None) -> Place | None:
        """Return the line that switches gradients off around a line, unless it does around ``other``, too."""
        found = None
        for node in ast.walk(self.source.tree):
            if not isinstance(node, (ast.With, ast.FunctionDef)) or not _around(node, line):
                continue
            if other is not None and _around(node, other):
                continue
            items = [item.context_expr for item in node.items] if isinstance(node, ast.With) else node.decorator_list
            for item in filter(_is_off, items):
                if found is None or item.lineno > found.lineno:
                    found = item
        return self.source.place(found) if found is not None else None


def _around(node: ast.With | ast.FunctionDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _is_off(item: ast.expr) -> bool:
    """Return True for ``torch.no_grad()``, ``torch.inference_mode``, ``torch.set_grad_enabled(False)``."""
    if isinstance(item, ast.Call) and called_name(item) == "set_grad_enabled":
        return any(isinstance(one, ast.Constant) and one.value is False for one in item.args)
    called = item.func if isinstance(item, ast.Call) else item
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in _MODES


def _ends(node: ast.AST) -> bool:
    """Return True for an expression whose value is a tensor's without its graph."""
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return node.attr == "data" and isinstance(node.ctx, ast.Load) and not own
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    if isinstance(node.func, ast.Attribute) and name in _METHODS:
        return True
    of_torch = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "torch"
    return of_torch and name in _FUNCTIONS and bool(node.args) and not isinstance(node.args[0], ast.Constant)
