"""The diagnosis of a job: the records of its ranks, judged together.

The rank on which the trouble began is explained like a run of its own, with the causes that lie between ranks; the
others tell where it went from there. Errors of ranks that waited for another one are consequences, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.explain import CREDIBLE, Case, diagnose
from neuraldbg.explain.causes import CAUSES
from neuraldbg.explain.evidence.ranks import Ranks, crashed, rank_words
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier
from neuraldbg.nouns import Unjudged
from neuraldbg.nouns.diagnosis import VERDICTS
from neuraldbg.nouns.facts.ranks import RanksFact
from neuraldbg.nouns.rank_state import RankState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis, Event, Hypothesis, RunRecord

HANGS = "rank_hangs"
"""Cause that makes a job fail though no rank of it need look bad."""
WHOLE = 8
"""Ranks of a large job that are explained in full; of the others only the symptom is read."""
BROKEN = ("nonfinite_activation", "nonfinite_loss", "nonfinite_gradient", "nonfinite_parameter")
"""Events by which NaN spreads, in the order in which a step passes through them."""


@dataclass(eq=False)
class _Rank:
    """One rank: its record, symptom, and diagnosis alone."""

    rank: int
    run: RunRecord

    @cached_property
    def case(self) -> Case:
        return Case(self.run)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.run)

    @cached_property
    def crashed(self) -> bool:
        """True if an exception of its own ended it, and not one of having waited for another rank."""
        return crashed(self.run.info.outcome)

    @cached_property
    def broke(self) -> Event | None:
        """The first event with NaN or infinity; None if there is none."""
        events = [e for e in self.run.events if e.kind in BROKEN]
        return min(events, key=lambda e: (e.first_step, BROKEN.index(e.kind)), default=None)

    @property
    def first(self) -> tuple[float, int]:
        """Step and place within the step of the first event with NaN or infinity."""
        event = self.broke
        return (event.first_step, BROKEN.index(event.kind)) if event is not None else (math.inf, 0)

    @cached_property
    def top(self) -> Hypothesis | None:
        """The first credible cause of the rank judged alone."""
        return next((one for one in self.diagnosis.hypotheses if one.confidence >= CREDIBLE), None)

    def state(self, *, whole: bool) -> RankState:
        """Return the rank's line in the diagnosis of the job; without ``whole`` its causes are not weighed."""
        trouble, outcome = self.case.trouble, self.run.info.outcome
        broken = trouble.broke or outcome.kind == "raised"
        read = "failing" if broken else "suspect" if trouble.any else "healthy"
        verdict = self.diagnosis.verdict if whole else read
        step = self.case.onset if trouble.any else None
        return RankState(
            self.rank, verdict, self.run.steps, outcome.kind, trouble.phrase, step, self._host,
        )  # fmt: skip

    @property
    def _host(self) -> str:
        place = self.run.known(RanksFact)
        return place.host if place is not None else ""


def diagnose_job(runs: Mapping[int, RunRecord]) -> Diagnosis:
    """Explain the ranks of a job together. Raises ValueError without any.

    The diagnosis is that of the rank on which the trouble began, with the causes that lie between ranks; ``ranks`` has
    the state of each.
    """
    if not runs:
        raise ValueError("a job has one rank at least")
    if len(runs) == 1:
        return diagnose(next(iter(runs.values())))
    ranks = [_Rank(rank, run) for rank, run in sorted(runs.items())]
    job = Ranks(runs)
    whole = _to_explain(ranks)
    origin = min(whole, key=_order)
    base = diagnose(origin.run, job)
    lost = [one for one in whole if one.run.info.outcome.kind == "raised"]
    if lost and base.verdict != "failing" and not any(one.cause == HANGS for one in base.hypotheses):
        origin = lost[0]  # it seems to have waited, and nobody knows for whom
        base = diagnose(origin.run, job)
    shared = [one for one in whole if _alike(one, origin)]
    everywhere = len(shared) == len(whole)
    hypotheses = _with_ranks(base.hypotheses, whole, everywhere=everywhere)
    hypotheses = (*hypotheses, *_of_others(hypotheses, whole, origin, base))
    hang = next((one for one in hypotheses if one.cause == HANGS and one.confidence >= CREDIBLE), None)
    if hang is not None:  # whatever else there is: nothing goes on
        hypotheses = (hang, *(one for one in hypotheses if one is not hang))
        base = replace(base, verdict="failing", headline=f"{hang.title}.", summary=f"{hang.title}: {hang.sentence}.")
    states = tuple(one.state(whole=one in whole) for one in ranks)
    said = _prefix(origin, shared, job, hypotheses, base, everywhere=everywhere)
    more = _spread(ranks, origin, job) if origin.broke is not None else _agreement(job, base)
    return replace(
        base,
        summary=f"{_after(said, base.summary)}{more}",
        headline=f"{_after(said, base.headline)}{more}" if base.headline else "",
        hypotheses=tuple(replace(one, rank=at) for at, one in enumerate(hypotheses, start=1)),
        ranks=states,
        unjudged=(*base.unjudged, *_missing(job)),
        run={**base.run, "ranks": job.world},
    )


