"""How often the diagnosis is right: every program of tests/faults under the tool, over several seeds.

    python benchmarks/accuracy.py [--seeds 3] [--only NAME ...] [--all]

A fault counts as right when the first hypothesis names its cause with a confidence of at least 0.5, its layer where
one is guilty, and its first step within two. A healthy training counts as an alarm when anything at all is blamed, or
the verdict is worse than the program allows. The first families of programs were used to set the rules; `second` was
written afterwards and run once before anything was changed for it, so that it says more.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.corpus import Grade, Program, grade, load, watch

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Answer:
    """One program with one seed."""

    program: Program
    seed: int
    grade: Grade

    @property
    def alarm(self) -> bool:
        return not self.program.cause and not self.grade.right


def share(values: Iterable[bool | None]) -> str:
    """Count what is right of what is defined."""
    known = [value for value in values if value is not None]
    return f"{sum(known)}/{len(known)} ({sum(known) / len(known):.0%})" if known else "-"


def summary(answers: list[Answer]) -> Table:
    table = Table("seed", "cause", "layer", "step", "verdict", "alarms on healthy")
    seeds = sorted({answer.seed for answer in answers})
    for label, chosen in [*((str(seed), {seed}) for seed in seeds), ("all", set(seeds))]:
        mine = [a for a in answers if a.seed in chosen]
        faults, healthy = [a.grade for a in mine if a.program.cause], [a for a in mine if not a.program.cause]
        table.add_row(
            label,
            share(g.cause for g in faults),
            share(g.layer for g in faults),
            share(g.step for g in faults),
            share(g.verdict for g in faults),
            share(a.alarm for a in healthy),
        )
    return table


def details(answers: list[Answer], *, everything: bool) -> Table:
    table = Table("program", "kind", "golden", "seed", "said", "wrong")
    for answer in answers:
        if everything or not answer.grade.right:
            one = answer.program
            golden = " or ".join(one.cause) or " or ".join(one.verdicts)
            table.add_row(
                one.name, one.kind, golden, str(answer.seed), answer.grade.said, ", ".join(answer.grade.wrong)
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="names of programs or of families")
    parser.add_argument("--all", action="store_true", help="list every answer, not only the wrong ones")
    wanted = parser.parse_args()
    console = Console(width=160 if not sys.stdout.isatty() else None)
    answers = []
    for name, one in load().items():
        family = one.run.__module__.rpartition(".")[2]
        if wanted.only and name not in wanted.only and family not in wanted.only:
            continue
        answers += [Answer(one, seed, grade(one, watch(one, seed))) for seed in range(wanted.seeds)]
    table = details(answers, everything=wanted.all)
    if table.row_count:
        console.print(table)
    console.print(summary(answers))


if __name__ == "__main__":
    main()
