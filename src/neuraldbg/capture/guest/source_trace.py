"""The lines of the user's code where a loss is computed and where layers are created, found in the source itself.

The line that calls ``backward`` enters; the lines of the expressions that made the loss leave. Names are followed back
through assignments of the same function, then into functions and classes of the same file. Nothing is executed and no
object of the program is read, so training cannot notice it; a file is parsed once.

A line that is not certain is worse than none: a name with no assignment in sight, or a call that could mean several
functions, ends the search without a result.
"""

from __future__ import annotations

import ast
import linecache
import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from neuraldbg.capture.guest.user_code import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
Scope: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Module"
_LONGEST = 20_000
"""Lines of a file that is still parsed."""
_DEPTH = 8
"""Names and calls that are followed one after the other."""
_MOST = 400
"""Expressions that one search visits."""
_ESCAPE, _KNOWN = re.compile(r"\\(.)"), frozenset("\\'\"abfnrtv0123xNuU")
_LOSSY = re.compile(r"loss|cost|err|nll|bce|mse|kl|objective|criterion|penalty", re.IGNORECASE)
"""Names that stand for a loss: in ``recon + beta * kl`` they are followed, while in ``(output * weight).mean()`` the
line itself computes the loss."""
_REDUCERS = frozenset({"mean", "sum", "float", "double", "half", "to", "squeeze", "clone", "item"})
"""Methods that leave a loss what it is."""
_BEHIND = frozenset({"scale", "backward", "manual_backward"})
"""Functions that are given a loss."""


