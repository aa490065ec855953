"""How often the diagnosis is right of trainings that are sound for a while: the programs of tests/faults/late.

    python benchmarks/late.py [--seeds 1] [--pairs N] [--only KIND|TASK ...] [--tuned] [--cached]
                              [--overhead SHARE|none] [--allowance SECONDS] [--workers 1]

Draws programs: every kind of change on one task and on one that is held out, with an onset between 300 steps and the
task's longest. Runs each and keeps its record (.cache/faults), explains it, grades the answer, and prints every answer
and the scores. ``--pairs`` runs the first so many of the draw, one of each kind first; ``--tuned`` runs every kind on
every task on which it holds, but those that are held out. ``--cached`` explains records by an older source of the tool
rather than train again. Nothing is written and nothing is fitted.

Grades are those of tests/faults/golden.py, but a step is right within two, or within 1% of the onset if that is more;
an answer that gives an interval is right if the onset lies in it, widened by as much.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from accuracy_runs import Job, budget, digest, each, kept, options

from accuracy_answers import Answer, Said, findings, share  # isort: skip (the path to tests is set by the module above)
from accuracy_report import LATE_HEAD, calibration_error, reliability  # isort: skip
import numpy as np
from rich.console import Console
from rich.table import Table
from tests.faults.golden import BAD, NEAR, grade
from tests.faults.late.late_corpus import Late, drawn, named
from tests.faults.late.late_kinds import KINDS
from tests.faults.late.late_pairs import PAIRS
from tests.faults.late.late_tasks import TASKS

from neuraldbg.explain import diagnose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.corpus import Program

    from neuraldbg import Hypothesis
    from neuraldbg.nouns import RunRecord

SOURCES = tuple(f"tests/faults/late/late_{part}.py" for part in ("tasks", "kinds", "corpus"))
"""What decides how a program trains."""
COLLAPSED, BEFORE, END = 1.5, 50, 1 / 3
"""Factor by which a loss must lie above its level before the onset, losses before it, and share of those since then at
the end."""


@dataclass(frozen=True)
class LateAnswer(Answer):
    """What was said of one program."""

    since: int | None = None
    """Where the first hypothesis began at the earliest, if it gives an interval."""
    collapsed: bool = False
    """Whether the loss ended far above its level before the onset, or not finite."""
    seconds: float = 0.0
    """What training and explaining took; almost nothing for a record from the cache."""

    @property
    def late(self) -> Late:
        return named(self.name)

    @property
    def program(self) -> Program:
        return self.late.program()

    @property
    def fitted(self) -> bool:
        return not self.late.task.held_out

    @property
    def alarmed(self) -> bool:
        """Whether something was said of a harmless change."""
        return bool(self.said) or self.verdict in BAD


def near(said: Hypothesis | None, onset: int) -> bool:
    """Whether the step of a hypothesis, or its interval, holds an onset."""
    if said is None or said.step is None:
        return False
    slack = max(float(NEAR), 0.01 * onset)
    if said.since is None:
        return abs(said.step - onset) <= slack
    return said.since - slack < onset <= said.step + slack


def collapsed(run: RunRecord, onset: int) -> bool:
    """Return True if a loss ends not finite, or clearly above its level before the onset."""
    loss = run.scalar("loss")
    before = loss.values[loss.steps < onset][-BEFORE:]
    since = loss.values[loss.steps >= onset]
    end = since[-max(1, int(len(since) * END)) :]
    if not len(before) or not len(end) or not np.isfinite(end).all():
        return bool(len(end))
    above = np.quantile(end, 0.1) > np.quantile(before, 0.9)
    return bool(above and np.median(before) > 0 and np.median(end) >= COLLAPSED * np.median(before))


def answer(job: Job) -> LateAnswer:
    """Run or load one program, explain its record and grade what was said."""
    began = time.time()
    one = named(job.name)
    key = f"late-{job.name}-{digest(*SOURCES)}{''.join(f'-{name}={value}' for name, value in job.capture)}"
    run = kept(one.program(), key, job)
    diagnosis = diagnose(run)
    top = diagnosis.hypotheses[0] if diagnosis.hypotheses else None
    graded = grade(replace(one.golden, step=None), diagnosis)
    # Of a fault without a name in the list nobody need say when, but what is said is graded.
    if one.golden.cause or (one.golden.unclear and top is not None):
        right = near(top, one.onset)
        graded = replace(graded, step=right, wrong=(*graded.wrong, *(() if right else ("step",))))
    return LateAnswer(
        job.name,
        job.seed,
        diagnosis.verdict,
        tuple(Said(h.cause, h.confidence, h.layer, h.step) for h in diagnosis.hypotheses),
        findings(run),
        graded,
        frozenset(),
        frozenset(),
        tuple(u.what for u in diagnosis.unjudged if "could not be judged" in u.reason),
        since=top.since if top is not None else None,
        collapsed=collapsed(run, one.onset),
        seconds=time.time() - began,
    )


def listing(answers: Sequence[LateAnswer]) -> Table:
    """List every answer."""
    listed = Table("kind", "task", "onset", "expected", "said", "conf.", "step", "right?", "verdict", "s")
    for one in answers:
        golden, top = one.program.golden, one.said[0] if one.said else None
        expected = " or ".join(golden.cause) or ("no known cause" if golden.unclear else "healthy")
        step = "" if top is None or top.step is None else str(top.step)
        if one.since is not None:
            step = f"{one.since} to {step}"
        listed.add_row(
            one.late.kind.name,
            one.late.task.name + (" (held out)" if not one.fitted else ""),
            str(one.late.onset),
            expected,
            top.cause if top is not None else "-",
            f"{top.confidence:.2f}" if top is not None else "",
            step,
            "yes" if one.grade.right else "no: " + ", ".join(one.grade.wrong),
            one.verdict,
            f"{one.seconds:.0f}",
        )
    return listed


def scores(label: str, mine: Sequence[LateAnswer]) -> list[str]:
    """Return one row of the summary."""
    faults = [a for a in mine if not a.program.golden.healthy]
    harmless = [a for a in mine if a.program.golden.healthy]
    return [
        label,
        f"{len(faults)} faults, {len(harmless)} harmless",
        share(a.grade.cause for a in faults if a.faulty),
        share(a.grade.step for a in faults),
        share(a.grade.verdict for a in faults),
        share(a.grade.cause and a.grade.verdict for a in faults if not a.faulty),
        share(a.verdict == "healthy" for a in faults),
        share(a.verdict == "healthy" for a in faults if a.collapsed),
        share(a.alarmed for a in harmless),
        share(not a.grade.verdict for a in harmless),
        f"{calibration_error(reliability(mine)):.3f}",
    ]


def tuned(seeds: int, only: Sequence[str]) -> list[Late]:
    """Return every kind on every task on which it was measured to hold, but those that are held out."""
    every = [
        Late(KINDS[kind], TASKS[task], seed)
        for kind, names in PAIRS.items() for task in names if not TASKS[task].held_out for seed in range(seeds)
    ]  # fmt: skip
    return [one for one in every if not only or {one.name, one.kind.name, one.task.name} & set(only)]


def rows(answers: Sequence[LateAnswer]) -> list[list[str]]:
    """Score all answers, and those on tasks that numbers are tuned on apart from the others."""
    held = [name for name, task in TASKS.items() if task.held_out]
    parts = (
        ("all", answers),
        ("tuned tasks", [a for a in answers if a.fitted]),
        (f"held out: {', '.join(held)}", [a for a in answers if not a.fitted]),
    )
    return [scores(label, mine) for label, mine in parts if mine]


def summary(answers: Sequence[LateAnswer]) -> Table:
    """Return the scores as a table of the terminal."""
    found = Table(*LATE_HEAD)
    for row in rows(answers):
        found.add_row(*row)
    return found


def first(programs: Sequence[Late], count: int) -> list[Late]:
    """Return so many programs, one of each kind first."""
    seen: dict[str, int] = {}
    turns = []
    for place, one in enumerate(programs):
        turn = seen[one.kind.name] = seen.get(one.kind.name, -1) + 1
        turns.append((turn, place, one))
    return [one for _, _, one in sorted(turns, key=lambda turn: turn[:2])[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each pair; pairs were measured with the first")
    parser.add_argument("--pairs", type=int, help="run only so many programs of the draw")
    parser.add_argument("--only", nargs="*", default=[], help="names of kinds, tasks or programs")
    parser.add_argument("--tuned", action="store_true", help="every kind on every tuned task on which it holds")
    options(parser)
    parser.add_argument("--workers", type=int, default=1)
    wanted = parser.parse_args()
    chosen = tuned(wanted.seeds, wanted.only) if wanted.tuned else drawn(wanted.seeds, wanted.only)
    if wanted.pairs is not None:
        chosen = first(chosen, wanted.pairs)
    capture = budget(wanted.overhead, wanted.allowance)
    began = time.time()
    answers = each(answer, [Job(one.name, one.seed, wanted.cached, capture) for one in chosen], wanted.workers)
    console = Console(width=200 if not sys.stdout.isatty() else None)
    console.print(listing(answers))
    for one in answers:
        if one.unjudged:
            console.print(f"{one.name}: could not be judged: {', '.join(one.unjudged)}")
    console.print(summary(answers))
    console.print(f"{len(answers)} programs, {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