def _to_explain(ranks: list[_Rank]) -> list[_Rank]:
    """Return the ranks to explain in full: all of a small job, else those in trouble first."""
    if len(ranks) <= WHOLE:
        return ranks
    rest = sorted(ranks[1:], key=lambda one: (not one.crashed, one.first, not one.case.trouble.any, one.rank))
    return [ranks[0], *rest[: WHOLE - 1]]


def _order(one: _Rank) -> tuple[object, ...]:
    """Return the key by which the rank comes first on which the trouble began."""
    severity = VERDICTS.index(one.diagnosis.verdict)
    onset = one.case.onset if one.case.trouble.any and one.case.onset is not None else math.inf
    sure = one.top.confidence if one.top is not None else 0.0
    waited = one.run.info.outcome.kind == "raised" and not one.crashed
    return (not one.crashed, waited, one.first, -severity, -round(sure, 2), onset, one.rank)


def _alike(one: _Rank, origin: _Rank) -> bool:
    """Return True if a rank judged alone is explained as the origin is."""
    if one is origin:
        return True
    if one.crashed != origin.crashed or one.first[0] != origin.first[0]:
        return False
    mine, its = one.top, origin.top
    same = (mine is None) == (its is None) and (mine is None or its is None or mine.cause == its.cause)
    return same and one.diagnosis.verdict == origin.diagnosis.verdict


def _with_ranks(found: tuple[Hypothesis, ...], whole: list[_Rank], *, everywhere: bool) -> tuple[Hypothesis, ...]:
    """Return hypotheses with the ranks on which each was found; those between ranks name them in their words."""
    if everywhere:
        return found
    told = []
    for one in found:
        on = tuple(each.rank for each in whole if any(h.cause == one.cause for h in each.diagnosis.hypotheses))
        told.append(one if one.category == "distributed" or len(on) == len(whole) else replace(one, ranks=on))
    return tuple(told)


def _of_others(
    found: tuple[Hypothesis, ...], whole: list[_Rank], origin: _Rank, base: Diagnosis
) -> tuple[Hypothesis, ...]:
    """Return credible causes of other ranks that are no consequence of the origin's: those read from the program, and
    all where the origin has no trouble.
    """
    known, more = {one.cause for one in found}, []
    certain = {cause.id for cause in CAUSES if cause.tier is Tier.CERTAIN}
    explained = base.verdict == "failing"
    for each in whole:
        for one in each.diagnosis.hypotheses:
            if each is origin or one.confidence < CREDIBLE or one.cause in known:
                continue
            if explained and one.cause not in certain:
                continue
            known.add(one.cause)
            more.append(replace(one, ranks=(each.rank,)))
    return tuple(more)


def _prefix(
    origin: _Rank, shared: list[_Rank], job: Ranks, named: tuple[Hypothesis, ...], base: Diagnosis, *, everywhere: bool
) -> str:
    """Return the beginning of the summary that says on which ranks it is so."""
    if everywhere or (named and named[0].category == "distributed"):
        return ""
    if base.verdict in ("healthy", "inconclusive"):
        return f"On rank {origin.rank}: "
    return f"On {rank_words(one.rank for one in shared)} of {job.world}, "


def _after(prefix: str, text: str) -> str:
    """Return a sentence behind a prefix, its article in small letters."""
    if prefix.endswith(", ") and text.split(" ", 1)[0] in ("The", "A", "An", "No", "After", "Only"):
        text = text[0].lower() + text[1:]
    return prefix + text


def _spread(ranks: list[_Rank], origin: _Rank, job: Ranks) -> str:
    """Return a sentence about the ranks that the NaN reached."""
    reached = [one for one in ranks if one is not origin and one.broke is not None and one.first > origin.first]
    if not reached:
        return ""
    first = min(reached, key=lambda one: one.first)
    assert first.broke is not None
    by = "in the averaged gradients of" if first.broke.kind == "nonfinite_gradient" else "at"
    if by == "at" and job.data_parallel and first.first[0] == origin.first[0] + 1:
        by = "by the averaged gradients at"
    return f" It reached {rank_words(one.rank for one in reached)} {by} step {first.broke.first_step}."


def _agreement(job: Ranks, base: Diagnosis) -> str:
    """Return a sentence about what was compared, of a job without a fault between its ranks."""
    if base.verdict != "healthy":
        return ""
    count = job.compared
    if not count or job.difference("weights") is not None or job.difference("weights", always=True) is not None:
        return ""
    return f" Weights were equal on the {len(job.runs)} ranks in all {plural(count, 'step')} that were compared."


def _missing(job: Ranks) -> list[Unjudged]:
    """Return the ranks of which there is no record."""
    absent = [rank for rank in range(job.world) if rank not in job.runs]
    return [Unjudged(rank_words(absent), "there is no run file of it in this folder")] if absent else []