class Source:
    """The syntax tree of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._assignments: dict[int, dict[str, list[tuple[ast.stmt, tuple[int, int]]]]] = {}
        lines = linecache.getlines(file)
        try:
            self.tree = ast.parse(_quiet("".join(lines))) if len(lines) <= _LONGEST else ast.Module([], [])
        except (SyntaxError, ValueError, RecursionError):  # a notebook cell with magics, or no Python at all
            self.tree = ast.Module([], [])

    def place(self, node: ast.expr) -> Place:
        """Return the line on which an expression begins; of a chain of methods, that of the last one."""
        line = node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.end_lineno:
            line = node.func.end_lineno
        return Place(self.file, line, linecache.getline(self.file, line).strip()[:160])

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods."""
        return [node for node in ast.walk(self.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes whose name is used once."""
        found: dict[str, list[ast.ClassDef]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
        return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1}

    def scope(self, line: int) -> Scope:
        """Return the innermost function around a line, or the module."""
        inside = [f for f in self.functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        return max(inside, key=lambda f: f.lineno, default=self.tree)

    def assignments(self, scope: Scope) -> dict[str, list[tuple[ast.stmt, tuple[int, int]]]]:
        """Return the statements of a function that assign a name, attribute or item, by its text, each with the first
        and last line of its block.
        """
        known = self._assignments.get(id(scope))
        if known is None:
            known = self._assignments[id(scope)] = {}
            for node, block in _statements(scope.body):
                for key in _targets(node):
                    known.setdefault(key, []).append((node, block))
        return known

    def function(self, name: str) -> Function | None:
        """Return the function or method of a name; None if there are several or none."""
        found = [f for f in self.functions if f.name == name]
        return found[0] if len(found) == 1 else None

    def method(self, name: str, owner: ast.ClassDef) -> Function | None:
        """Return a method of a class of this file, None if the class does not define it."""
        found = [f for f in owner.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and f.name == name]
        return found[-1] if found else None


class Trace:
    """The search for the expressions that made a value, within one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._visited = 0
        self._seen: set[tuple[str, int]] = set()

    def losses(self, line: int) -> list[ast.expr]:
        """Return the expressions that compute the loss whose backward pass is called on a line; empty if unknown."""
        root, scope = self.differentiated(line)
        found = list(self._made(root, scope, line, 0, top=True)) if root is not None else []
        return list({(one.lineno, one.col_offset): one for one in found}.values())

    def differentiated(self, line: int) -> tuple[ast.expr | None, Scope]:
        """Return the loss whose backward pass is called on a line, None if that is not certain, and the function that
        calls it.
        """
        scope = self.source.scope(line)
        calls = (node for node in _own(scope) if isinstance(node, ast.Call))
        roots = (_differentiated(call) for call in calls if call.lineno <= line <= (call.end_lineno or line))
        return next((root for root in roots if root is not None), None), scope

    def _made(self, value: ast.expr, scope: Scope, line: int, depth: int, *, top: bool = False) -> Iterator[ast.expr]:
        """Yield the expressions that compute a loss which is the value of an expression."""
        self._visited += 1
        if depth > _DEPTH or self._visited > _MOST:
            return
        if _key(value):
            for given, index in self.assigned(value, scope, line):
                mark = (_key(value), given.lineno)
                if mark not in self._seen and not isinstance(given, ast.Constant):
                    self._seen.add(mark)
                    yield from self._element(given, index, scope, given.lineno, depth + 1)
            return
        parts = _parts(value)
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
            scaled = [part for part in parts if not isinstance(part, ast.Constant)]
            if len(scaled) == 1:
                yield from self._made(scaled[0], scope, line, depth + 1)
                return
        if any(map(is_lossy, parts)):
            # What is added to a loss is one, too; what it is multiplied by is a weight.
            whole = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub))
            for part in parts:
                if whole or is_lossy(part):
                    yield from self._made(part, scope, line, depth + 1)
            return
        if isinstance(value, ast.Call):
            inside = self.called(value, scope, line)
            if inside is not None:
                for one, index in _returns(inside):
                    yield from self._element(one, index, inside, one.lineno, depth + 1)
                return
        if not isinstance(value, ast.Constant):
            yield value

    def _element(self, value: ast.expr, index: int | None, scope: Scope, line: int, depth: int) -> Iterator[ast.expr]:
        """Follow one element of a tuple; ``index`` is None for the whole value."""
        if index is not None and isinstance(value, ast.Tuple):
            if index < len(value.elts):
                yield from self._made(value.elts[index], scope, line, depth)
            return
        if index is not None and not isinstance(value, ast.Call):
            return
        if index is not None and isinstance(value, ast.Call):
            inside = self.called(value, scope, line)
            if inside is None:
                yield value
            for one, _ in _returns(inside) if inside is not None else ():
                yield from self._element(one, index, inside or scope, one.lineno, depth + 1)
            return
        yield from self._made(value, scope, line, depth)

    def assigned(self, target: ast.expr, scope: Scope, line: int) -> list[tuple[ast.expr, int | None]]:
        """Return the values assigned to a name, attribute or item above a line of a function, each with the position
        of the target in a tuple.
        """
        key = _key(target)
        found: list[tuple[ast.expr, int | None]] = []
        for node, block in self.source.assignments(scope).get(key, ()):
            if node.lineno > line or (node.lineno == line and isinstance(node, ast.Assign)):
                continue
            given = _given(node, key)
            # An assignment on the way to the line that does not use the old value replaces all before it.
            if isinstance(node, ast.Assign) and block[0] <= line <= block[1] and not _uses(given, key):
                found.clear()
            found += given
        useful = [one for one in found if not _is_start(one[0])]
        return useful or found

    def called(self, call: ast.Call, scope: Scope, line: int) -> Function | None:
        """Return the function of this file that a call runs; None if it is another's or is not certain."""
        func = call.func
        if isinstance(func, ast.Name):
            direct = self.source.function(func.id)
            if direct is not None and func.id not in self.source.classes:
                return direct
        owner = self.made_of(func, scope, line)
        if owner is not None:
            return self.source.method("forward", owner) or self.source.method("__call__", owner)
        if isinstance(func, ast.Attribute) and func.attr not in ("forward", "step", "backward"):
            return self.source.function(func.attr) if _key(func.value) else None
        return None

    def made_of(self, value: ast.expr, scope: Scope, line: int) -> ast.ClassDef | None:
        """Return the class of this file that a name, or ``self.name``, is an object of; None if it is not certain."""
        kinds = set()
        key = _key(value)
        if not key:
            return None
        wide: list[tuple[ast.expr, int | None]] = self.assigned(value, scope, line)
        if not wide:  # an attribute that another method assigns, or a global name
            for other in (self.source.tree, *self.source.functions):
                wide += self.assigned(value, other, _LONGEST)
        for given, index in wide:
            made = _constructed(given)
            kinds.add(made if index is None else "")
        return self.source.classes.get(next(iter(kinds))) if len(kinds) == 1 else None

    def nearest(self, roots: Sequence[ast.expr], names: frozenset[str]) -> ast.Call | None:
        """Return the call of one of some functions or layers that is nearest to expressions, along the way that values
        take to them; None if there is none, or several at the same distance.
        """
        level = [(root, self.source.scope(root.lineno)) for root in roots]
        for _ in range(_DEPTH):
            found = {
                (node.lineno, node.col_offset): node
                for value, _scope in level
                for node in ast.walk(value)
                if isinstance(node, ast.Call) and called_name(node) in names
            }
            if found:
                return next(iter(found.values())) if len(found) == 1 else None
            level = [step for value, scope in level for step in self.behind(value, scope)]
            if not level or len(level) > _MOST:
                return None
        return None

    def behind(self, value: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """Yield the expressions that the names and calls of an expression stand for."""
        line = value.lineno
        for node in ast.walk(value):
            if not isinstance(node, ast.expr):
                continue
            if isinstance(node, ast.Call):
                inside = self.called(node, scope, line)
                if inside is not None:
                    yield from ((one, inside) for one, _ in _returns(inside))
                elif _key(node.func).startswith("self."):
                    for method in self.source.functions:
                        if method.name == "__init__":
                            yield from ((made, method) for made, _ in self.assigned(node.func, method, _LONGEST))
            elif _key(node) and isinstance(node, ast.Name):
                mark = (node.id, -line)
                if mark not in self._seen:
                    self._seen.add(mark)
                    yield from ((made, scope) for made, _ in self.assigned(node, scope, line))


class Layers:
    """The search for the expressions that create the layers of a model."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def attribute(self, kind: str, name: str) -> ast.expr | None:
        """Return the expression that a class assigns to ``self.name``; None if there are several or none."""
        owner = self.source.classes.get(kind)
        statements = [node for node in ast.walk(owner) if isinstance(node, ast.stmt)] if owner is not None else []
        found = [given for node in statements for given, index in _given(node, f"self.{name}") if index is None]
        return found[0] if len(found) == 1 else None

    def built(self, kinds: Sequence[str]) -> ast.expr | None:
        """Return the one ``Sequential`` of the file with layers of these types; None if there are several or none."""
        found = [
            node
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.Call)
            and called_name(node) == "Sequential"
            and [_constructed(arg) for arg in node.args] == list(kinds)
        ]
        return found[0] if len(found) == 1 else None

    @staticmethod
    def item(value: ast.expr, index: int) -> ast.expr | None:
        """Return the expression of one layer of a ``Sequential`` or ``ModuleList``; None if it is not written out."""
        if isinstance(value, ast.Call) and called_name(value) == "ModuleList" and len(value.args) == 1:
            value = value.args[0]
            if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
                return value.elt
        given = value.args if isinstance(value, ast.Call) and called_name(value) == "Sequential" else None
        given = value.elts if isinstance(value, (ast.List, ast.Tuple)) else given
        if given is None or any(isinstance(one, ast.Starred) for one in given[: index + 1]) or index >= len(given):
            return None
        return given[index]


def _quiet(text: str) -> str:
    r"""Replace escapes such as ``\d`` in strings, of which the parser would warn on the program's standard error, and
    a second time. The content of strings does not matter here, lines and columns stay.
    """
    return _ESCAPE.sub(lambda found: found[0] if found[1] in _KNOWN else f"_{found[1]}", text)


def _own(scope: Scope) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in order, without those of functions and classes inside it."""
    todo: list[ast.AST] = list(reversed(scope.body))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(reversed(list(ast.iter_child_nodes(node))))


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, tuple[int, int]]]:
    """Yield the statements of a function in order, each with the first and last line of its block. Functions and
    classes inside are left out.
    """
    if not body:
        return
    block = (body[0].lineno, body[-1].end_lineno or body[-1].lineno)
    for node in body:
        yield node, block
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def _targets(node: ast.stmt) -> set[str]:
    """Return the names, attributes and items that a statement assigns, as text."""
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return {_key(node.target)} - {""}
    found = set()
    for to in node.targets if isinstance(node, ast.Assign) else ():
        found |= {_key(one) for one in (to.elts if isinstance(to, (ast.Tuple, ast.List)) else (to,))}
    return found - {""}


