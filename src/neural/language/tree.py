"""The tree of a `.neural` file: frozen values, made by `reader`, read by `formatter` and `neural.check`.

Two trees are equal if their texts say the same: places and comments do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from neural.errors import Span

SECTIONS = (
    "input", "layers", "loss", "optimizer", "metrics", "lr_schedule", "train", "execute", "execution", "hpo",
)  # fmt: skip
"""The sections of a network, in the order in which they are explained."""


@dataclass(frozen=True)
class Number:
    """Hold a number as it was written, such as `1e-4`."""

    written: str
    span: Span = field(compare=False)

    @property
    def value(self) -> int | float:
        plain = self.written.lstrip("+-").isdigit()
        return int(self.written) if plain else float(self.written)


@dataclass(frozen=True)
class Text:
    """Hold the text of a string, without its quotes."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Word:
    """Hold a bare name as a value, such as `Adam`."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Flag:
    """Hold `true` or `false`, which may be written in any case."""

    value: bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Nothing:
    """Mark the place of `None`, which may be written in any case."""

    span: Span = field(compare=False)


@dataclass(frozen=True)
class Variable:
    """Refer to a parameter of the macro around it, as `$filters` does."""

    name: str
    """The name without its `$`."""
    span: Span = field(compare=False)


@dataclass(frozen=True)
class TupleValue:
    """Hold values in round brackets; `(3)` is a tuple of one, which arithmetic reads as its item."""

    items: tuple[Value, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class ListValue:
    """Hold values in square brackets, in their order."""

    items: tuple[Value, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Argument:
    """Hold one argument of a layer, a macro or a call."""

    name: str | None
    """Its name, None if it is given by its position."""
    value: Value
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Call:
    """Hold a name with arguments where a value stands: an optimizer, a schedule, a layer inside another one."""

    name: str
    arguments: tuple[Argument, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Hpo:
    """Hold a value that a search may choose: `HPO(choice(32, 64))`."""

    kind: str
    """`choice`, `categorical`, `range` or `log_range`, as it was written."""
    arguments: tuple[Argument, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Arithmetic:
    """Hold terms with the operators between them, from left to right; all bind equally."""

    first: Value
    rest: tuple[tuple[str, Value], ...]
    """Operator and operand: `+` and `-`, or `*` and `/`, never both kinds in one value."""
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Setting:
    """Hold a name and a value, such as `epochs: 5`."""

    name: str
    value: Value
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Settings:
    """Hold settings in curly brackets, in their order."""

    items: tuple[Setting, ...]
    span: Span = field(compare=False)


Value: TypeAlias = (
    Number | Text | Word | Flag | Nothing | Variable | TupleValue | ListValue | Call | Hpo | Arithmetic | Settings
)


@dataclass(frozen=True)
class Layer:
    """Hold one layer, or the use of a macro."""

    type_name: str
    arguments: tuple[Argument, ...]
    device: str | None
    """The text after `@`, None without one."""
    block: tuple[Item, ...] | None
    """The layers in its curly brackets, None without brackets."""
    repeat: Value | None
    """The factor after `*`, None without one."""
    span: Span = field(compare=False)
    name_span: Span = field(compare=False)
    arguments_span: Span | None = field(compare=False)
    """The round brackets, None without them."""
    block_span: Span | None = field(compare=False)
    """The curly brackets, None without them."""


@dataclass(frozen=True)
class Branch:
    """Hold named layers that run beside other branches."""

    name: str
    items: tuple[Item, ...]
    span: Span = field(compare=False)


Item: TypeAlias = Layer | Branch


@dataclass(frozen=True)
class Section:
    """Hold one section of a network: `layers` has items, every other one has values."""

    name: str
    values: tuple[Value, ...]
    items: tuple[Item, ...]
    span: Span = field(compare=False)
    name_span: Span = field(compare=False)


@dataclass(frozen=True)
class Network:
    """Hold a network with its sections in the order of the file."""

    name: str
    sections: tuple[Section, ...]
    span: Span = field(compare=False)
    name_span: Span = field(compare=False)


@dataclass(frozen=True)
class Formal:
    """Hold a parameter of a macro, and its default if it has one."""

    name: str
    default: Value | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Macro:
    """Hold layers under a name: `define Block(filters) { ... }`."""

    name: str
    parameters: tuple[Formal, ...]
    items: tuple[Item, ...]
    span: Span = field(compare=False)
    name_span: Span = field(compare=False)


@dataclass(frozen=True)
class Research:
    """Hold what a `.rnr` file says about results and papers."""

    name: str | None
    settings: tuple[Setting, ...]
    span: Span = field(compare=False)


Definition: TypeAlias = Network | Macro | Research


@dataclass(frozen=True)
class Comment:
    """Hold one comment, with its marks and its place."""

    text: str
    span: Span
    alone: bool
    """True if nothing stands before it on its line."""


@dataclass(frozen=True)
class SourceFile:
    """Hold all that a file says, in its order."""

    definitions: tuple[Definition, ...]
    file: str = field(compare=False)
    """The path or name for messages."""
    text: str = field(compare=False, repr=False)
    comments: tuple[Comment, ...] = field(compare=False, repr=False)

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(each for each in self.definitions if isinstance(each, Network))

    @property
    def macros(self) -> tuple[Macro, ...]:
        return tuple(each for each in self.definitions if isinstance(each, Macro))

    @property
    def research(self) -> tuple[Research, ...]:
        return tuple(each for each in self.definitions if isinstance(each, Research))
