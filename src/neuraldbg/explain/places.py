"""Which lines of the user's code a hypothesis points at.

The lines come from the PLACES fact: where a model is called, a loss differentiated, an optimizer made or stepped. A
cause is at one of them or near it. Where a program has several of a kind (a GAN has two), all are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns import CodeLine, FactKey

if TYPE_CHECKING:
    from neuraldbg.explain.case import Case
    from neuraldbg.explain.cause import Cause

USUAL = {
    "loop": "backward",
    "loss": "backward",
    "data": "forward",
    "optimisation": "optimizer",
    "architecture": "forward",
    "precision": "backward",
}
"""The kind of line at which causes of a category are looked for, unless one says otherwise."""
INSTEAD = {"optimizer": "step", "scheduler": "step"}
"""What stands in for a kind that was not seen: it was made before the session began."""
MOST = 2
"""With more lines than this none is pointed at."""


def places(case: Case, cause: Cause) -> tuple[CodeLine, ...]:
    """Return the lines to look at first; none where they are unknown or too many."""
    seen = case.run.fact(FactKey.PLACES.value) or {}
    kind = USUAL.get(cause.category, "forward") if cause.place is None else cause.place
    lines = seen.get(kind) or seen.get(INSTEAD.get(kind, "")) or []
    return tuple(CodeLine(str(file), int(line), str(code)) for file, line, code in lines) if len(lines) <= MOST else ()
