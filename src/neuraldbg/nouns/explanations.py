"""The answer of ``explain_failure``: a list of hypotheses that says in words if it is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from neuraldbg.nouns.diagnosis import Hypothesis
from neuraldbg.nouns.html import div, safe, shown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Explanations(list[Hypothesis]):
    """The hypotheses on a run's failure, most likely first. Empty, and false, if nothing was found.

    It is a list that prints as text, with ``verdict`` and ``summary`` of the diagnosis as attributes. Raises
    IndexError, which says what was found, for an index beyond its length.

    >>> explanations = run.explain_failure()
    >>> print(explanations.verdict, explanations[0].cause)
    failing missing_zero_grad
    """

    def __init__(self, hypotheses: Iterable[Hypothesis] = (), verdict: str = "", summary: str = "") -> None:
        super().__init__(hypotheses)
        self.verdict = verdict
        """Verdict of the run, one of VERDICTS."""
        self.summary = summary
        """Summary of the diagnosis."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> Hypothesis: ...
    @overload
    def __getitem__(self, at: slice) -> list[Hypothesis]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Hypothesis | list[Hypothesis]:
        """Return one hypothesis, or a list of several. Raises IndexError with the reason if there is none."""
        try:
            return super().__getitem__(at)
        except IndexError:
            known = f"there are only {len(self)} explanations" if self else str(self)
            raise IndexError(f"there is no explanation {at}: {known}") from None

    def __str__(self) -> str:
        if not self:
            return f"nothing found ({self.verdict}): {self.summary}" if self.verdict else "nothing found"
        return "\n".join(f"{number}. {one.cause}: {one}" for number, one in enumerate(self, start=1))

    __repr__ = __str__

    @shown
    def _repr_html_(self) -> str:
        """Render the hypotheses as HTML for a notebook, each with its evidence and its fix."""
        return "".join(one._repr_html_() for one in self) if self else div(safe(str(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (list(self), self.verdict, self.summary))
