"""The text of docs/performance.md: the numbers of performance.py enter, Markdown leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinds import KINDS
from overhead import MOST_WARM_UP_S
from performance_targets import DEFAULT, FULL, found, noise, quartiles, targets
from rounds import IN_PLACE_LEAST, IN_PLACE_TURN_S, LEAST, TURN_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEAD = """# What watching costs

Written by `make bench` (do not edit), {date}, in {minutes:.0f} minutes: {processor}, {cores} cores, load before the
start {load}; {system}; {versions}; CPU tensors are read by {kernel}.

![Ratios of step times to the bare training](performance.png)
"""
HOW = """## How it was measured

Each row is a training of its own, with the same seed, in a process that stays attached from its first step to its last.
They take turns of {turn_s:g} seconds, at least {least} steps, with a bare turn before every second one, in an order
that rotates; who has no turn is stopped with all its children, and its clocks stand still. The rows of this tool, and
*bare again*, are measured so {sets} times, {seconds:g} seconds and {rounds} turns each at least, each time with
processes that are new, the bare one as well: two that do the same differ for good by some percent, as their memory
happens to lie, and one speaks for itself only. The others are measured with one process, {peer_seconds:g} seconds and
{peer_rounds} turns at least: of what is close to 1 that says little. One thread computes
(`OMP_NUM_THREADS=1`, to be set otherwise in the environment): two threads on two cores that other programs use too wait
for each other, up to a hundred times the step. What torch frees stays with its process (`MALLOC_TRIM_THRESHOLD_`,
`MALLOC_MMAP_THRESHOLD_`): else 300 to 3,000 pages a step of the ConvNet go back to the system and come again, in one
process more, in another less, whoever watches. Each process has a second thread that sleeps, as most programs have
several: in a process that never had one glibc's locks cost next to nothing, and a tool that starts a thread would be
charged for torch's. A tool is imported before the model is made, as the first lines of a program do; that time counts
as its start. With `overhead=None` facts about the program are read in each of the first 256 steps, later in eight of
64: those rows are measured after them, or, of slow models, after as many steps as take {warm_up_s:g} seconds bare.

- **ratio**: the median step of a turn over that of the bare turns next to it in time; the median over turns, and of
  the {sets} that this gives the median again, with quartiles (where there is one process, of its turns). The row *bare
  again* is a second bare copy: what differences mean nothing here.
- **in place**: of this tool, in one and the same process: in turns of {in_place_turn_s:g} seconds, at least
  {in_place_least} steps, it is taken off the training and put on again (`benchmarks/aside.py`); of *bare again* nothing
  is. A compiled model has then been compiled twice, with the tool and without it, also that of *bare again*; in every
  second set the one without first, since either may be slower for good. Memory,
  threads and data are the same on both sides, which makes this several times as fine as process beside process, and the
  aims are held against it, unless even the lower quartile between processes is beyond the aim by more than bare ones
  stray; the median of the {sets}, and their quartiles.
  *Its totals* are all steps over as many without the tool, in place. What stays in a process while the tool is off
  both sides bear: for that there is the ratio between processes.
- **of totals**: all steps of a process over as many bare ones, the median of the {sets}; it sees what is done only now
  and then. One interruption by another program moves it. A thread of a tool that writes once a second wakes at nearly
  every turn, since the second runs on while the process is stopped: this and the next are too high for such tools.
- **of CPU**: the same of processor time, of all threads of the process (not of services that a tool starts): it
  hardly feels other programs, and counts what a tool does beside the training on another core.
- **start**: seconds more than bare from attaching through the first seconds of training (up to the hundredth step; up
  to the step in brackets), with the first process of each. *Settled* is the step from which half a second of training
  stayed within 5% of bare.
- **memory**: the peak of the process and its children over that of the bare process, imports of the tool included;
  here, too, the median of the {sets}.
- **disk**: what was left in the tool's folder, by step.
"""
COMPILED = """## Compiled

