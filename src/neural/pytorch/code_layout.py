"""The layout of generated code: lines of at most 120 columns, as a formatter would break them."""

from __future__ import annotations

WIDTH = 120
OPEN, CLOSE = "([{", ")]}"


def laid_out(line: str) -> list[str]:
    """Return a line as it is, or broken at its last bracket on the outside if it is too long."""
    if len(line) <= WIDTH:
        return [line]
    code, comment = _apart(line)
    if comment and len(code) > WIDTH - 2 - len(comment):
        indent = " " * (len(line) - len(line.lstrip()))
        return [indent + comment, *laid_out(code)]
    start, end = _last_bracket(code)
    if start < 0:
        return [line]
    indent = " " * (len(code) - len(code.lstrip()))
    inner = code[start + 1 : end].strip()
    inside = f"{indent}    {inner}"
    tail = f"{indent}{code[end:]}"
    if len(inside) <= WIDTH:
        return [code[: start + 1], inside, tail]
    element, loop, rest = inner.rpartition(" for _ in ")
    if loop and len(_parts(inner)) == 1:  # a generator takes no comma
        parts = [f"{indent}    {element}", f"{indent}    for _ in {rest}"]
    else:
        parts = [f"{indent}    {part.strip()}," for part in _parts(inner)]
    return [code[: start + 1], *(broken for part in parts for broken in laid_out(part)), tail]


def _apart(line: str) -> tuple[str, str]:
    """Return the code and the comment at the end of a line."""
    at = next((place for place, char, _ in _walk(line) if char == "#" and line[:place].endswith("  ")), -1)
    return (line[: at - 2], line[at:]) if at > 0 else (line, "")


def _walk(text: str) -> list[tuple[int, str, int]]:
    """Return place, character and depth of each character outside of strings."""
    found, depth, quote, escaped = [], 0, "", False
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote and not escaped else quote
            escaped = char == "\\" and not escaped
            continue
        if char in "\"'":
            quote = char
            continue
        depth -= char in CLOSE
        found.append((place, char, depth))
        depth += char in OPEN
    return found


def _last_bracket(code: str) -> tuple[int, int]:
    """Return the places of the last outermost bracket with something in it."""
    start, best = -1, (-1, -1)
    for place, char, depth in _walk(code):
        if char in OPEN and depth == 0:
            start = place
        elif char in CLOSE and depth == 0 and place - start > 1:
            best = (start, place)
    return best


def _parts(inner: str) -> list[str]:
    """Return what the commas on the outside divide."""
    cuts = [place for place, char, depth in _walk(inner) if char == "," and depth == 0]
    found = [inner[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(inner)], strict=True)]
    return [part for part in found if part.strip()]
