"""Measure the limits of sound trainings: records enter, the text of ``ordinary.json`` leaves, and a table of how often
an observation is made.

    python benchmarks/accuracy_ordinary.py [--cached] [--faults]

Takes the records that accuracy.py left in .cache/faults, and trains what is not there. The limits are those of the
healthy programs of the tasks that confidences are fitted on; the table says how many observations are made of the
healthy programs of the tasks that are held out and, with ``--faults``, of the faulty ones. ``--cached`` takes records
by an older source of the tool as they are.
"""

from __future__ import annotations

import argparse
import datetime as dt

from accuracy_runs import ROOT, Job, each, programs, recorded

from accuracy_fit import FIT_TASKS  # isort: skip (the path to tests is set by the module above)
from rich.console import Console
from rich.table import Table

from neuraldbg.explain import Case, diagnose
from neuraldbg.explain.verdict import observations

TARGET = ROOT / "src" / "neuraldbg" / "explain" / "verdict" / observations.FILE


def made(job: Job) -> int:
    """Return the number of observations of a program."""
    return len(diagnose(recorded(job)).observations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cached", action="store_true", help="take records by an older source of the tool as they are")
    parser.add_argument("--faults", action="store_true", help="count observations of faulty programs, too")
    wanted = parser.parse_args()
    known = programs()
    sound = [name for name, one in known.items() if one.golden.healthy]
    mine = [name for name in sound if known[name].task in FIT_TASKS]
    jobs = [Job(name, 0, wanted.cached) for name in sound]
    each(made, jobs)  # trains what has no record
    provenance = {
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "command": "python benchmarks/accuracy_ordinary.py",
        "programs": len(mine),
    }
    TARGET.write_text(
        observations.limits((Case(recorded(Job(name, 0, stale_ok=True))) for name in mine), provenance), "utf-8"
    )
    observations.measured.cache_clear()
    table = Table("programs", "with an observation", "observations")
    groups = {
        "healthy, of fitted tasks": mine,
        "healthy, held out": [name for name in sound if name not in set(mine)],
    }
    if wanted.faults:
        groups["faulty, held out"] = [n for n, one in known.items() if one.golden.cause and one.task not in FIT_TASKS]
    for label, names in groups.items():
        counts = each(made, [Job(name, 0, stale_ok=True) for name in names], tell=False)
        share = f"{sum(map(bool, counts))} of {len(counts)}"
        table.add_row(label, share, str(sum(counts)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
