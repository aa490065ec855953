"""The state of one rank in the diagnosis of a job."""

from __future__ import annotations

from neuraldbg.nouns.frozen import frozen


@frozen(kw_only=False)
class RankState:
    """One rank of a job in the diagnosis of all of them: its own verdict, how far it came, and how it ended."""

    rank: int
    """Rank of the process."""
    verdict: str
    """Verdict of the rank judged alone."""
    steps: int
    """Number of its optimizer steps."""
    outcome: str = "completed"
    """Kind of its end, as in ``Outcome.kind``."""
    symptom: str = ""
    """Its worst symptom in words, without a full stop; "" if there is none."""
    step: int | None = None
    """First step of that symptom. None if there is none, or it is not known."""
    host: str = ""
    """Name of its machine; "" if it is not known."""

    def __str__(self) -> str:
        when = f" from step {self.step}" if self.step is not None else ""
        ended = "" if self.outcome == "completed" else f", {self.outcome} after {self.steps:,} steps"
        return f"rank {self.rank} {self.verdict}{when}{ended}"
