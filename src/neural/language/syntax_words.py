"""Words for syntax errors: what lark's error means to the person who wrote the file.

lark names tokens (`RPAR`); a person is told what could stand there (`)`, "a layer, such as Dense(10)").
"""

from __future__ import annotations

import re
from typing import Any

from neural.errors import Problem, Sources, Span, nearest
from neural.language.tree import SECTIONS

OPENING = {"LPAR": "(", "LSQB": "[", "LBRACE": "{"}
CLOSING = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
MARKS = {
    "COMMA": "','", "EQUAL": "'='", "COLON": "':'", "LPAR": "'('", "LBRACE": "'{'", "RPAR": "')'", "RSQB": "']'",
    "RBRACE": "'}'",
}  # fmt: skip
CLOSED = {"RPAR": "LPAR", "RSQB": "LSQB", "RBRACE": "LBRACE"}
_QUOTED = re.compile(r"""#[^\n]*|//[^\n]*|/\*[\s\S]*?\*/|"[^"\n]*"|'[^'\n]*'""")
"""Comments and strings, in which brackets do not count."""
VALUE_STARTS = frozenset({"NUMBER", "STRING", "LSQB"})
TOP_LEVEL = ("network", "define", "research")


def problem_of(error: Any, sources: Sources) -> Problem:
    """Return the problem that an error of lark's parser or lexer stands for."""
    token = getattr(error, "token", None)
    if token is None:
        return _strange_character(error, sources)
    stack = list(error.interactive_parser.parser_state.value_stack)
    accepted = set(error.interactive_parser.accepts())
    opened = [each for each in _unfinished(stack) if getattr(each, "type", None) in OPENING]
    if token.type == "$END":
        return _ends_early(opened, accepted, stack, sources)
    place = Span(token.line, token.column, token.end_line, token.end_column)
    begins = not sources.lines[place.line - 1][: place.column - 1].strip()
    later = stack[-1] if stack and str(token) == ":" and getattr(stack[-1], "type", None) == "NAME" else None
    if later is not None:  # `layers:` after an open bracket is read up to its colon
        begins = not sources.lines[later.line - 1][: later.column - 1].strip()
    unclosed = _unclosed(opened, place, stack, sources) if begins else None
    return unclosed or _misplaced(str(token), place, accepted, stack, sources)


def _unclosed(opened: list[Any], place: Span, stack: list[Any], sources: Sources) -> Problem | None:
    """Return the problem of a round or square bracket of an earlier line, if that is the innermost one that is open."""
    token = opened[-1] if opened else None
    if token is None or token.type == "LBRACE" or token.line >= place.line:
        return None
    plain = _QUOTED.sub("", "\n".join(sources.lines))
    if plain.count(token) <= plain.count(CLOSING[token.type]):  # it is closed: something else is wrong in between
        return None
    at = next((index for index, each in enumerate(stack) if each is token), 0)
    owner = stack[at - 1] if at else None
    if getattr(owner, "type", None) == "COLON":
        owner = stack[at - 2]
    named = isinstance(owner, str) and str(owner).isidentifier()
    message = (
        f"the {token} of {owner} in line {token.line} is never closed" if named else f"this {token} is never closed"
    )
    span = Span(token.line, token.column, token.end_line, token.end_column)
    return sources.problem(message, span, expected=f"a {CLOSING[token.type]} before line {place.line}")


def _misplaced(text: str, place: Span, accepted: set[str], stack: list[Any], sources: Sources) -> Problem:
    before = stack[-1] if stack else None
    name = str(before) if getattr(before, "type", None) == "NAME" else ""
    if before is not None and name and text == ":":
        message = f"something is missing before {name!r}"
        return sources.problem(message, Span(before.line, before.column, before.end_line, before.end_column))
    if name in SECTIONS or (name and _context(stack) == "settings"):
        return sources.problem(f"a colon is missing after {name}", place, expected=f"{name}: ...")
    if "COMMA" in accepted and accepted & {"RPAR", "RSQB"} and (text[0].isalnum() or text[0] in "\"'$[(_"):
        return sources.problem(f"a comma is missing before {shown(text)}", place, expected=expectation(accepted, stack))
    suggestion = nearest(text, TOP_LEVEL) if not _context(stack) and text not in TOP_LEVEL else ""
    message = f"{shown(text)} cannot stand here"
    return sources.problem(message, place, expected=expectation(accepted, stack), suggestion=suggestion)


