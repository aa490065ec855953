"""Make the tree of what the parser recognises: one method for each rule of `grammar.lark`.

lark calls these while it parses, with the tokens and the values of the rules below. So no tree of lark's own is built,
and a deep text costs no recursion.
"""

from __future__ import annotations

from typing import Any

from neural.errors import Span, nearest
from neural.language.tree import (
    SECTIONS,
    Argument,
    Arithmetic,
    Branch,
    Call,
    Flag,
    Formal,
    Hpo,
    Layer,
    ListValue,
    Macro,
    Network,
    Nothing,
    Number,
    Research,
    Section,
    Setting,
    Settings,
    Text,
    TupleValue,
    Value,
    Variable,
    Word,
)

LONGEST_NUMBER = 40
FLAGS = {"true": True, "false": False}
TOP_LEVEL = ("network", "define", "research")


class Misread(Exception):
    """Raised where the grammar holds and the sense does not; `reader` makes a problem of it."""

    def __init__(self, message: str, span: Span, *, expected: str = "", suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.expected = expected
        self.suggestion = suggestion


class Part:
    """Hold what a rule contributes to the node above it, with the place of its text."""

    def __init__(self, kind: str, value: Any, span: Span) -> None:
        self.kind = kind
        self.value = value
        self.span = span


def span_of(part: Any) -> Span:
    """Return the place of a token or a node."""
    if hasattr(part, "span"):
        return part.span  # type: ignore[no-any-return]
    return Span(part.line, part.column, part.end_line, part.end_column)


def around(children: list[Any]) -> Span:
    """Return the place from the first child that has one to the last."""
    placed = [each for each in children if each is not None]
    return span_of(placed[0]).to(span_of(placed[-1]))


def is_token(part: Any, *kinds: str) -> bool:
    """Return True for a token of one of these kinds."""
    return getattr(part, "type", None) in kinds


def unquoted(token: Any) -> str:
    """Return the text of a string without its quotes."""
    return str(token)[1:-1]


class TreeBuilder:
    """Build nodes for lark's rules, which find their method by name."""

    # ---------------------------------------------------------------- the file

    def start(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(each for each in children if not is_token(each, "SEPARATOR"))

    def network(self, children: list[Any]) -> Network:
        sections = tuple(each for each in children if isinstance(each, Section))
        return Network(str(children[1]), sections, around(children), span_of(children[1]))

    def research(self, children: list[Any]) -> Research:
        name = str(children[1]) if is_token(children[1], "NAME") else None
        (pairs,) = (each.value for each in children if isinstance(each, Part))
        return Research(name, pairs, around(children))

    def define(self, children: list[Any]) -> Macro:
        formals = tuple(each for each in children if isinstance(each, Formal))
        items = layers_only(children)
        return Macro(str(children[1]), formals, items, around(children), span_of(children[1]))

    def formal(self, children: list[Any]) -> Formal:
        default = children[2] if len(children) > 1 else None
        return Formal(str(children[0]), default, around(children))

    # ---------------------------------------------------------------- sections and layers

    def section(self, children: list[Any]) -> Section:
        values = tuple(each for each in children[1:] if not is_token(each, "COLON", "COMMA"))
        return Section(str(children[0]), values, (), around(children), span_of(children[0]))

    def layers(self, children: list[Any]) -> Section:
        items = layers_only(children)
        whole = around([each for each in children if not (isinstance(each, Part) and each.span.line == 0)])
        return Section("layers", (), items, whole, span_of(children[0]))

    def items(self, children: list[Any]) -> Part:
        items = [each for each in children if not is_token(each, "SEPARATOR", "SEMICOLON", "COMMA")]
        settings = [each for each in items if isinstance(each, Setting)]
        if settings and len(settings) < len(items):
            raise unknown_section(settings[0])
        return Part("items", tuple(items), around(children) if children else Span(0, 0, 0, 0))

    def layer(self, children: list[Any]) -> Layer:
        name, suffixes = children[0], [each for each in children[1:] if isinstance(each, Part)]
        place = span_of(name)
        if str(name) in TOP_LEVEL and len(children) == 1:
            raise Misread(f"{str(name)!r} begins here inside another definition", place, expected="a } before it")
        # Arguments, device, block and factor may come in any order, each once.
        parts: dict[str, Part] = {}
        for part in suffixes:
            if part.kind in parts:
                words = {"device": "a second device", "block": "a second block", "repeat": "a second factor"}
                raise Misread(f"{words[part.kind]} of the same layer", part.span)
            parts[part.kind] = part
        # A block of settings alone is a section whose name is not known.
        block = parts["block"].value if "block" in parts else None
        if block and isinstance(block[0], Setting):
            if "arguments" not in parts:
                raise unknown_section(Setting(str(name), block[0].value, place))
            raise Misread("a setting cannot stand among layers", block[0].span, expected="a layer, such as Dense(10)")
        brackets = [each for each in children if is_token(each, "LPAR", "RPAR")]
        return Layer(
            str(name),
            parts["arguments"].value if "arguments" in parts else (),
            parts["device"].value if "device" in parts else None,
            block,
            parts["repeat"].value if "repeat" in parts else None,
            around(children),
            place,
            around(brackets) if brackets else None,
            parts["block"].span if "block" in parts else None,
        )

    def branch(self, children: list[Any]) -> Branch:
        (items,) = (each.value for each in children if isinstance(each, Part))
        if items and isinstance(items[0], Setting):
            raise unknown_section(Setting(str(children[0]), items[0].value, span_of(children[0])))
        return Branch(str(children[0]), items, around(children))

    def setting(self, children: list[Any]) -> Setting:
        return Setting(str(children[0]), children[-1], span_of(children[0]))

    def device(self, children: list[Any]) -> Part:
        return Part("device", children[1].value, around(children))

    def block(self, children: list[Any]) -> Part:
        (items,) = (each.value for each in children if isinstance(each, Part))
        return Part("block", items, around(children))

    def repeat(self, children: list[Any]) -> Part:
        return Part("repeat", children[1], around(children))

    def place(self, children: list[Any]) -> Part:
        first = children[0]
        text = unquoted(first) if is_token(first, "STRING") else "".join(str(each) for each in children)
        return Part("place", text, around(children))

    # ---------------------------------------------------------------- arguments and settings

    def arguments(self, children: list[Any]) -> Part:
        found = tuple(each for each in children if isinstance(each, Argument))
        return Part("arguments", found, around(children) if children else Span(0, 0, 0, 0))

    def argument(self, children: list[Any]) -> Argument:
        name = str(children[0]) if len(children) > 1 else None
        return Argument(name, children[-1], around(children))

    def mapping(self, children: list[Any]) -> Settings:
        return Settings(children[1].value, around(children))

    def pairs(self, children: list[Any]) -> Part:
        settings = tuple(each for each in children if isinstance(each, Setting))
        return Part("pairs", settings, around(children) if children else Span(0, 0, 0, 0))

    def pair(self, children: list[Any]) -> Setting:
        if is_token(children[0], "AT"):
            return Setting("device", Text(children[1].value, children[1].span), around(children))
        return Setting(str(children[0]), children[-1], around(children))

    # ---------------------------------------------------------------- values

    def sum(self, children: list[Any]) -> Value:
        return arithmetic(children)

    def product(self, children: list[Any]) -> Value:
        return arithmetic(children)

    def number(self, children: list[Any]) -> Number:
        written, place = str(children[0]), span_of(children[0])
        if len(written) > LONGEST_NUMBER or abs(float(written)) == float("inf"):
            raise Misread("this number is too large or too long", place, expected="a number of up to 40 characters")
        return Number(written, place)

    def text(self, children: list[Any]) -> Text:
        return Text(unquoted(children[0]), span_of(children[0]))

    def variable(self, children: list[Any]) -> Variable:
        return Variable(str(children[0])[1:], span_of(children[0]))

    def word(self, children: list[Any]) -> Word | Flag | Nothing:
        name, place = str(children[0]), span_of(children[0])
        if name.lower() in FLAGS:
            return Flag(FLAGS[name.lower()], place)
        return Nothing(place) if name.lower() == "none" else Word(name, place)

    def call(self, children: list[Any]) -> Call | Hpo:
        name = str(children[0])
        found: Any = next((each.value for each in children if isinstance(each, Part)), ())
        if name.lower() == "hpo" and len(found) == 1 and found[0].name is None and isinstance(found[0].value, Call):
            return Hpo(found[0].value.name, found[0].value.arguments, around(children))
        return Call(name, found, around(children))

    def tuple(self, children: list[Any]) -> TupleValue:
        return TupleValue(within(children), around(children))

    def list(self, children: list[Any]) -> ListValue:
        return ListValue(within(children), around(children))


def within(children: list[Any]) -> tuple[Value, ...]:
    """Return the values between the brackets and commas."""
    return tuple(each for each in children if not hasattr(each, "type"))


def layers_only(children: list[Any]) -> tuple[Any, ...]:
    """Return the items among the children, which must not be settings."""
    (items,) = (each.value for each in children if isinstance(each, Part))
    if items and isinstance(items[0], Setting):
        raise unknown_section(items[0])
    return items  # type: ignore[no-any-return]


def arithmetic(children: list[Any]) -> Value:
    """Return the one value, or the operators between several."""
    if len(children) == 1:
        return children[0]  # type: ignore[no-any-return]
    rest = tuple(zip(map(str, children[1::2]), children[2::2], strict=True))
    return Arithmetic(children[0], rest, around(children))


def unknown_section(setting: Setting) -> Misread:
    """Return the error for a section that no network has."""
    return Misread(
        f"unknown section {setting.name!r}",
        Span(setting.span.line, setting.span.column, setting.span.line, setting.span.column + len(setting.name)),
        expected="a section: " + ", ".join(SECTIONS),
        suggestion=nearest(setting.name, SECTIONS),
    )
