"""Remedies in the names of the user's program: generic code and the lines of the program enter, code to paste leaves.

The code of a cause says ``model``, ``optimizer``, ``loss`` and ``x``. The lines of the PLACES fact show the program's
own names for them: ``total.backward()``, ``self.opt.step()``, ``net.parameters()``, ``out = net(images)``. Where a
program has several, as a GAN has, or the line has no name, the generic one stays.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.nouns import CodeLine
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Edit, Remedy
    from neuraldbg.nouns.facts.kinds import SourceLine

_NAME = r"[A-Za-z_][\w.]*"
_LOSS = re.compile(rf"(?<![\w.)\]])({_NAME})\.backward\(")
_SCALED = re.compile(rf"({_NAME})\.scale\(\s*({_NAME})\s*\)\.backward\(")
_STEP = re.compile(rf"(?<![\w.)\]])({_NAME})\.step\(\s*({_NAME})?\s*\)")
_OWNER = re.compile(rf"(?<![\w.)\]])({_NAME})\.(?:named_)?parameters\(\)")
_MADE = re.compile(rf"^\s*({_NAME})\s*(?::[^=]+)?=[^=]")
_CALLED = re.compile(rf"^\s*(?:[\w.,\s*()]+=\s*)?({_NAME})\(\s*({_NAME})?\s*[,)]")


WHEN_MADE = "# after the model is made and initialised, before its optimizer and any copy of it:"
"""Comment above code that changes the finished model."""


@dataclass(frozen=True)
class Names:
    """The program's own names in one place, by the generic name that stands in remedies."""

    loop: Mapping[str, str]
    """Names in the training loop."""
    made: Mapping[str, str]
    """Names where the optimizer is made."""

    def at(self, kind: str) -> Mapping[str, str]:
        """Return the names at a kind of line."""
        return self.made if kind == "optimizer" else self.loop


def in_user_names(case: Case, remedy: Remedy) -> Remedy:
    """Return a remedy whose code and edits have the names of the user's program, and whose edits have their lines."""
    known = case.run.known(PlacesFact)
    lines = known.lines if known is not None else {}
    names = names_in(lines)
    edits = tuple(_placed(edit, names, lines) for edit in remedy.edits)
    kinds = {edit.at for edit in edits} or ({"optimizer"} if makes_optimizer(remedy.code) else set())
    whole = dict(names.made if kinds == {"optimizer"} else names.loop)
    if "forward" not in kinds:  # code of a model's method: x is not the batch of the loop
        whole.pop("x", None)
    code = _as_made(edits) or renamed(remedy.code, whole)
    if edits and all(edit.how == "before" and edit.at == "optimizer" for edit in edits):
        code = f"{WHEN_MADE}\n{code}"
    return replace(remedy, code=code, edits=edits)


def makes_optimizer(code: str) -> bool:
    """Return True if the first line of some code makes the optimizer."""
    return code.startswith("optimizer = ")


def names_in(lines: Mapping[str, Sequence[SourceLine]]) -> Names:
    """Return the program's names, from the lines at which a step happens."""
    texts = {kind: [line.text for line in found if line.text] for kind, found in lines.items()}
    loop: dict[str, set[str]] = {"loss": set(), "scaler": set(), "optimizer": set(), "model": set(), "x": set()}
    for text in texts.get("backward", ()):
        scaled = _SCALED.search(text)
        if scaled:
            loop["scaler"].add(scaled[1])
            loop["loss"].add(scaled[2])
        elif found := _LOSS.search(text):
            loop["loss"].add(found[1])
    for text in texts.get("step", ()):
        if found := _STEP.search(text):
            loop["optimizer"].add(found[2] or found[1])
    made, owners = set(), set()
    for text in texts.get("optimizer", ()):
        made |= {found[1] for found in [_MADE.search(text)] if found}
        owners |= set(_OWNER.findall(text))
    for text in texts.get("forward", ()):
        for model, given in _calls(text, owners):
            loop["model"].add(model)
            loop["x"] |= {given} if given else set()
    if not loop["model"]:
        loop["model"] = {name for name in owners if not name.startswith("self.")}
    there = {"optimizer": made, "model": owners}
    return Names(_single(loop), _single(there))


