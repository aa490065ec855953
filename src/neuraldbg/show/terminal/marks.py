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
    """One set of signs."""

    verdict: dict[str, str]
    role: dict[str, str]
    """Of the nodes of the causal chain."""
    line: str
    """Between two nodes that follow from each other."""
    gap: str
    """Between two nodes of which the later follows from an earlier one."""
    code: str
    """Before every line of code."""
    dot: str
    rule: str
    sigil: str
    """Before a list item."""


UNICODE = Marks(
    verdict={"failing": "✗", "suspect": "!", "healthy": "✓", "inconclusive": "?"},
    role={"cause": "◆", "event": "●", "symptom": "✗"},
    line="│",
    gap="┊",
    code="▏",
    dot="·",
    rule="─",
    sigil="•",
)
ASCII = Marks(
    verdict={"failing": "x", "suspect": "!", "healthy": "+", "inconclusive": "?"},
    role={"cause": "#", "event": "o", "symptom": "x"},
    line="|",
    gap=":",
    code="|",
    dot="|",
    rule="-",
    sigil="*",
)