def _uses(given: list[tuple[ast.expr, int | None]], key: str) -> bool:
    """Return True if a value that is assigned to a name uses the name."""
    return any(_key(one) == key for value, _ in given for one in ast.walk(value) if isinstance(one, ast.expr))


def _given(node: ast.stmt, key: str) -> list[tuple[ast.expr, int | None]]:
    """Return the values that a statement assigns to a name, each with the position of the name in a tuple."""
    if isinstance(node, ast.Assign):
        found: list[tuple[ast.expr, int | None]] = []
        for to in node.targets:
            if isinstance(to, (ast.Tuple, ast.List)):
                found += [(node.value, i) for i, one in enumerate(to.elts) if _key(one) == key]
                if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(to.elts):
                    found = [(node.value.elts[i], None) if i is not None else (one, i) for one, i in found]
            elif _key(to) == key:
                found.append((node.value, None))
        return found
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None and _key(node.target) == key:
        return [(node.value, None)]
    return []


def _is_start(value: ast.expr) -> bool:
    """Return True for the value that a sum begins with: ``0``, ``None``, ``torch.zeros(())``."""
    if isinstance(value, ast.Call):
        return called_name(value) in ("zeros", "zeros_like", "new_zeros", "tensor", "new_tensor")
    return isinstance(value, ast.Constant) or (isinstance(value, (ast.List, ast.Dict)) and not ast.unparse(value)[1:-1])


