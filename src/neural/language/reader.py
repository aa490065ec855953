"""Read `.neural` text: a path or a string enters, a `SourceFile` leaves, or an error that says where and why."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.errors import FileUnreadable, MissingPackage, Sources, Span, SyntaxFault
from neural.language.syntax_words import problem_of
from neural.language.tree import Comment, SourceFile
from neural.language.tree_builder import Misread, TreeBuilder

if TYPE_CHECKING:
    import os

    from neural.language.tree import Value

EXTENSIONS = (".neural", ".nr", ".rnr")
LARGEST = 200_000
"""Characters of a file that is read; the largest public one has 13,000, and 200,000 take some two seconds."""
DEEPEST = 40
"""Brackets inside brackets: what reads the tree calls itself once for each."""
PIECES = re.compile(
    r"""(?P<comment>\#[^\n]*|//[^\n]*|/\*[\s\S]*?\*/)|"[^"\n]*"|'[^'\n]*'|(?P<bracket>[][(){}])|(?P<unclosed>/\*)"""
)


def read(path: str | os.PathLike[str]) -> SourceFile:
    """Return the tree of a file.

    FileUnreadable is raised if there is no such text, SyntaxFault if it is not of the language.
    """
    path = Path(path)
    if path.suffix.lower() not in EXTENSIONS:
        raise FileUnreadable(
            f"{path}: the extension is {path.suffix or 'missing'}, and must be one of .neural, .nr, .rnr"
        )
    raw = _bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FileUnreadable(f"{path}: byte {raw[error.start]:#04x} in line {line} is not UTF-8") from None
    return parse(text, name=str(path))


def _bytes(path: Path) -> bytes:
    """Return what a file holds, and no more of it than a text of the largest size may have."""
    most = 4 * LARGEST  # bytes of one character in UTF-8, at most
    if path.exists() and not path.is_dir() and not path.is_file():  # a pipe may never end, and a device never does
        raise FileUnreadable(f"{path} is no regular file: write the text into one")
    try:
        with path.open("rb") as opened:
            raw = opened.read(most + 1)
    except (OSError, ValueError) as error:
        raise FileUnreadable(f"{path}: {(getattr(error, 'strerror', '') or str(error)).lower()}") from None
    if len(raw) > most:
        raise SyntaxFault([Sources(str(path), "").problem(f"the file has more than {LARGEST:,} characters", FIRST)])
    return raw


def parse(text: str, name: str = "<text>") -> SourceFile:
    """Return the tree of a text; `name` is what messages call it. SyntaxFault is raised if it is not one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    sources = Sources(name, text)
    if len(text) > LARGEST:
        raise SyntaxFault([sources.problem(f"the file has {len(text):,} characters, more than {LARGEST:,}", FIRST)])
    comments = _comments(text, sources)
    lark = _lark()
    try:
        definitions = _parser().parse(text)
    except Misread as error:
        raise SyntaxFault(
            [sources.problem(error.message, error.span, expected=error.expected, suggestion=error.suggestion)]
        ) from None
    except lark.exceptions.UnexpectedInput as error:
        raise SyntaxFault([problem_of(error, sources)]) from None
    return SourceFile(definitions, name, text, comments)


def parse_value(text: str) -> Value:
    """Return the value that a string holds, such as `"Adam(learning_rate=1e-4)"`. SyntaxFault is raised for none."""
    (network,) = parse(f"network X {{ loss: {text}\n}}", name="<value>").networks
    (section,) = network.sections
    return section.values[0]


FIRST = Span(1, 1, 1, 2)


def _comments(text: str, sources: Sources) -> tuple[Comment, ...]:
    """Return the comments, and refuse brackets that are too deep and comments that do not end."""
    found = []
    depth = 0
    lines = _LineStarts(text)
    for piece in PIECES.finditer(text):
        if piece["comment"]:
            span = lines.span(piece.start(), piece.end())
            before = text[text.rfind("\n", 0, piece.start()) + 1 : piece.start()]
            found.append(Comment(piece["comment"].rstrip(), span, not before.strip()))
        elif piece["unclosed"]:
            place = lines.span(piece.start(), piece.end())
            raise SyntaxFault([sources.problem("this comment is never closed", place, expected="a */ after it")])
        elif piece["bracket"]:
            depth += 1 if piece["bracket"] in "([{" else -1
            if depth > DEEPEST:
                place = lines.span(piece.start(), piece.end())
                raise SyntaxFault([sources.problem(f"more than {DEEPEST} brackets inside each other", place)])
    return tuple(found)


class _LineStarts:
    """Turn offsets, which only grow, into lines and columns."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line = 1
        self.start = 0
        self.offset = 0

    def place(self, offset: int) -> tuple[int, int]:
        self.line += self.text.count("\n", self.offset, offset)
        self.start = self.text.rfind("\n", 0, offset) + 1
        self.offset = offset
        return self.line, offset - self.start + 1

    def span(self, start: int, end: int) -> Span:
        return Span(*self.place(start), *self.place(end))


def _lark() -> Any:
    try:
        import lark  # noqa: PLC0415 (of the extra `neural`: what needs no file must work without it)
    except ModuleNotFoundError:
        raise MissingPackage("lark") from None
    return lark


@functools.cache
def _parser() -> Any:
    lark = _lark()

    class Builder(TreeBuilder, lark.Transformer):  # type: ignore[misc, name-defined]
        """Let lark call the builder's methods by its own means."""

    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        transformer=Builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )
