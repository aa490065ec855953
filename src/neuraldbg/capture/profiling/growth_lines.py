"""The lines of the program that keep what grows and that make it, found in the source.

The place that holds a growing object enters; the line that adds to it leaves (``losses.append(loss)``), that line as it
would keep no graph (``losses.append(loss.item())``), and the line that makes what is added. Nothing is executed.
Several lines that could be the one are none: a line that is not certain is worse.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.source_trace import Source, called_name
from neuraldbg.capture.guest.user_code import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.guest.source_trace import Scope
    from neuraldbg.capture.profiling.held_objects import Spot

_ADDS = frozenset({"append", "appendleft", "add", "insert", "extend", "update", "setdefault", "put"})
"""Methods that add to a container."""
_DROPS = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard", "move_to_end", "get_nowait"})
"""Methods that take from a container, or keep an order by which items are taken."""
_ASKS = frozenset({"get", "setdefault"})
"""Methods that look an item up before one is added, as a cache does; ``get`` takes one from a queue."""
_HEAP_DROPS = frozenset({"heappop", "heappushpop", "heapreplace", "nsmallest", "nlargest"})
"""Functions that take from a heap, or keep the best of a list."""
_HEAP_ADDS = frozenset({"heappush", "insort", "insort_left", "insort_right"})
"""Functions that add to a sorted list."""
_MISSING = frozenset({"KeyError", "IndexError", "LookupError"})
"""Errors of an item that is not there."""
_FREE = frozenset({"item", "detach", "tolist", "numpy", "float", "int"})
"""Calls whose result has no graph."""

_CONTAINERS = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict"})


@dataclass(frozen=True)
class Lines:
    """The lines at which something grows."""

    kept: Place | None = None
    made: Place | None = None
    holder: str = ""
    """The object that grows, as the line that adds to it writes it."""
    mended: str = ""
    """That line as it would keep no graph, empty if it is not known."""


@dataclass(frozen=True)
class _Growth:
    source: Source
    node: ast.stmt | ast.Call
    target: ast.expr
    value: ast.expr | None
    scope: Scope


class GrowthLines:
    """The search for the lines of one growing object. ``source`` returns the syntax tree of a file."""

    def __init__(self, source: Callable[[str], Source], spot: Spot) -> None:
        self._source, self._spot = source, spot

    def find(self, *, graph: bool, item: bool, scalar: bool) -> Lines:
        """Return the lines. ``item`` is True for an item of a container, False for a value that grows by itself."""
        for file in self._spot.files:
            found = [one for one in self._growths(file) if one.node.lineno and self._fits(one, item=item)]
            loud = [one for one in found if not graph or not _is_free(one.value)]
            if len({one.node.lineno for one in loud}) == 1:
                return self._told(loud[0], scalar=scalar)
            if loud:
                return Lines(holder=ast.unparse(loud[0].target))
        return Lines()

    def limited(self, *, graph: bool) -> bool:
        """Return True if the program takes items away again, tests the size, or looks an item up before it adds one.
        Without graphs it also counts if it begins again with an empty container.
        """
        if self._spot.limited:
            return True
        for file in self._spot.files[:2]:
            nodes = [node for node, _scope in self._nodes(file)]
            filled = {id(inner) for node in nodes if (inner := self._opened(node)) is not None}
            for node in nodes:
                if id(node) not in filled and (self._limits(node) or (not graph and self._begins_again(node, file))):
                    return True
        return False

    def begins_again(self) -> bool:
        """Return True if the program puts an empty container in its place now and then, as at the start of an epoch."""
        return any(self._begins_again(node, file) for file in self._spot.files[:2] for node, _ in self._nodes(file))

    def renewed(self) -> bool:
        """Return True if the program assigns it again without its old value, in a loop or in a later method."""
        return any(
            self._assigned_again(node, file, lambda value: not self._uses(value))
            for file in self._spot.files[:2] for node, _ in self._nodes(file)
        )  # fmt: skip

    def _opened(self, node: ast.AST) -> ast.Call | None:
        """Return the call that looks up a container to which something is added: ``runs.setdefault("train", [])`` in
        ``runs.setdefault("train", []).append(loss)``.
        """
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
            inner = node.func.value
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _ASKS:
                return inner if self._is_target(inner.func.value) else None
        return None

    def _takes(self, call: ast.Call) -> bool:
        """Return True if a call takes items away, or looks one up."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _DROPS | _ASKS:
            return self._is_target(call.func.value)
        return called_name(call) in _HEAP_DROPS and any(self._is_target(arg) for arg in call.args)

    def _limits(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._takes(node)
        if isinstance(node, ast.Try):
            return _asks_for_missing(node) and any(
                isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load) and self._is_target(inner)
                for one in node.body for inner in ast.walk(one)
            )  # fmt: skip
        if isinstance(node, ast.Delete):
            return any(isinstance(one, ast.Subscript) and self._is_target(one.value) for one in node.targets)
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            sized = any(
                isinstance(inner, ast.Call) and called_name(inner) == "len" and inner.args
                and self._is_target(inner.args[0])
                for side in sides for inner in ast.walk(side)
            )  # fmt: skip
            within = any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
            return sized or (within and any(self._is_target(side) for side in node.comparators))
        if isinstance(node, ast.Assign):
            goals = [to for to in node.targets if self._is_target(to)]
            return any(map(_by_remainder, goals)) or (bool(goals) and self._cuts(node.value))
        return False

    def _cuts(self, value: ast.expr) -> bool:
        """Return True if a value is a part of the object: ``log[-100:]``, ``torch.cat([log, x])[-100:]``, a filter."""
        for node in ast.walk(value):
            if isinstance(node, ast.Subscript):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                part = any(isinstance(one, ast.Slice) and (one.lower or one.upper) for one in parts)
                if part and self._uses(node):
                    return True
            filtered = isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)) and node.generators
            if filtered and any(one.ifs and self._uses(one.iter) for one in filtered):
                return True
        return False

    def _begins_again(self, node: ast.AST, file: str) -> bool:
        """Return True for an assignment of an empty container in a loop, or in a method other than ``__init__``."""
        return self._assigned_again(node, file, _is_empty)

    def _assigned_again(self, node: ast.AST, file: str, of: Callable[[ast.expr], bool]) -> bool:
        """Return True for an assignment of such a value in a loop, or in a method other than ``__init__``."""
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(self._is_target(to) for to in targets) or not of(node.value):
            return False
        source = self._source(file)
        scope = source.scope(node.lineno)
        if self._spot.attribute:
            return not isinstance(scope, ast.Module) and scope.name not in ("__init__", "__new__", "__post_init__")
        loops = (one for one in ast.walk(scope) if isinstance(one, (ast.For, ast.While, ast.AsyncFor)))
        return any(one.lineno <= node.lineno <= (one.end_lineno or 0) for one in loops)

    def _nodes(self, file: str) -> Iterator[tuple[ast.AST, Scope]]:
        """Yield the nodes where the object can be meant: of one function for its variable, else of the file."""
        source = self._source(file)
        root: Scope = source.tree
        if not self._spot.attribute and self._spot.line and file == self._spot.files[0]:
            starts = [
                one for one in source.functions
                if self._spot.line in (one.lineno, *(d.lineno for d in one.decorator_list))
            ]  # fmt: skip
            root = starts[0] if starts else root
        for node in ast.walk(root):
            yield node, root

    def _growths(self, file: str) -> Iterator[_Growth]:
        source = self._source(file)
        nodes = [node for node, _scope in self._nodes(file)]
        filled = {id(inner) for node in nodes if (inner := self._opened(node)) is not None}
        for node in nodes:
            line = getattr(node, "lineno", None)
            if line is None:
                continue
            for target, value in () if id(node) in filled else self._additions(node):
                yield _Growth(source, node, target, value, source.scope(line))  # type: ignore[arg-type]

    def _additions(self, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if self._spot.adds:
                if node.func.attr == self._spot.adds:
                    yield node.func.value, None
            elif node.func.attr in _ADDS and (self._is_target(node.func.value) or self._opened(node) is not None):
                yield node.func.value, node.args[-1] if node.args else None
            elif called_name(node) in _HEAP_ADDS and node.args and self._is_target(node.args[0]):
                yield node.args[0], node.args[-1]
        elif isinstance(node, ast.AugAssign) and self._is_target(node.target):
            yield node.target, node.value
        elif isinstance(node, ast.Assign) and not self._spot.adds:
            for to in node.targets:
                for one in to.elts if isinstance(to, (ast.Tuple, ast.List)) else (to,):
                    whole = not isinstance(one, ast.Subscript)
                    if self._is_target(one) and (not whole or self._uses(node.value)):
                        yield one, node.value

    def _fits(self, one: _Growth, *, item: bool) -> bool:
        """Return True if an addition adds an item, or changes the value itself, as is wanted."""
        calls = isinstance(one.node, ast.Call)
        subscript = isinstance(one.target, ast.Subscript)
        return item or not calls or subscript

    def _is_target(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            return self._spot.attribute and node.attr == self._spot.name
        return isinstance(node, ast.Name) and not self._spot.attribute and node.id == self._spot.name

    def _uses(self, value: ast.expr) -> bool:
        return any(isinstance(one, ast.expr) and self._is_target(one) for one in ast.walk(value))

    def _told(self, one: _Growth, *, scalar: bool) -> Lines:
        kept = _place(one.source, one.node.lineno)
        holder = self._spot.code if isinstance(one.target, ast.Call) else ast.unparse(one.target)
        return Lines(kept, self._made(one) or kept, holder, _mended(one, scalar=scalar))

    def _made(self, one: _Growth) -> Place | None:
        """Return the line that assigns what is added, where that is a name, or a part of it is."""
        known = one.source.assignments(one.scope)
        for name in _names(one.value):
            above = [given for given, _ in known.get(name, ()) if given.lineno < one.node.lineno]
            if above and name != self._spot.name:
                return _place(one.source, above[-1].lineno)
        return None


def _names(value: ast.expr | None) -> Iterator[str]:
    """Yield the names whose values an expression hands on; what a function is given it may use up."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        yield from _names(value.func.value)
    elif isinstance(value, ast.Subscript):
        yield from _names(value.value)
    elif isinstance(value, (ast.BinOp, ast.Tuple, ast.List, ast.Dict)):
        for child in ast.iter_child_nodes(value):
            yield from _names(child) if isinstance(child, ast.expr) else ()


def _mended(one: _Growth, *, scalar: bool) -> str:
    """Return the line of an addition with ``.item()`` or ``.detach()`` at what is added, empty if it is not simple."""
    value, node, end = one.value, one.node, "item" if scalar else "detach"
    if value is None or isinstance(value, (ast.Tuple, ast.Dict, ast.List, ast.DictComp, ast.ListComp)):
        return ""
    if isinstance(node, ast.Assign) and any(isinstance(to, (ast.Tuple, ast.List)) for to in node.targets):
        name = ast.unparse(one.target)
        return f"{name} = {name}.detach()"
    added = value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(node, ast.Assign):
        # of a sum with its old value only what is added has to lose its graph
        sides = [side for side in (value.left, value.right) if ast.unparse(side) != ast.unparse(one.target)]
        added = sides[0] if len(sides) == 1 else value
    simple = isinstance(added, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    text = ast.unparse(added)
    before, found, after = ast.unparse(node).rpartition(text)
    return f"{before}{text if simple else f'({text})'}.{end}(){after}" if found and "\n" not in before else ""


def _place(source: Source, line: int) -> Place:
    return Place(source.file, line, linecache.getline(source.file, line).strip()[:160])


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.Tuple)):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    return isinstance(value, ast.Call) and called_name(value) in _CONTAINERS


def _asks_for_missing(node: ast.Try) -> bool:
    """Return True if a ``try`` catches the error of an item that is not there."""
    caught = [one.type for one in node.handlers]
    return any(
        isinstance(inner, ast.Name) and inner.id in _MISSING
        for kind in caught if kind is not None for inner in ast.walk(kind)
    )  # fmt: skip


def _by_remainder(target: ast.expr) -> bool:
    """Return True for an item whose key is a remainder, of which there are so many only: ``ring[i % 100]``."""
    if not isinstance(target, ast.Subscript):
        return False
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)
        and not isinstance(one.left, ast.JoinedStr)
        and not (isinstance(one.left, ast.Constant) and isinstance(one.left.value, str))
        for one in ast.walk(target.slice)
    )  # fmt: skip


def _is_free(value: ast.expr | None) -> bool:
    """Return True for a value that surely has no graph: ``loss.item()``, ``float(loss)``, ``x.detach().cpu()``."""
    while isinstance(value, ast.Call):
        if called_name(value) in _FREE:
            return True
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return isinstance(value, ast.Constant)
