"""Write a tree in the canonical layout: one statement a line, two spaces a level, double quotes, `name=value`.

All comments are kept. One that stands inside a value moves before the statement of that value. A layer whose arguments
have comments, or do not fit into a line, has one argument a line. The text of a formatted text is itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.language.tree import (
    Argument,
    Arithmetic,
    Branch,
    Call,
    Flag,
    Formal,
    Hpo,
    Item,
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
    SourceFile,
    Text,
    TupleValue,
    Value,
    Variable,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from neural.errors import Span
    from neural.language.tree import Comment, Definition

END = (10**9, 0)
LINE = 100
"""A longer call has one argument a line."""


def formatted(source: SourceFile) -> str:
    """Return the text of a tree in the canonical layout, with all of its comments; "" for an empty file."""
    writer = _Writer(source)
    for definition in source.definitions:
        writer.definition(definition)
    writer.rest()
    return "\n".join(writer.lines) + "\n" if writer.lines else ""


# ---------------------------------------------------------------- values, on one line


def value_text(value: Value) -> str:
    """Return a value as one line without comments."""
    match value:
        case Number():
            return value.written
        case Text():
            return quoted(value.text)
        case Word():
            return value.name
        case Flag():
            return "true" if value.value else "false"
        case Nothing():
            return "None"
        case Variable():
            return f"${value.name}"
        case TupleValue():
            inner = ", ".join(map(value_text, value.items))
            return (
                f"({inner},)" if len(value.items) == 1 and not isinstance(value.items[0], Arithmetic) else f"({inner})"
            )
        case ListValue():
            return f"[{', '.join(map(value_text, value.items))}]"
        case Call():
            return f"{value.name}({arguments_text(value.arguments)})"
        case Hpo():
            return f"HPO({value.kind}({arguments_text(value.arguments)}))"
        case Arithmetic():
            return value_text(value.first) + "".join(f" {sign} {value_text(each)}" for sign, each in value.rest)
        case Settings():
            return "{" + " ".join(f" {each.name}: {value_text(each.value)}" for each in value.items) + " }"


def quoted(text: str) -> str:
    """Return a string in double quotes, or in single ones if it has double ones."""
    return f"'{text}'" if '"' in text else f'"{text}"'


def argument_text(argument: Argument) -> str:
    """Return an argument as one line, with its name if it has one."""
    name = "" if argument.name is None else f"{argument.name}="
    return name + value_text(argument.value)


def arguments_text(arguments: Sequence[Argument]) -> str:
    """Return arguments as one line, without their brackets."""
    return ", ".join(map(argument_text, arguments))


def formal_text(formal: Formal) -> str:
    """Return a parameter of a macro with its default."""
    return formal.name if formal.default is None else f"{formal.name}={value_text(formal.default)}"


# ---------------------------------------------------------------- statements, with comments


class _Writer:
    """Write lines in order, and before each statement the comments that stand before it in the source."""

    def __init__(self, source: SourceFile) -> None:
        self.lines: list[str] = []
        self.comments = list(source.comments)
        self.next_comment = 0
        self.level = 0
        self.written_to = 0
        """The last line of the source that was written here, 0 at the start of a block."""

    # -------------------------------------------------------------- lines and comments

    def line(self, text: str) -> None:
        self.lines.append("  " * self.level + text)

    def gap(self, line: int) -> None:
        """Keep one empty line where the source has some before `line`."""
        if self.written_to and line - self.written_to > 1 and self.lines and self.lines[-1]:
            self.lines.append("")

    def comments_before(self, place: tuple[int, int]) -> None:
        """Write the comments that begin before a place, each on its own line."""
        while self.next_comment < len(self.comments) and self.comments[self.next_comment].span.start < place:
            comment = self.comments[self.next_comment]
            self.gap(comment.span.line)
            self.line(comment.text)
            self.written_to = comment.span.end_line
            self.next_comment += 1

    def trailing(self, line: int, limit: tuple[int, int]) -> None:
        """Append the comments that stand on a line of the source, before a place, to the line written last."""
        while self.next_comment < len(self.comments):
            comment = self.comments[self.next_comment]
            if comment.alone or comment.span.line != line or comment.span.start >= limit:
                return
            self.lines[-1] += f"  {comment.text}"
            self.written_to = comment.span.end_line
            self.next_comment += 1
            if "\n" in comment.text or not comment.text.startswith("/*"):
                return

    def coming(self, end: tuple[int, int]) -> Iterator[Comment]:
        """Return the comments that are not written yet and begin before a place."""
        for place in range(self.next_comment, len(self.comments)):
            comment = self.comments[place]
            if comment.span.start >= end:
                return
            yield comment

    def comments_in(self, span: Span | None) -> bool:
        """Return True if a comment that is not written yet begins in a span."""
        return span is not None and any(span.start < each.span.start for each in self.coming(span.end))

    def rest(self) -> None:
        """Write the comments after the last definition."""
        if self.lines:
            self.trailing(self.written_to, END)
        self.comments_before(END)

    # -------------------------------------------------------------- blocks

    def block(
        self, header: str, header_line: int, close: str, end: Span, body: Callable[[], None], first: Span | None
    ) -> None:
        """Write a header, its statements one level deeper, the comments after them, and what closes the block."""
        self.line(header)
        self.trailing(header_line, first.start if first else end.end)
        self.level += 1
        self.written_to = 0
        body()
        self.comments_before((end.end_line, end.end_column - 1) if close else (0, 0))
        self.level -= 1
        if close:
            self.line(close)

    def statements(self, nodes: Sequence[Item | Setting | Section], end: tuple[int, int]) -> None:
        """Write statements in order. `end` is where the block of them ends."""
        for index, node in enumerate(nodes):
            limit = nodes[index + 1].span.start if index + 1 < len(nodes) else end
            self.comments_before(node.span.start)
            self.hoist(node)
            self.gap(node.span.line)
            match node:
                case Layer():
                    self.layer(node)
                case Branch():
                    first = node.items[0].span if node.items else None
                    self.block(
                        f"{node.name}: {{", node.span.line, "}", node.span, self.items_of(node.items, node.span), first
                    )
                case Setting():
                    self.setting(node.name, node.value, node.span)
                case Section():
                    self.section(node, limit)
            self.written_to = max(self.written_to, node.span.end_line)
            self.trailing(node.span.end_line, limit)

    def items_of(self, nodes: Sequence[Item | Setting], span: Span) -> Callable[[], None]:
        return lambda: self.statements(nodes, span.end)

    def hoist(self, node: Item | Setting | Section) -> None:
        """Write the comments of a statement for which its layout has no place, before it."""
        match node:
            case Layer():
                kept = [each for each in (node.arguments_span, node.block_span) if each]
                inside = [
                    each
                    for each in self.coming(node.span.end)
                    if node.span.start < each.span.start
                    and not any(span.start < each.span.start < span.end for span in kept)
                ]
                self.move_first(inside)
            case Section() if node.name == "layers" or self.is_broken(node.values):
                return
            case Setting() if self.is_broken((node.value,)):
                return
            case Branch():
                return
            case _:
                self.comments_before(node.span.end)

    def move_first(self, inside: list[Comment]) -> None:
        """Write some of the coming comments now."""
        if not inside:
            return
        window = list(self.coming((inside[-1].span.end_line + 1, 0)))
        others = [each for each in window if each not in inside]
        for comment in inside:
            self.gap(comment.span.line)
            self.line(comment.text)
            self.written_to = comment.span.end_line
        self.comments[self.next_comment : self.next_comment + len(window)] = [*inside, *others]
        self.next_comment += len(inside)

    @staticmethod
    def is_broken(values: Sequence[Value]) -> bool:
        """Return True if a value has a layout of several lines, in which comments have a place."""
        return len(values) == 1 and isinstance(values[0], (Settings, Call))

    # -------------------------------------------------------------- definitions

    def definition(self, node: Definition) -> None:
        if self.lines:
            self.comments_after_definition(node)
        self.comments_before(node.span.start)
        match node:
            case Network():
                first = node.sections[0].span if node.sections else None
                self.block(
                    f"network {node.name} {{",
                    node.span.line,
                    "}",
                    node.span,
                    lambda: self.statements(node.sections, node.span.end),
                    first,
                )
            case Macro():
                formals = f"({', '.join(map(formal_text, node.parameters))})" if node.parameters else ""
                first = node.items[0].span if node.items else None
                header = f"define {node.name}{formals} {{"
                self.block(header, node.span.line, "}", node.span, self.items_of(node.items, node.span), first)
            case Research():
                name = f" {node.name}" if node.name else ""
                first = node.settings[0].span if node.settings else None
                body = self.items_of(node.settings, node.span)
                self.block(f"research{name} {{", node.span.line, "}", node.span, body, first)
        self.written_to = node.span.end_line

    def comments_after_definition(self, node: Definition) -> None:
        """Write what stands on the line of the last closing bracket, then an empty line."""
        self.trailing(self.written_to, node.span.start)
        while self.next_comment < len(self.comments):
            comment = self.comments[self.next_comment]
            # Comments right below a definition, and apart from the next one, belong to the first.
            if comment.span.line - self.written_to > 1 or comment.span.start >= node.span.start:
                break
            self.line(comment.text)
            self.written_to = comment.span.end_line
            self.next_comment += 1
        self.lines.append("")
        self.written_to = 0

    # -------------------------------------------------------------- statements

    def section(self, node: Section, limit: tuple[int, int]) -> None:
        if node.name == "layers":
            first = node.items[0].span if node.items else None
            end = node.span
            self.line("layers:")
            self.trailing(node.span.line, first.start if first else limit)
            self.level += 1
            self.written_to = 0
            self.statements(node.items, limit)
            # Comments of the last line, or indented as layers are, stay with the layers.
            self.comments_before(end.end)
            self.level -= 1
        elif len(node.values) == 1:
            self.setting(node.name, node.values[0], node.span)
        else:
            self.line(f"{node.name}: {', '.join(map(value_text, node.values))}")

    def setting(self, name: str, value: Value, span: Span) -> None:
        match value:
            case Settings():
                colon = ":" if name == "input" else ""
                first = value.items[0].span if value.items else None
                body = self.items_of(value.items, value.span)
                self.block(f"{name}{colon} {{", value.span.line, "}", value.span, body, first)
            case Call():
                self.call(f"{name}: {value.name}", value.arguments, value.span, "")
            case _:
                self.line(f"{name}: {value_text(value)}")
        del span

    def layer(self, node: Layer) -> None:
        device = "" if node.device is None else f" @ {quoted(node.device)}"
        repeat = "" if node.repeat is None else f" * {value_text(node.repeat)}"
        opens = "" if node.block is None else " {"
        bare = node.block is not None and not node.arguments and not self.comments_in(node.arguments_span)
        tail = f"{device}{opens or repeat}"
        if bare:
            self.line(f"{node.type_name}{tail}")
        else:
            self.call(node.type_name, node.arguments, node.arguments_span, tail)
        if node.block is not None and node.block_span is not None:
            first = node.block[0].span if node.block else None
            self.trailing(node.block_span.line, first.start if first else node.block_span.end)
            self.level += 1
            self.written_to = 0
            self.statements(node.block, node.block_span.end)
            self.comments_before((node.block_span.end_line, node.block_span.end_column - 1))
            self.level -= 1
            self.line("}" + repeat)

    def call(self, name: str, arguments: Sequence[Argument], span: Span | None, tail: str) -> None:
        """Write a call on one line, or one argument a line if it has comments or is long."""
        whole = f"{name}({arguments_text(arguments)}){tail}"
        commented = self.comments_in(span)
        too_long = len(arguments) > 1 and 2 * self.level + len(whole) > LINE
        if span is None or not (commented or too_long):
            self.line(whole)
            return
        self.line(f"{name}(")
        self.level += 1
        self.written_to = 0
        for index, argument in enumerate(arguments):
            last = index + 1 == len(arguments)
            limit = span.end if last else arguments[index + 1].span.start
            self.comments_before(argument.span.end)  # and those within it, for which it has no place
            self.line(argument_text(argument) + ("" if last else ","))
            self.written_to = argument.span.end_line
            self.trailing(argument.span.end_line, limit)
        self.comments_before((span.end_line, span.end_column - 1))
        self.level -= 1
        self.line(f"){tail}")