def _single(found: Mapping[str, set[str]]) -> dict[str, str]:
    return {generic: min(names) for generic, names in found.items() if len(names) == 1}


def _calls(text: str, owners: set[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the model and its first argument, if a name, of a line that calls the model."""
    last = {owner.rpartition(".")[2] for owner in owners}
    for found in re.finditer(rf"(?<![\w.])({_NAME})\(\s*(?:({_NAME})\s*[,)])?", text):
        if found[1].rpartition(".")[2] in last:
            yield found[1], found[2]
            return
    called = _CALLED.match(text)
    if called is not None and "." not in called[1].removeprefix("self."):
        yield called[1], called[2]


def renamed(code: str, names: Mapping[str, str]) -> str:
    """Replace generic names in some code. Attributes, keywords of calls and comments stay as they are."""
    if not any(generic in code and generic != own for generic, own in names.items()):
        return code
    found: list[tuple[tuple[int, int], str, str]] = []
    before, depth = "", 0
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, IndentationError):
        return code
    for token, after in itertools.pairwise(tokens):
        if token.type == tokenize.NAME and token.string in names and before != ".":
            keyword = depth > 0 and after.string == "="
            if not keyword:
                found.append((token.start, token.string, names[token.string]))
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        before = token.string
    lines = code.split("\n")
    for (row, column), generic, own in reversed(found):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + own + line[column + len(generic) :]
    return "\n".join(lines)


def _placed(edit: Edit, names: Names, lines: Mapping[str, Sequence[SourceLine]]) -> Edit:
    found = lines.get(edit.at, ())
    line = CodeLine(found[0].file, found[0].number, found[0].text) if len(found) == 1 else None
    return replace(edit, code=renamed(edit.code, names.at(edit.at)), line=line)


def _as_made(edits: Sequence[Edit]) -> str:
    """Return the user's line with the arguments of a single edit set; "" if that is not all, or the line not whole."""
    if len(edits) != 1 or edits[0].how != "arguments" or edits[0].line is None:
        return ""
    return with_arguments(edits[0].line.code.strip(), edits[0].code)


def with_arguments(statement: str, arguments: str) -> str:
    """Set keyword arguments of the outermost call of a statement; "" if it has none, or is not whole.

    Of several statements in one line it is the one that makes the optimizer: the only one with a call, or the only one
    whose call is given parameters. The learning rate is the second argument of every optimizer of torch, and may be
    given without its name.
    """
    try:
        tree = ast.parse(statement)
        given = ast.parse(f"f({arguments})").body[0]
    except (SyntaxError, ValueError):
        return ""
    calls = [call for part in tree.body if (call := _outermost(part)) is not None]
    if len(calls) > 1:
        calls = [call for call in calls if _takes_parameters(call)]
    call = calls[0] if len(calls) == 1 else None
    assert isinstance(given, ast.Expr)
    assert isinstance(given.value, ast.Call)
    if call is None:
        return ""
    for keyword in given.value.keywords:
        if keyword.arg == "lr" and len(call.args) > 1:
            call.args[1] = keyword.value
            continue
        call.keywords = [one for one in call.keywords if one.arg != keyword.arg]
        call.keywords.append(keyword)
    if given.value.args:
        call.args[: len(given.value.args)] = given.value.args
    return ast.unparse(tree)


def _outermost(statement: ast.stmt) -> ast.Call | None:
    """Return the outermost call of a statement, the first one of several; None if there is none."""
    return next((node for node in ast.walk(statement) if isinstance(node, ast.Call)), None)


def _takes_parameters(call: ast.Call) -> bool:
    """Return True if a call of an argument is that of a model's parameters."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters")
        for value in given
        for node in ast.walk(value)
    )
