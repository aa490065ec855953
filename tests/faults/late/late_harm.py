"""Whether a change does harm, measured without the tool: programs enter, losses on fixed clean data leave.

    python -m tests.faults.late.late_harm [--seed 0] [--only KIND|TASK ...] > FILE
    python -m tests.faults.late.late_harm --pairs FILE ...      # writes late_pairs.py from what was measured

All programs of a task share the steps before their onset: the sound training forks at each onset, and goes on itself
as the twin of all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tests.faults.late.late_corpus import Late, fitting
from tests.faults.late.late_kinds import KINDS
from tests.faults.late.late_tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.late.late_tasks import Training

WORSE = 1.15
"""A loss above this many times that of the onset, and of the twin, is harm."""
BETTER = 0.97
"""The twin's loss must fall below this many times that of the onset before a stall can be told."""
STALL = 1 / 3
"""Share of the twin's improvement below which a training has stalled."""
CALM = 1.10
"""Up to this many times the loss of the onset, or of the twin, nothing has happened."""
APART = 1.25
"""A harmless change must not end above this many times the twin's loss, whatever it had at the onset."""

NOISY = ("convnet",)
"""Tasks whose loss on clean data goes up and down by more than a stall would show."""


@dataclass(frozen=True)
class Harm:
    """Losses on clean data: at the onset, at the end, and at the end of the twin."""

    name: str
    kind: str
    task: str
    onset: int
    at: float
    end: float
    twin: float
    error: str = ""

    @property
    def stalled(self) -> bool:
        return (
            self.task not in NOISY
            and self.twin < BETTER * self.at
            and self.at - self.end < STALL * (self.at - self.twin)
        )

    @property
    def harmed(self) -> bool:
        return not math.isfinite(self.end) or self.end > WORSE * max(self.at, self.twin) or self.stalled

    @property
    def calm(self) -> bool:
        return not self.error and self.end <= min(CALM * max(self.at, self.twin), APART * self.twin)

    def holds(self, *, harmless: bool) -> bool:
        """Whether the program is what its kind says."""
        return self.calm if harmless else self.harmed and not self.error


def ended(training: Training, one: Late) -> tuple[float, str]:
    """Return the loss at the end of a training that goes on from where it is."""
    try:
        training.train(one.steps, one.onset, one.kind.change)
    except (RuntimeError, ValueError, AttributeError, TypeError) as error:
        return math.inf, f"{type(error).__name__}: {error}"
    return training.quality(), ""


def forked(training: Training, one: Late) -> tuple[float, str]:
    """Do the same in a child process, so that the training itself stays as it is."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.write(writing, json.dumps(ended(training, one)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    value, error = json.loads(text)
    return value, error


def measured(programs: Sequence[Late]) -> list[Harm]:
    """Measure programs of one task and one seed."""
    task, seed = programs[0].task, programs[0].seed
    twin = task(seed)
    before: dict[str, tuple[float, float, str]] = {}
    later: dict[str, float] = {}
    moments = sorted({step for one in programs for step in (one.onset, one.steps)})
    for moment in moments:
        twin.train(moment)
        quality = twin.quality()
        for one in programs:
            if one.steps == moment:
                later[one.name] = quality
            if one.onset == moment:
                if one.kind.before is None:
                    before[one.name] = (quality, *forked(twin, one))
                else:
                    own = one.begun()
                    own.train(one.onset)
                    at = own.quality()
                    before[one.name] = (at, *ended(own, one))
    return [
        Harm(
            one.name, one.kind.name, one.task.name, one.onset,
            before[one.name][0], before[one.name][1], later[one.name], before[one.name][2],
        )
        for one in programs
    ]  # fmt: skip


def write_pairs(files: Sequence[str]) -> None:
    """Write which kinds hold on which tasks, and which do not."""
    read = [json.loads(line) for name in files for line in Path(name).read_text(encoding="utf-8").splitlines()]
    lines = {(line["kind"], line["task"]): line for line in read}.values()  # what was measured again counts
    held: dict[str, list[str]] = {}
    dropped: dict[str, list[str]] = {}
    for kind in KINDS:
        for line in lines:
            if line["kind"] == kind:
                harm = Harm(*(line[each.name] for each in fields(Harm)))
                (held if harm.holds(harmless=KINDS[kind].harmless) else dropped).setdefault(kind, []).append(
                    line["task"]
                )
    text = ['"""Written by late_harm.py: on which tasks each kind is what it says, measured bare with seed 0."""']
    for name, found in (("PAIRS", held), ("DROPPED", dropped)):
        entries = [
            f'    "{kind}": (' + ", ".join(map(json.dumps, tasks)) + ("),", ",),")[len(tasks) == 1]
            for kind, tasks in found.items()
        ]
        text += ["", f"{name}: dict[str, tuple[str, ...]] = {{", *entries, "}"]
    Path(__file__).with_name("late_pairs.py").write_text("\n".join(text) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="names of kinds or tasks")
    parser.add_argument("--pairs", nargs="*", default=[], help="files that were measured")
    wanted = parser.parse_args()
    if wanted.pairs:
        write_pairs(wanted.pairs)
        return
    torch.set_num_threads(1)
    for task in TASKS.values():
        mine = [
            one
            for one in fitting(wanted.seed)
            if one.task is task and (not wanted.only or {one.kind.name, task.name} & set(wanted.only))
        ]
        for harm, one in zip(measured(mine) if mine else [], mine, strict=True):
            line = {**asdict(harm), "harmless": one.kind.harmless, "holds": harm.holds(harmless=one.kind.harmless)}
            print(json.dumps(line), flush=True)
        print(f"{task.name}: done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
