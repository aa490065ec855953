"""How often the diagnosis is right: every program of tests/faults under the tool, over several seeds, and those of
tests/faults/late, which are sound for a while.

    python benchmarks/accuracy.py [--seeds 3] [--fit] [--cached] [--only NAME ...] [--all]
                                  [--overhead SHARE|none] [--allowance SECONDS]

Runs each program and keeps its record (.cache/faults), explains it, grades the answer, and writes docs/accuracy.md,
with late faults apart. ``--fit`` first fits src/neuraldbg/explain/verdict/calibration.json on a part of the base tasks,
early and late. ``--cached`` explains
records by an older source of the tool rather than train again. With ``--only`` (names of programs, modules or tasks)
nothing is written: the wrong answers and the scores are printed. So with ``--overhead`` and ``--allowance``, which run
the programs under another budget than the default: with ``none`` every site is read at every step, with a small
allowance most of a program's steps are light.
"""

from __future__ import annotations

import argparse
import sys
import time

from accuracy_runs import ROOT, Job, budget, each, options, programs

from accuracy_answers import Answer, answer  # isort: skip (the path to tests is set by the module above)
from accuracy_fit import fit, write  # isort: skip
from accuracy_report import HEAD, diagram, document, parts_of, reliability, scores  # isort: skip
import late  # isort: skip
from rich.console import Console
from rich.table import Table
from tests.faults.late.late_corpus import drawn


def details(answers: list[Answer], *, everything: bool) -> Table:
    """List answers, the wrong ones or all."""
    listed = Table("program", "task", "golden", "seed", "said", "wrong")
    for one in answers:
        if everything or not one.grade.right:
            golden = one.program.golden
            wanted = " or ".join(golden.cause) or " or ".join(golden.verdicts)
            wanted += "".join(f" and {cause}" for cause in golden.also)
            listed.add_row(
                one.name, one.program.task, wanted, str(one.seed), one.grade.said, ", ".join(one.grade.wrong)
            )
    return listed


def seeds_of(name: str, seeds: int, only: list[str]) -> range:
    """Return a program's seeds: a faulty function has one, so that all that is healthy has its three in due time."""
    one = programs()[name]
    return range(1 if one.golden.cause and not one.text and not only else seeds)


def refit(answers: list[Answer], lately: list[late.LateAnswer], seeds: int, command: str) -> None:
    """Fit the calibration on the fitted tasks: of early faults without their last seed."""
    mine = [a for a in answers if a.fitted and (a.seed != seeds - 1 or seeds == 1)]
    mine += [a for a in lately if a.fitted]
    observed = [o for a in mine for o in a.observations()]
    counts: dict[str, object] = {
        "programs": len({a.name for a in mine}),
        "late programs": sum(isinstance(a, late.LateAnswer) for a in mine),
        "seeds": sorted({a.seed for a in mine}),
        "findings": len(observed),
        "findings_right": sum(o.right for o in observed),
    }
    write(fit(observed), counts, command, ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fit", action="store_true", help="fit calibration.json first")
    options(parser)
    parser.add_argument("--only", nargs="*", default=[], help="names of programs, modules or tasks")
    parser.add_argument("--all", action="store_true", help="list every answer, not only the wrong ones")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    command = "python benchmarks/accuracy.py " + " ".join(sys.argv[1:])
    began = time.time()
    chosen = [
        name for name, one in programs().items() if not wanted.only or {name, one.family, one.task} & set(wanted.only)
    ]
    capture = budget(wanted.overhead, wanted.allowance)
    jobs = [
        Job(name, seed, wanted.cached, capture) for name in chosen for seed in seeds_of(name, wanted.seeds, wanted.only)
    ]
    answers = each(answer, jobs, wanted.workers)
    whole = not wanted.only and not capture
    later = [Job(one.name, one.seed, wanted.cached) for one in drawn()] if whole else []
    lately = each(late.answer, later, wanted.workers)
    if wanted.fit and whole:
        for _ in range(2):  # what a cause explains of another depends on how sure it is
            refit(answers, lately, wanted.seeds, command)
            answers = each(answer, [Job(job.name, job.seed, True) for job in jobs], wanted.workers, tell=False)
            lately = each(late.answer, [Job(job.name, job.seed, True) for job in later], wanted.workers, tell=False)
    console = Console(width=180 if not sys.stdout.isatty() else None)
    listed = details(answers, everything=wanted.all)
    if listed.row_count:
        console.print(listed)
    summary = Table(*HEAD)
    for label, mine in parts_of(answers, wanted.seeds):
        if mine:
            summary.add_row(*scores(label, mine))
    console.print(summary)
    if whole:
        console.print(late.summary(lately))
        docs = ROOT / "docs"
        (docs / "accuracy.md").write_text(
            document(answers, late.rows(lately), wanted.seeds, command, time.time() - began), encoding="utf-8"
        )
        held = [a for a in answers if not a.fitted]
        (docs / "accuracy.svg").write_text(diagram(reliability(held), "held-out tasks"), encoding="utf-8")


if __name__ == "__main__":
    main()
