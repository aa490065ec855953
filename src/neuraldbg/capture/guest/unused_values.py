"""The values that a function of the program makes, or is given, and never uses: found in its source.

A function enters as its code object, the names leave, with their lines. Nothing is executed. A function that reads its
variables by name (``locals()``, ``eval``) has none that are certain, and a name that begins with an underscore is
unused on purpose.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.capture.guest.source_trace import called_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from neuraldbg.capture.guest.source_trace import Scope, Source
    from neuraldbg.capture.guest.user_code import Place

_BY_NAME = frozenset({"locals", "vars", "eval", "exec", "globals"})
_MOST = 32
_SELF = frozenset({"self", "cls"})


class Unused(NamedTuple):
    """One value that is made, or given, and never used."""

    name: str
    how: str
    """``assigned`` by a statement, ``unpacked`` from a tuple, or a ``parameter`` of the function without default."""
    place: Place
    function: str


def unused(source: Source, code: CodeType) -> list[Unused]:
    """Return the values of a function, or of a script, that are never used."""
    line = next((line for *_, line in code.co_lines() if line and line > code.co_firstlineno), code.co_firstlineno)
    scope = source.tree if code.co_name == "<module>" else source.scope(line)
    if code.co_name not in ("<module>", getattr(scope, "name", "<module>")):
        return []  # the source was changed since, or there is none
    inside = list(ast.walk(scope))
    if any(isinstance(node, ast.Call) and called_name(node) in _BY_NAME for node in inside):
        return []
    loaded = {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    loaded |= {
        node.target.id for node in inside if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    loaded |= {name for node in inside if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    found: dict[str, Unused] = {}
    for name, how, node in (*_parameters(scope), *_bound(scope)):
        if name not in loaded and not name.startswith("_"):
            found.setdefault(name, Unused(name, how, source.place(node), code.co_name))
    return list(found.values())[:_MOST]


def _parameters(scope: Scope) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the parameters that a caller must give; an abstract function, or one that only raises, needs none."""
    if isinstance(scope, ast.Module):
        return
    body = [node for node in scope.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if all(isinstance(node, (ast.Pass, ast.Raise)) for node in body):
        return
    given = [*scope.args.posonlyargs, *scope.args.args]
    for arg in given[: len(given) - len(scope.args.defaults)]:
        if arg.arg not in _SELF:
            yield arg.arg, "parameter", ast.Name(arg.arg, ast.Store(), lineno=arg.lineno, col_offset=arg.col_offset)


def _bound(scope: Scope) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the names that statements of a scope bind, without those of functions and classes in it."""
    todo: list[ast.AST] = list(scope.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _names(target)
        elif isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Tuple):
            yield from _names(node.target)
        todo.extend(ast.iter_child_nodes(node))


def _names(target: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, "assigned", target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from ((name, "unpacked", node) for name, _, node in _names(one))
