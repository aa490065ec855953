"""The signs and colours of the terminal face. Every meaning is in a word or a sign; colour only repeats it."""

from __future__ import annotations

from dataclasses import dataclass

VERDICT_STYLE = {
    "failing": "bold red",
    "suspect": "bold yellow",
    "healthy": "bold green",
    "inconclusive": "bold cyan",
}
"""The sixteen colours of the terminal's own theme: readable on a light and on a dark background."""


@dataclass(frozen=True)
class Marks:
    """One set of signs for the terminal, Unicode or ASCII."""

    verdict: dict[str, str]
    role: dict[str, str]
    """Sign of each role of a node of the causal chain."""
    line: str
    """Sign between two nodes, the second of which follows from the first."""
    gap: str
    """Sign between two nodes, the second of which follows from an earlier one."""
    code: str
    """Sign before every line of code."""
    arrow: str
    """Sign between two nodes of a chain in one line."""
    dot: str
    rule: str
    sigil: str
    """Sign before a list item."""
    encoding: str
    """Encoding of names."""
    cut: str
    """Sign at the end of a name that was cut."""
    levels: str
    """Signs from the least to the largest value, each with more ink than the one before."""
    unread: str
    bad: str
    """Sign of NaN or infinite values."""
    mixed: str
    """Sign of NaN or infinite values among finite ones."""
    guilty: str
    moment: dict[str, str]
    """Sign of each role of a mark over time."""
    stretch: str
    """Sign of a mark that lasts."""
    dots: bool
    """True if a cell can show 2 x 4 dots (Braille); else it shows the letter of its line."""
    fills: str
    """Signs of the groups of bars, in turn."""
    edge: str
    corner: str
    tick: str
    limit: str
    span: str
    """Sign between a least and a largest value."""


UNICODE = Marks(
    verdict={"failing": "✗", "suspect": "!", "healthy": "✓", "inconclusive": "?"},
    role={"cause": "◆", "event": "●", "symptom": "✗"},
    line="│",
    gap="┊",
    code="▏",
    arrow="→",
    dot="·",
    rule="─",
    sigil="•",
    encoding="utf-8",
    cut="…",
    levels="▁▂▃▄▅▆▇█",
    unread="·",
    bad="✗",
    mixed="&",
    guilty="▶",
    moment={"failure": "▼", "cause": "◆", "event": "●", "chosen": "◇"},
    stretch="─",
    dots=True,
    fills="█▒▓░",
    edge="│",
    corner="└",
    tick="┬",
    limit="┊",
    span="…",
)
ASCII = Marks(
    verdict={"failing": "x", "suspect": "!", "healthy": "+", "inconclusive": "?"},
    role={"cause": "#", "event": "o", "symptom": "x"},
    line="|",
    gap=":",
    code="|",
    arrow="->",
    dot="|",
    rule="-",
    sigil="*",
    encoding="ascii",
    cut="~",
    levels=":-=+*%#@",
    unread=".",
    bad="!",
    mixed="&",
    guilty=">",
    moment={"failure": "X", "cause": "#", "event": "o", "chosen": "^"},
    stretch="-",
    dots=False,
    fills="#=%-",
    edge="|",
    corner="+",
    tick="+",
    limit=":",
    span="..",
)