def _ends_early(opened: list[Any], accepted: set[str], stack: list[Any], sources: Sources) -> Problem:
    if not opened:
        last = len(sources.lines)
        place = Span(last, len(sources.lines[-1]) + 1, last, len(sources.lines[-1]) + 2)
        return sources.problem("the file ends too early", place, expected=expectation(accepted, stack))
    token = opened[-1]
    place = Span(token.line, token.column, token.end_line, token.end_column)
    closing = CLOSING[token.type]
    return sources.problem(f"this {token} is never closed", place, expected=f"a {closing} before the end of the file")


def _strange_character(error: Any, sources: Sources) -> Problem:
    place = Span(error.line, error.column, error.line, error.column + 1)
    line = sources.lines[error.line - 1]
    rest = line[error.column - 1 :]
    if rest[:1] in {'"', "'"}:
        return sources.problem(
            "this string is never closed",
            Span(error.line, error.column, error.line, len(line) + 1),
            expected=f"a {rest[0]} on the same line",
        )
    if rest.startswith("$"):
        return sources.problem("a $ without a name", place, expected="a parameter of the macro, such as $units")
    state = getattr(error, "interactive_parser", None)
    words = ""
    if state is not None:
        words = expectation(set(state.accepts()), list(state.parser_state.value_stack))
    return sources.problem(f"the character {rest[:1]!r} cannot stand here", place, expected=words)


def shown(text: str) -> str:
    """Return a token in quotes, shortened if it is long."""
    text = text if len(text) <= 30 else text[:27] + "..."
    return text if text[0] in "\"'" else f"'{text}'"


def _context(stack: list[Any]) -> str:
    """Return what is not finished: "arguments", "list", "layers", "body" or "settings", "" outside of all."""
    stack = _unfinished(stack)
    for index in range(len(stack) - 1, -1, -1):
        kind = getattr(stack[index], "type", None)
        if kind == "LPAR":
            return "arguments"
        if kind == "LSQB" and getattr(stack[index - 1], "type", None) not in {"LAYERS", "COLON"}:
            return "list"
        if kind == "LAYERS":
            return "layers"
        if kind == "LBRACE":
            return _braces(stack[:index])
    return ""


def _unfinished(stack: list[Any]) -> list[Any]:
    """Return the stack without brackets that are closed, and what is in them."""
    kept: list[Any] = []
    for each in stack:
        kind = getattr(each, "type", None)
        if kind in CLOSED:
            while kept and getattr(kept[-1], "type", None) != CLOSED[kind]:
                kept.pop()
            del kept[-1:]
        else:
            kept.append(each)
    return kept


def _braces(before: list[Any]) -> str:
    kinds = [getattr(each, "type", None) for each in before[-2:]]
    if kinds[:1] == ["NETWORK"]:
        return "body"
    if "DEFINE" in kinds:
        return "layers"
    outer = _context(before)
    return "layers" if outer == "layers" else "settings"


def expectation(accepted: set[str], stack: list[Any]) -> str:
    """Return what could stand at the end of what was read, in words."""
    context = _context(stack)
    last = getattr(stack[-1], "type", None) if stack else None
    if last in {"NETWORK", "DEFINE"}:
        return f"a name, such as {stack[-1]!s} MyModel"
    words = []
    if accepted >= VALUE_STARTS:
        words.append('a value, such as 10, "relu" or (3, 3)')
    elif "NETWORK" in accepted:
        words.append("a definition, such as network MyModel { ... }")
    elif "NAME" in accepted or "SECTION" in accepted:
        words += {
            "layers": ["a layer, such as Dense(10)"],
            "body": ['a section, such as loss: "mse"'],
            "settings": ["a setting, such as epochs: 10"],
        }.get(context, ["a name"])
        if context == "layers" and "SECTION" in accepted:
            words.append('a section, such as loss: "mse"')
    hidden = {"COMMA", "LBRACE", "LPAR"} if words and context != "list" else set()
    hidden -= {"COMMA"} if context == "arguments" else set()
    words += [mark for kind, mark in MARKS.items() if kind in accepted and kind not in hidden]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)