`torch.compile(model)`; *graphs* are those of Dynamo in the whole process before the model is compiled once more for the
turns in place, *later* those made after the first seconds and in the turns in place, while reading went on and off. The
LSTM has none, bare or watched: Dynamo leaves it in Python."""
TURNS = {
    "turn_s": TURN_S,
    "least": LEAST,
    "in_place_turn_s": IN_PLACE_TURN_S,
    "in_place_least": IN_PLACE_LEAST,
    "warm_up_s": MOST_WARM_UP_S,
}
ENOUGH_S = 2.0
"""Seconds of training of each process below which a page says that it is none."""
UNDER_SHORT = """Ratios of step times to the bare training, 1 is free. Of this tool and of *bare again* they are those
within one process, in brackets how far bare against bare strays there; of the others those between two processes, which
stray by some hundredths."""
SHORT = ("bare again", DEFAULT, FULL, "wandb.watch, all", "TensorBoard", "DebugUnderflowOverflow", "detect_anomaly")


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table, the first column to the left and the others to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---", *["---:"] * (len(heads) - 1)]) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def again(what: dict[str, str]) -> str:
    """Say what was measured once more after the rest, and when."""
    days = dict.fromkeys(what.values())
    told = [f"{', '.join(name for name, when in what.items() if when == day)} ({day})" for day in days]
    return f"Measured once more, after the rest: {'; '.join(told)}."


def page(numbers: dict[str, Any]) -> str:
    """Return the whole page."""
    where = numbers["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    head = HEAD.format(**{**where, "versions": versions, "load": " ".join(where["load"])}, minutes=numbers["minutes"])
    eager = [result for result in numbers["results"] if not result["compiled"]]
    compiled = [result for result in numbers["results"] if result["compiled"]]
    judged = grid(("", "aim", "reached", "met"), ((t.what, t.aim, t.reached, t.met) for t in targets(numbers)))
    effort = numbers["effort"]
    few = effort["sets"] * effort["seconds"] < ENOUGH_S
    trial = "**Provisional: so few turns are a trial of the benchmark, not a measurement.** " * few
    parts = [
        head,
        f"<!-- begin:short -->\n{short(eager, trial.strip())}\n\n{UNDER_SHORT}\n<!-- end:short -->",
        *([again(numbers["again"])] if numbers.get("again") else []),
        *([numbers["note"]] if numbers.get("note") else []),
        f"## What was aimed at\n\n{judged}",
        HOW.format(**effort, **TURNS).strip(),
        "## What each row is\n\n" + grid(("row", "what"), ((k.name, k.what) for k in KINDS.values() if not k.of_hooks)),
        "## Eager\n\n" + "\n\n".join(workload(result) for result in eager),
    ]
    if compiled:
        parts.append(f"{COMPILED}\n\n" + "\n\n".join(workload(result) for result in compiled))
    parts += [
        "## The kernel\n\n" + kernel(numbers["kernel"]),
        "## Starting\n\n" + starts(numbers["startup"], numbers["repeats"]),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def short(eager: list[dict[str, Any]], warning: str) -> str:
    """Return the table that the README quotes, with the warning that belongs to it."""
    heads = ("", *(f"{r['workload']} ({r['bare_ms']:.3g} ms)" for r in eager))
    rows = []
    for kind in SHORT:
        costs = [found(result, kind) for result in eager]
        cells = [f"{quartiles(cost)[1]:.3f}" if cost else "not measured" for cost in costs]
        if kind == "bare again":
            cells = [f"{cell} (±{noise(result):.3f})" for cell, result in zip(cells, eager, strict=True)]
        rows.append((kind, *cells))
    return f"{warning}\n\n{grid(heads, rows)}".strip()


def workload(result: dict[str, Any]) -> str:
    """Return the table of one workload."""
    heads = ["", "step ms", "ratio", "quartiles", "in place", "quartiles", "its totals", "of totals", "of CPU"]
    heads += ["start s", "settled", "memory MB", "disk KB"]
    if result["compiled"]:
        heads += ["graphs", "later", "breaks"]
    rows = []
    for c in result["costs"]:
        if c["problem"]:
            rows.append((c["kind"], f"**not measured**: {c['problem']}", *[""] * (len(heads) - 2)))
            continue
        row = [
            c["kind"],
            f"{c['step_ms']:.3g}",
            f"{c['ratio']:.3f}",
            f"{c['low']:.3f}-{c['high']:.3f}",
            *in_place(c),
            f"{c['of_totals']:.3f}",
            f"{c['of_processor']:.3f}",
            f"{c['start_100_s']:.2f}; {c['start_s']:.2f} ({c['opening_steps']:,})",
            settled(c),
            f"{c['memory_mb']:.0f}",
            f"{c['disk_kb_a_step']:.2f}",
        ]
        rows.append(
            (*row, *((str(c["graphs"]), str(c["late_graphs"]), str(c["breaks"])) if result["compiled"] else ()))
        )
    sites = next((c["sites"] for c in result["costs"] if c["sites"]), 0)
    title = f"### {result['workload']}{' compiled' if result['compiled'] else ''}"
    told = (
        f"{result['parameters']:,} parameters, {result['bare_ms']:.3g} ms a bare step, {sites} sites under NeuralDBG."
    )
    return f"{title}\n\n{told}\n\n{grid(heads, rows)}"


def in_place(cost: dict[str, Any]) -> tuple[str, str, str]:
    """Return ratio, quartiles and that of all steps within one process, empty where they cannot be had."""
    if not cost["in_place"]:
        return "", "", ""
    low, ratio, high = quartiles(cost)
    return f"{ratio:.3f}", f"{low:.3f}-{high:.3f}", f"{cost['in_place_totals']:.3f}"


def settled(cost: dict[str, Any]) -> str:
    """Say when a session that has a budget comes down to it."""
    if cost["kind"] != DEFAULT:
        return ""
    return f"{cost['settled_step']:,}" if cost["settled_step"] < cost["opening_steps"] else "not yet"


def kernel(speeds: list[dict[str, Any]]) -> str:
    """Return the table of the kernel's speed."""
    heads = (
        "dtype",
        "elements",
        "us a call",
        "GB/s",
        "plain read GB/s",
        "by",
        "share",
        "memcpy GB/s",
        "torch ops GB/s",
    )
    rows = (
        (
            s["dtype"],
            f"{s['elements']:,}",
            f"{s['kernel_us']:.3g}",
            f"{s['gbs']:.1f}",
            f"{s['limit_gbs']:.1f}",
            s["limit_by"],
            f"{s['gbs'] / s['limit_gbs']:.0%}",
            f"{s['copy_gbs']:.1f}",
            f"{s['torch_gbs']:.2f}",
        )
        for s in speeds
    )
    return (
        "All statistics of a whole tensor, on one thread, beside the fastest of several plain reads of as much memory "
        "(memchr, a dot product, maximum, sum); memcpy counts the side that is read. Best of many repeats.\n\n"
        + grid(heads, rows)
    )


def starts(found_ms: dict[str, float], repeats: int) -> str:
    """Return the table of start-up times."""
    rows = ((name if name.startswith("attach") else f"`{name}`", f"{ms:.0f}") for name, ms in found_ms.items())
    told = f"Fresh processes, medians of {repeats} in turns; imports of neuraldbg are clocked after torch is there."
    return f"{told}\n\n{grid(('', 'ms'), rows)}"
