"""The job hangs: one rank never came to where the others wait for it.

What it is
    A collective ends when all ranks have called it. One rank that has died, has left its loop earlier because it had
    fewer batches, took another branch, or waits for a file, leaves the others waiting without an end, or until the
    watchdog ends them.

Symptoms
    Nothing happens any more, at full load of the processor or none. After half an hour an error of the watchdog names
    a collective, on a rank that did nothing wrong.

Evidence
    The last step of each rank, and how it ended: ranks that wait have an error of a collective, or were ended from
    outside; the one that did not come has an earlier step, has ended, has a record without an end (it was killed), or
    stood in a line that is no collective. A job that was ended by a signal must have stood still for thirty steps.

What to do
    Make all ranks take the same number of steps (``drop_last``, ``DistributedSampler``, ``Join``), and call the same
    collectives in the same order, whatever their data are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.ranks import crashed, left_waiting, rank_words
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.kinds import SourceLine

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.explain.finding import Finding

MEETS = re.compile(
    r"backward\(|all_reduce|all_gather|reduce_scatter|broadcast|barrier|\.wait\(|\.step\(|monitored|recv\("
)
"""Calls in which a rank waits for others."""
QUOTED = 120
"""Characters of an error that are quoted."""
NEAR = 2
"""Steps by which ranks may differ that are in the same collective."""
LONG, LEAST_S = 30.0, 5.0
"""Usual steps, and seconds, that a job must have stood still before it was ended from outside."""


def judge(case: Case) -> Finding | None:
    """Weigh ranks that waited, beside those that ended earlier, stand behind, or were somewhere else."""
    job = case.job
    if job is None:
        return None
    ended = {rank: run.info.outcome for rank, run in job.runs.items()}
    waiting = [rank for rank, one in ended.items() if left_waiting(one) or one.kind in ("running", "interrupted")]
    if not waiting or any(map(crashed, ended.values())):
        return None
    weigh = Weighing()
    found = _left(job, waiting, weigh) or _killed(job, weigh) or _behind(job, weigh) or _elsewhere(job, weigh)
    if found is None:
        return None
    missed, said, remedy = found
    return weigh.conclude(
        f"a job that hangs: {said}",
        remedy,
        step=max(run.steps for run in job.runs.values()),
        failure="a job that hangs",
        ranks=missed,
        at=_line(job, missed[0]),
        doing="this rank stood",
    )


def _left(job: Ranks, waiting: list[int], weigh: Weighing) -> tuple[tuple[int, ...], str, Remedy] | None:
    """Weigh ranks that have ended while others waited for them."""
    done = {rank: run.steps for rank, run in job.runs.items() if run.info.outcome.kind == "completed"}
    steps = {rank: run.steps for rank, run in job.runs.items()}
    if not done or min(done.values()) > max(steps.values()):
        return None
    whom, them = sorted(done), "it" if len(done) == 1 else "them"
    weigh.speaks(
        f"{rank_words(whom)} ended after {plural(min(done.values()), 'step')} while {rank_words(waiting)} waited for "
        f"{them} in step {max(steps[rank] for rank in waiting)}",
        5.0,
    )  # fmt: skip
    return (
        tuple(whom),
        f"{rank_words(whom)} had fewer steps than the others and left the loop",
        Remedy(
            "Let all ranks take the same number of steps, or wrap the loop in torch's Join.",
            "loader = DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset, drop_last=True))",
        ),
    )


def _killed(job: Ranks, weigh: Weighing) -> tuple[tuple[int, ...], str, Remedy] | None:
    """Weigh ranks whose records have no end, while others raised that they had lost them."""
    ended = {rank: run.info.outcome for rank, run in job.runs.items()}
    gone = tuple(rank for rank, outcome in ended.items() if outcome.kind == "running")
    lost = [rank for rank, outcome in ended.items() if left_waiting(outcome)]
    if not gone or not lost:
        return None
    said = ended[lost[0]].message.splitlines()[0][:QUOTED]
    weigh.speaks(f"the record of {rank_words(gone)} has no end, and {rank_words(lost)} raised: {said}", 5.0)
    return (
        gone,
        f"{rank_words(gone)} died without an exception after step {max(job.runs[rank].steps for rank in gone)}",
        Remedy(
            "Look for what ended it: the system's log (out of memory: dmesg), the queue's, a crash in native code "
            "(python -X faulthandler)."
        ),
    )


def _behind(job: Ranks, weigh: Weighing) -> tuple[tuple[int, ...], str, Remedy] | None:
    """Weigh a rank that stands several steps behind the others."""
    steps = {rank: run.steps for rank, run in job.runs.items()}
    behind = min(steps, key=lambda rank: steps[rank])
    if steps[behind] >= max(steps.values()) - NEAR or not _stood(job, weigh):
        return None
    weigh.speaks(f"rank {behind} stands at step {steps[behind]}, another one at {max(steps.values())}", 4.0)
    return (behind,), f"rank {behind} did not go on after step {steps[behind]}{_at(job, behind)}", _look(job, behind)


def _elsewhere(job: Ranks, weigh: Weighing) -> tuple[tuple[int, ...], str, Remedy] | None:
    """Weigh a rank that was ended outside of any collective while the others were in one."""
    texts = {rank: run.info.outcome.text for rank, run in job.runs.items()}
    missing = tuple(rank for rank, text in texts.items() if text and not MEETS.search(text))
    waited = [rank for rank, text in texts.items() if text and MEETS.search(text)]
    if not missing or not waited or len(missing) > len(waited) or not _stood(job, weigh):
        return None
    said = f"{rank_words(waited)} waited in `{texts[waited[0]]}`, while {rank_words(missing)} stood in "
    weigh.speaks(f"{said}`{texts[missing[0]]}`", 4.0)
    first = missing[0]
    return missing, f"{rank_words(missing)} did not come to where the others wait{_at(job, first)}", _look(job, first)


def _stood(job: Ranks, weigh: Weighing) -> bool:
    """Weigh how long the job stood still before it was ended; return False if that was not long."""
    idle, usual = min(job.idle(rank) for rank in job.runs)
    if idle < max(LEAST_S, LONG * usual):
        return False
    weigh.speaks(
        f"no rank made a step in the last {number(idle)} s, where a step takes {number(usual)} s", 2.0, idle, LEAST_S
    )
    return True


def _at(job: Ranks, rank: int) -> str:
    outcome = job.runs[rank].info.outcome
    return f": it stood at {outcome.where}, `{outcome.text}`" if outcome.where and outcome.text else ""


def _line(job: Ranks, rank: int) -> SourceLine | None:
    outcome = job.runs[rank].info.outcome
    file, _, line = outcome.where.rpartition(":")
    return SourceLine(file, int(line), outcome.text) if file and line.isdigit() else None


def _look(job: Ranks, rank: int) -> Remedy:
    where = job.runs[rank].info.outcome.where
    if not where:
        return Remedy(f"Look at what rank {rank} does there: its stack (py-spy dump), its data, its machine.")
    said = f"Look at {where} on rank {rank}: what does it wait for?"
    return Remedy(f"{said} All ranks are to call the same collectives in the same order.")


CAUSE = Cause(
    module=__name__,
    title="The ranks wait for one that does not come",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    place="step",
    page=__doc__ or "",
)
