"""The numbers that a training loop itself gives to its steps: numbers enter, the end of an error message leaves."""

from __future__ import annotations

_NUMBERED = 1024
"""Changes of the loop's own numbering that are kept."""


class LoopNumbers:
    """The numbers that the loop itself gives to its steps, for messages."""

    def __init__(self) -> None:
        self._known: list[tuple[int, int]] = []
        """Steps whose number does not follow from that of the step before, each with its number."""

    def add(self, at: int, number: int) -> None:
        """Note the loop's number of a step; only the first one of a step counts."""
        last, told = self._known[-1] if self._known else (-1, None)
        if at > last and (told is None or number - told != at - last):
            self._known.append((at, number))
            del self._known[:-_NUMBERED]

    def hint(self, number: int | None, steps: int) -> str:
        """Return the end of a message that says which step has the loop's number; "" if there is none."""
        ends = [*(at for at, _ in self._known[1:]), steps]
        for (at, told), end in zip(reversed(self._known), reversed(ends), strict=False):
            if number is not None and 0 <= number - told < end - at:
                own = number - told + at
                return f"; the loop's own {number} is step {own}, as steps are counted from 0 in every answer"
        return ""