def _key(node: ast.expr) -> str:
    """Return a name, a dotted name or an item by a constant as text; "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _key(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = _key(node.value)
        return f"{inner}[{node.slice.value!r}]" if inner else ""
    return ""


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of the function or method that a call calls; "" if it has none."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _constructed(value: ast.expr) -> str:
    """Return the name of the class whose object an expression makes, as far as it shows: ``Net(...).to(device)``."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call):
            value = value.func.value
            continue
        return called_name(value)
    return ""


def _differentiated(call: ast.Call) -> ast.expr | None:
    """Return the loss of a call of ``loss.backward()``, ``scaler.scale(loss).backward()`` or ``tool.backward(loss)``;
    None if the call is none, or if it is not certain which one is the loss.
    """
    if called_name(call) not in ("backward", "manual_backward"):
        return None
    given = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
    if not isinstance(call.func, ast.Attribute):
        return given
    holder = call.func.value
    if given is None:
        return holder
    likely = [one for one in (holder, given) if _LOSSY.search(ast.unparse(one))]
    return likely[0] if len(likely) == 1 else None


def _parts(value: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that are losses if it is one; empty if the expression computes the loss."""
    if isinstance(value, ast.UnaryOp):
        return [value.operand]
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        return [value.left, value.right]
    if isinstance(value, ast.Call):
        name = called_name(value)
        if name in _BEHIND or name in ("sum", "stack", "cat"):
            return [
                one for arg in value.args for one in (arg.elts if isinstance(arg, (ast.List, ast.Tuple)) else [arg])
            ]
        if isinstance(value.func, ast.Attribute) and name in _REDUCERS:
            return [value.func.value]
    return []


def is_lossy(part: ast.expr) -> bool:
    """Return True if a part of an expression is a loss by its name, or has such parts."""
    if _key(part):
        return bool(_LOSSY.search(_key(part)))
    if isinstance(part, ast.Call) and not _parts(part):
        return bool(_LOSSY.search(ast.unparse(part.func)) or called_name(part) == "cross_entropy")
    return any(map(is_lossy, _parts(part)))


def _returns(function: Function) -> list[tuple[ast.expr, int | None]]:
    """Return the values that a function returns."""
    return [(node.value, None) for node in _own(function) if isinstance(node, ast.Return) and node.value is not None]
