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
    outside; the one that did not come has an earlier step or has ended. Dumps of torch's flight recorder beside the
    run files say in which collective each rank was.

What to do
    Make all ranks take the same number of steps (``drop_last``, ``DistributedSampler``, ``Join``), and call the same
    collectives in the same order, whatever their data are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.ranks import rank_words
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.explain.finding import Finding

WAITS = re.compile(
    r"timed out|timeout|connection (closed|reset)|broken pipe|remote process exited|watchdog|collective", re.IGNORECASE
)
"""Words of the errors with which a rank ends that has waited for another."""
NEAR = 2
"""Steps by which ranks may differ that are in the same collective."""


def judge(case: Case) -> Finding | None:
    """Weigh ranks that waited, beside those that ended earlier or stand behind."""
    job = case.job
    if job is None:
        return None
    waiting = [rank for rank, run in job.runs.items() if _waits(run.info.outcome.kind, run.info.outcome.message)]
    done = {rank: run.steps for rank, run in job.runs.items() if run.info.outcome.kind == "completed"}
    rest = {rank: run.steps for rank, run in job.runs.items()}
    if not waiting or any(_own_error(job, rank) for rank in job.runs):
        return None
    missed: tuple[int, ...] = ()
    behind = min(rest, key=lambda rank: rest[rank])
    most = max(rest.values())
    weigh = Weighing()
    if done and min(done.values()) < most + 1:
        missed = tuple(sorted(done))
        whom, them = sorted(done), "it" if len(done) == 1 else "them"
        weigh.speaks(
            f"{rank_words(whom)} ended after {plural(min(done.values()), 'step')} while {rank_words(waiting)} waited "
            f"for {them} in step {max(rest[rank] for rank in waiting)}",
            5.0,
        )  # fmt: skip
        said = f"{rank_words(whom)} had fewer steps than the others and left the loop"
        code = "loader = DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset, drop_last=True))"
        fix = "Let all ranks take the same number of steps, or wrap the loop in torch's Join."
    elif rest[behind] < most - NEAR:
        weigh.speaks(f"rank {behind} stands at step {rest[behind]}, the others at {most}", 4.0)
        missed = (behind,)
        said, code = f"rank {behind} did not go on after step {rest[behind]}", ""
        fix = f"Look at what rank {behind} does there: its stack (py-spy dump), its data, its machine."
    else:
        return None
    return weigh.conclude(f"a job that hangs: {said}", Remedy(fix, code), step=most, failure="a job that hangs",
                          ranks=missed)  # fmt: skip


def _waits(kind: str, message: str) -> bool:
    """Return True if a rank ended with an error of somebody who waited, or never ended."""
    return kind in ("running", "interrupted") or (kind == "raised" and WAITS.search(message) is not None)


def _own_error(job: Ranks, rank: int) -> bool:
    """Return True if a rank raised an error of its own: the others waited for a rank that had crashed."""
    outcome = job.runs[rank].info.outcome
    return outcome.kind == "raised" and WAITS.search(outcome.message) is None


CAUSE = Cause(
    module=__name__,
    title="The ranks wait for one that does not come",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    place="backward",
    page=__doc__ or "",
)
