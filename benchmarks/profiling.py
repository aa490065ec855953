"""What a profile costs: the same training bare, watched, and watched with a profile, as ratios of step times.

    python benchmarks/profiling.py [--models ConvNet,GPT] [--rounds N] [--seconds S]

The three train side by side in processes of their own and take turns (``rounds.py``). ``of totals`` counts all steps,
sampled ones among them; the ratio of medians is that of an ordinary step. (No module here is named ``profile``: Python
has one of that name, which torch imports.)
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from models import WORKLOADS
from overhead import QUICK, group, started
from rich.console import Console
from rich.table import Table
from rounds import BARE, Effort

KINDS = ("bare again", "NeuralDBG", "NeuralDBG, profile")
LIMIT = 1.05
"""The ratio that a profile is promised to stay within."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="ConvNet,GPT", help="a comma between names; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=Effort.rounds, help="turns at least; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training of each; default: %(default)s")
    args = parser.parse_args()
    models = args.models.split(",")
    if unknown := [name for name in models if name not in WORKLOADS]:
        parser.error(f"no such model: {', '.join(unknown)} (there are {', '.join(WORKLOADS)})")
    effort = Effort(sets=1, rounds=args.rounds, seconds=args.seconds, opening_s=QUICK.opening_s)
    table = Table("model", "kind", "step ms", "ratio", "quartiles", "of totals", "of CPU", "within", title="A profile")
    for name in models:
        with ExitStack() as stack:
            bare = started(stack, BARE, name, compiled=False)
            bare.turn(2.0, 20)
            for one in group(bare, list(KINDS), effort):
                if one.problem:
                    table.add_row(name, one.kind, f"NOT MEASURED: {one.problem}")
                    continue
                within = "yes" if max(one.ratio, one.of_totals) <= LIMIT else f"no: {LIMIT}"
                table.add_row(
                    name, one.kind, f"{one.step_ms:.2f}", f"{one.ratio:.3f}", f"{one.low:.3f}-{one.high:.3f}",
                    f"{one.of_totals:.3f}", f"{one.of_processor:.3f}", within if "profile" in one.kind else "",
                )  # fmt: skip
            bare.close()
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
