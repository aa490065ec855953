"""What was said of each program with each seed: a job enters, a small picklable answer with its grade leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import accuracy_baselines as baselines
from accuracy_fit import FIT_TASKS, MOST, Observation
from accuracy_runs import Job, programs, recorded
from tests.faults.golden import Grade, grade

from neuraldbg.explain import Case, diagnose, judge_all
from neuraldbg.explain.verdict.ranking import weigh

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.faults.corpus import Program

    from neuraldbg.nouns import RunRecord


@dataclass(frozen=True)
class Said:
    """One hypothesis of a diagnosis."""

    cause: str
    confidence: float
    layer: str | None
    step: int | None


@dataclass(frozen=True)
class Answer:
    """One program with one seed."""

    name: str
    seed: int
    verdict: str
    said: tuple[Said, ...]
    findings: tuple[tuple[str, str, float, float], ...]
    """Tier, cause, evidence, evidence that something else explains: every finding, shown or not."""
    grade: Grade
    thresholds: frozenset[str]
    """Symptoms that the first baseline names."""
    rules: frozenset[str]
    """Symptoms that the second baseline names."""
    unjudged: tuple[str, ...] = ()
    """Causes whose judge failed: errors of ours."""
    surprise: str = ""
    """Of a script that ended with an exception that nobody meant, its message."""

    @property
    def program(self) -> Program:
        return programs()[self.name]

    @property
    def faulty(self) -> bool:
        return bool(self.program.golden.cause)

    @property
    def alarm(self) -> bool:
        return self.program.golden.healthy and not self.grade.right

    @property
    def fitted(self) -> bool:
        """Whether its base task is one that numbers are fitted on."""
        return self.program.task in FIT_TASKS

    def observations(self) -> list[Observation]:
        """Return its findings for the fit; what is tolerated is neither right nor wrong."""
        one = self.program.golden
        return [
            Observation(tier, cause, min(evidence, MOST), taken, cause in one.every)
            for tier, cause, evidence, taken in self.findings
            if cause not in one.tolerated
        ]


def answer(job: Job) -> Answer:
    """Explain one record and grade what was said."""
    run, one = recorded(job), programs()[job.name]
    diagnosis = diagnose(run)
    outcome = run.info.outcome
    surprising = bool(one.text) and (outcome.kind == "raised") != one.raises
    return Answer(
        job.name,
        job.seed,
        diagnosis.verdict,
        tuple(Said(h.cause, h.confidence, h.layer, h.step) for h in diagnosis.hypotheses),
        findings(run),
        grade(one.golden, diagnosis),
        baselines.thresholds(run),
        baselines.rules(run),
        tuple(u.what for u in diagnosis.unjudged if "could not be judged" in u.reason),
        (outcome.message.strip().splitlines() or ["it did not raise"])[-1] if surprising else "",
    )


def findings(run: RunRecord) -> tuple[tuple[str, str, float, float], ...]:
    """Return tier, cause, evidence, and what something else explains of it, for every finding of a run."""
    case = Case(run)
    weighed = weigh(case, judge_all(case)[0])
    return tuple((w.cause.tier.name.lower(), w.cause.id, w.finding.log_odds, w.taken) for w in weighed)


def share(values: Iterable[bool | None]) -> str:
    """Count what is right of what is defined."""
    known = [bool(value) for value in values if value is not None]
    return f"{sum(known)}/{len(known)} ({sum(known) / len(known):.0%})" if known else "-"
