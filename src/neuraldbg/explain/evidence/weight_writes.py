"""The lines of the user's code that write to weights beside the optimizer, found in the functions of a training step.

The lines of the PLACES fact enter; those leave that initialise, load, assign to, or change in place a weight: an
operation in place on ``.data`` or on what a loop over parameters yields, ``load_state_dict`` of a model,
``nn.init``, ``reset_parameters``. Each line is read on its own; nothing is executed. What is written to a gradient, or
to the state of an optimizer, is no weight.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.inputs import place
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing
    from neuraldbg.nouns.facts.kinds import SourceLine

WRITES = "weights are written to"
"""Operation on such a line."""
SHOWN = 3
"""Lines of the program up to which each is quoted."""
_LONGEST = 8
"""Opening brackets of a statement of several lines that are closed to read its first line."""
_WEIGHTS = frozenset({"weight", "bias"})
"""Attributes that are weights in torch's own layers."""
_PARAMETERS = frozenset({"parameters", "named_parameters"})
_WHOLE = frozenset({"reset_parameters", "vector_to_parameters", "_load_from_state_dict"})
"""Functions that write to all weights of a layer."""
_OTHERS = frozenset({
    "avg", "average", "averaged", "backup", "best", "criterion", "ema", "loader", "loss", "momentum", "old", "opt",
    "optim", "optimizer", "sampler", "scaler", "sched", "scheduler", "swa", "target", "teacher",
})  # fmt: skip
"""Words in the names of objects that are not the model that is trained, or a copy of it."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_HEADS = (
    "{}", "{}\n pass", "if 0: pass\n{}", "if 0: pass\n{}\n pass", "try: pass\n{}", "try: pass\n{}\n pass",
)  # fmt: skip
"""Frames in which a line stands that is no statement by itself: the head of a loop, ``else`` and ``except``."""


def writing_lines(case: Case, names: Iterable[str]) -> list[SourceLine]:
    """Return the lines that write to the weights of some ``names`` in the order in which they stand in the source; of
    lines that name a weight, those alone that name one of these.
    """
    fact, wanted = case.run.known(PlacesFact), set(names)
    own = _WEIGHTS | {name.rpartition(".")[2] for name in wanted}
    found: dict[SourceLine, bool] = {}
    for kind, lines in fact.lines.items() if fact is not None else ():
        if not kind.startswith("code "):
            continue
        trees = [(line, tree) for line in lines if (tree := _parsed(line.text)) is not None]
        yielded = {name for _, tree in trees for name in _loop_names(tree, own)}
        for line, tree in trees:
            texts = [text for node in ast.walk(tree) for text in _written(node, yielded, own)]
            if texts:
                found[line] = any(_is_named(text, wanted) for text in texts)
    named = [line for line, mine in found.items() if mine]
    return named or list(found)


def quoted(line: SourceLine) -> str:
    """Write a line with its place: ``p.mul_(20.0) (train.py line 132)``."""
    return f"{line.text.strip()}{place(line)}"


def weigh_lines(weigh: Weighing, lines: Sequence[SourceLine]) -> SourceLine | None:
    """Add that one line writes to weights, and return it; None if there are several, or none."""
    if len(lines) != 1:
        return None
    weigh.speaks(f"one line of the functions of a training step writes to weights: {quoted(lines[0])}", 0.5)
    return lines[0]


def search(lines: Sequence[SourceLine], otherwise: str) -> str:
    """Tell where to look for the code that writes to weights: at the lines that can, if they are few."""
    if not 0 < len(lines) <= SHOWN:
        return otherwise
    return f"Look at the line{'s' * (len(lines) > 1)} that can write to them: {'; '.join(map(quoted, lines))}."


def _parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of one line; None if it is no statement even with its brackets closed."""
    text = text.strip()
    for closed in (text, *(_closed(text))):
        for head in _HEADS:
            try:
                return ast.parse(head.format(closed))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return None


def _closed(text: str) -> Iterator[str]:
    """Yield a line whose open brackets are closed; nothing if it has none, or too many."""
    pairs, waiting = {"(": ")", "[": "]", "{": "}"}, []
    for sign in text:
        if sign in pairs:
            waiting.append(pairs[sign])
        elif waiting and sign == waiting[-1]:
            waiting.pop()
    if 0 < len(waiting) <= _LONGEST:
        yield text.rstrip(",") + "".join(reversed(waiting))


def _loop_names(tree: ast.Module, own: AbstractSet[str]) -> Iterator[str]:
    """Yield the names to which a line gives weights: ``p`` in ``for p in model.parameters()`` or ``p = fc1.weight``."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)):
            for target, given in _pairs(node.target, node.iter):
                if _has_parameters(given):
                    yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
        elif (
            isinstance(node, ast.Assign)
            and not _of_gradients(node.value)
            and (_has_parameters(node.value) or _is_weight(node.value, set(), own))
        ):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def _pairs(target: ast.expr, given: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return what a loop fills from what: the names of ``for a, b in zip(x, y)`` each from its own."""
    if isinstance(given, ast.Call) and isinstance(target, ast.Tuple) and _called_name(given) == "zip":
        return list(zip(target.elts, given.args, strict=False))
    return [(target, given)]


def _has_parameters(node: ast.expr) -> bool:
    """Return True if an expression gives the parameters of a model, and not those of an average of its weights."""
    return any(
        isinstance(one, ast.Attribute) and one.attr in _PARAMETERS and not _is_other(ast.unparse(one.value))
        for one in ast.walk(node)
    )


def _is_other(text: str) -> bool:
    """Return True if a name says that an object is not the model that is trained."""
    return any(word.lower() in _OTHERS for word in _WORD.findall(text))


def _written(node: ast.AST, yielded: AbstractSet[str], own: AbstractSet[str]) -> Iterator[str]:
    """Yield what a part of a line writes to, as text, if that is a weight."""
    if isinstance(node, ast.Call):
        yield from _written_by_call(node, yielded, own)
    for target in _targets(node):
        inner = target.value if isinstance(target, ast.Subscript) else target
        whole = isinstance(node, ast.Assign) and isinstance(target, ast.Name)  # another object gets the name
        if not whole and _is_weight(inner, yielded, own):
            yield ast.unparse(inner)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign) else []


def _written_by_call(call: ast.Call, yielded: AbstractSet[str], own: AbstractSet[str]) -> Iterator[str]:
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    owner = function.value if isinstance(function, ast.Attribute) else None
    said = ast.unparse(owner) if owner is not None else ""
    given = [ast.unparse(one) for one in call.args]
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    if name == "load_state_dict":
        if not _is_other(said):
            yield said
    elif name in _WHOLE:
        yield said
    elif in_place and said.rpartition(".")[2] == "init":
        yield given[0] if given else said
    elif in_place and name.startswith("_foreach_"):
        if call.args and (_has_parameters(call.args[0]) or _is_weight(call.args[0], yielded, own)):
            yield given[0]
    elif in_place and owner is not None and _is_weight(owner, yielded, own):
        yield said


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_weight(node: ast.expr, yielded: AbstractSet[str], own: AbstractSet[str]) -> bool:
    """Return True for a weight, or a part of one: ``fc1.weight``, ``fc1.weight.data``, a name that a loop over
    parameters yields. ``own`` are the last parts of the names of weights.
    """
    if isinstance(node, ast.Subscript):
        return _is_weight(node.value, yielded, own)
    if isinstance(node, ast.Name):
        return node.id in yielded
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # p.data.view(-1)[0], p.detach().mul_(2)
        return _is_weight(node.func.value, yielded, own) and node.func.attr in ("detach", "view", "flatten", "reshape")
    if not isinstance(node, ast.Attribute):
        return False
    if _of_gradients(node):
        return False
    if node.attr == "data":
        return _is_weight(node.value, yielded, own)
    return node.attr in own and not _is_other(ast.unparse(node.value))


def _of_gradients(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr in ("grad", "state") for one in ast.walk(node))


def _is_named(text: str, wanted: set[str]) -> bool:
    """Return True if a text names one of some parameters, by the end of its path: ``self.net.head.weight.data``."""
    path = text.removesuffix(".data")
    return any(path == name or path.endswith(f".{name}") for name in wanted)
