"""Injects a fault into each function of capture, record and detect in turn, while something is trained.

The training must go on to the last bit as it does without us, and end as it does; on standard error stand one sentence
of ours at most, and the diagnosis. By hand: ``python -m tests.guest.faults [--kind None] [PLACE...]``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import resource
import sys
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.guest.suite import Guests, Outcome, Program, differences, programs

import neuraldbg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KINDS = ("RuntimeError", "MemoryError", "None")
TRAININGS = (
    "autograd/checkpoint_both",
    "autograd/custom_function",
    "basics/linear",
    "basics/long",
    "basics/running_loss",
    "modules/many_tiny",
    "modules/rnn_tbptt",
    "modules/transformer_fastpath",
    "optim/autocast_scaler",
    "optim/dqn",
    "optim/gan",
    "optim/handmade",
    "optim/lbfgs",
    "optim/manual_updates",
    "optim/state_dict_surgery",
    "optim/swa_ema",
    "tensors/huge_values",
)
"""Programs that between them call most of the functions there are."""
PROFILED = ("basics/running_loss", "modules/rnn_tbptt", "optim/autocast_scaler")
"""Programs that are also run with their time and memory measured."""
QUICK = ("autograd/custom_function", "basics/linear", "optim/autocast_scaler", "optim/manual_updates")
"""Some that are over soon, for the part that is fast."""
ALLOWANCE_S = 0.05
"""In the default mode a session begins with so much time, so that a short training has light steps, too."""
GUARDS = ("capture/guest/guard.py", "record/validation.py")
"""Files of the guards themselves: a fault in what keeps faults away cannot be kept away."""
ENTRIES = frozenset(
    """
    capture/compiled/operators.py of_another_thread
    capture/layers/read_state.py here
    capture/layers/read_state.py observe_grad
    capture/loop/models.py _reached
    capture/loop/models.py begins
    capture/loop/models.py broken_off
    capture/loop/models.py ends
    capture/loop/optimizers.py begins
    capture/loop/optimizers.py ends
    capture/loop/optimizers.py evaluated
    capture/loop/followed_thread.py claims
    capture/autograd/saved_tensors.py enter
    capture/autograd/saved_tensors.py leave
    capture/autograd/saved_tensors.py _doubting
    capture/layers/hook_manager.py off
    capture/loop/torch_patches.py _functions_back
    capture/parameters/parameters.py departs
    capture/parameters/parameters.py gone
    capture/profiling/backward_nodes.py _told
    capture/profiling/footprint.py _ended
    capture/profiling/recorded_step.py _arrives
    capture/profiling/recorded_step.py _before_step
    capture/profiling/recorded_step.py _guarded
    capture/profiling/recorded_step.py _leaves
    capture/profiling/recorded_step.py _tells
    capture/profiling/recorded_step.py inside
    capture/profiling/sampled_step.py _arrives
    capture/profiling/sampled_step.py _before_step
    capture/profiling/sampled_step.py _follow
    capture/profiling/sampled_step.py _goes_on
    capture/profiling/sampled_step.py _here
    capture/profiling/sampled_step.py _leaves
    capture/profiling/sampled_step.py _phase
    capture/profiling/sampled_step.py _reached
    capture/profiling/sampled_step.py reached
    capture/profiling/step_clock.py own_cost
    capture/profiling/timing.py _ended
    capture/layers/layer_hook.py __call__
    capture/layers/layer_hook.py arrives
    capture/readers/reader.py doing
    capture/readers/reader.py seen
    capture/readers/loss/loss_conflict.py __call__
    capture/compiled/traced_hook.py __call__
    capture/compiled/traced_hook.py close
    capture/readers/architecture/layer_visits.py __call__
    capture/readers/architecture/layer_visits.py listens
    capture/readers/architecture/layer_visits.py told
    record/recorder.py _run
    """.strip().split("\n    ")
)
"""What torch or a thread calls directly, and what is asked before a guard is entered: a few comparisons, then a guard.
What they call is injected, they are not."""


@functools.lru_cache(maxsize=1)
def surrounding() -> frozenset[str]:
    """Return the places of the generators that surround calls of torch's functions: they ask whether a session listens,
    and call a guard. They are told by what they say they return.
    """
    root = Path(neuraldbg.__file__).parent
    return frozenset(
        f"{file.relative_to(root)}:{node.lineno} {node.name}"
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id == "Around"
    )


@dataclass(frozen=True)
class Fault:
    """A fault at one place, in one training."""

    place: str
    kind: str
    program: Program
    mode: str


@dataclass(frozen=True)
class Finding:
    """What a fault did."""

    fault: Fault
    fired: bool
    wrong: tuple[str, ...]
    """Empty where all is as it must be."""
    told: bool
    """True if the run says that something went wrong with it."""

    @property
    def silent(self) -> bool:
        """Whether an exception was raised of which the run says nothing."""
        return self.fired and not self.told and self.fault.kind != "None"


class Faults:
    """The trainings, how they end without a fault, and the functions that each of them calls."""

    def __init__(self, guests: Guests, jobs: int = 2, trainings: Sequence[str] = TRAININGS) -> None:
        self.guests = guests
        self.folder = guests.folder / f"faults-{len(trainings)}"
        self.folder.mkdir()
        self._pool = ThreadPoolExecutor(jobs)
        self._numbers = itertools.count()
        chosen = [one for one in programs() if one.name in trainings]
        bare = self._pool.map(lambda one: self._run(one, "bare"), chosen)
        self._bare = {one.name: outcome for one, outcome in zip(chosen, bare, strict=True)}
        file = self.folder / "places"
        self._run(chosen[0], "full", ["write_places", str(file)])
        self.places = file.read_text("utf-8").splitlines()
        """All functions, by where they stand."""
        self._able = set(self.places)
        self.reached: dict[str, tuple[float, Program, str]] = {}
        """Those that are called -> seconds, program and mode of the quickest training that does."""
        modes = [(one, mode) for one in chosen for mode in ("default", "full")]
        modes += [(one, "profile") for one in chosen if one.name in PROFILED]
        for found in self._pool.map(self._reach, modes):
            for place, seconds, program, mode in found:
                if place not in self.reached or seconds < self.reached[place][0]:
                    self.reached[place] = seconds, program, mode

    def _reach(self, what: tuple[Program, str]) -> list[tuple[str, float, Program, str]]:
        program, mode = what
        file = self.folder / f"reach-{program.path.stem}-{mode}"
        outcome = self._run(program, mode, ["observe", str(file)])
        return [(place, outcome.cpu, program, mode) for place in file.read_text("utf-8").splitlines()]

    def _run(self, program: Program, mode: str, prepare: list[str] | None = None) -> Outcome:
        more = {"prepare": ["tests.guest.inject", *prepare]} if prepare else {}
        allowance = {"allowance": ALLOWANCE_S} if mode == "default" else {}
        return self.guests.outcome(program, mode, leave="values", **more, **allowance)

    def plan(self, kind: str, one_in: int = 1, part: int = 0) -> list[Fault]:
        """Return a fault for each function that is called, or for one in so many of them; each part has its own."""
        found = []
        for place, (_, program, mode) in sorted(self.reached.items()):
            if (
                not self._can_hold(place)
                or (kind == "None" and place.endswith(" __init__"))
                or zlib.crc32(f"{kind} {place}".encode()) % one_in != part
            ):
                continue
            found.append(Fault(place, kind, program, mode))
        return found

    def _can_hold(self, place: str) -> bool:
        file, name = place.partition(":")[0], place.rpartition(" ")[2]
        entry = f"{file} {name}" in ENTRIES or place in surrounding()
        return place in self._able and not place.startswith(GUARDS) and not entry

    def inject(self, faults: Iterable[Fault], most: int = 8) -> Iterator[Finding]:
        """Run all of them, up to ``most`` in one process.

        Together they are harsher than one by one, and cheaper. A fault is run again in smaller company if it was not
        called, since another has kept it from that, or the run said nothing of it; and alone if the training went wrong
        or the run still says nothing.
        """
        waiting, alone = list(faults), []
        for size in (most, 3):
            groups = list(_groups(waiting, size))
            waiting = []
            for group, findings in zip(groups, self._pool.map(self._run_group, groups), strict=True):
                if len(group) == 1:
                    yield from findings
                elif any(one.wrong for one in findings):
                    alone += group
                else:
                    yield from (one for one in findings if one.fired and not one.silent)
                    alone += [one.fault for one in findings if one.silent and size < most]
                    waiting += [one.fault for one in findings if not one.fired or (one.silent and size == most)]
        for (finding,) in self._pool.map(self._run_group, [[one] for one in alone + waiting]):
            yield finding

    def _run_group(self, group: list[Fault]) -> list[Finding]:
        first = group[0]
        marks = self.folder / f"marks-{next(self._numbers)}"
        outcome = self._run(
            first.program, first.mode, ["faults", str(marks), first.kind, *(one.place for one in group)]
        )
        wrong = [text for _, text in differences(self._bare[first.program.name], outcome)]
        if len(outcome.said) > 1:
            wrong.append(f"said {len(outcome.said)} sentences: {''.join(outcome.said)}")
        alone = len(group) == 1 and bool(outcome.said or outcome.errors)
        return [
            Finding(one, (marks / f"fired-{i}").exists(), tuple(wrong), alone or (marks / f"told-{i}").exists())
            for i, one in enumerate(group)
        ]


def _groups(faults: Iterable[Fault], size: int) -> Iterator[list[Fault]]:
    """Put those of one kind into one training together, from all over the source."""
    fellows: dict[tuple[str, str, str], list[Fault]] = {}
    for one in sorted(faults, key=lambda fault: zlib.crc32(fault.place.encode())):
        fellows.setdefault((one.kind, one.program.name, one.mode), []).append(one)
    for group in fellows.values():
        yield from (group[i : i + size] for i in range(0, len(group), size))


def counts(faults: Faults, findings: list[Finding]) -> dict[str, int]:
    """Return the counts that the suite prints."""
    return {
        "faults": len(findings),
        "fired": sum(one.fired for one in findings),
        "differ": sum(bool(one.wrong) for one in findings),
        "said by the run": sum(one.told for one in findings),
        "silent": sum(one.silent for one in findings),
    }


def main() -> int:
    """Inject faults and print what they did."""
    parser = argparse.ArgumentParser(prog="python -m tests.guest.faults", description=__doc__)
    parser.add_argument("places", nargs="*", metavar="PLACE", help="part of a place, such as capture/capture.py")
    parser.add_argument("--kind", choices=KINDS, action="append", help="the kind of fault [default: RuntimeError]")
    parser.add_argument("--one-in", type=int, default=1, help="only one in so many functions")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=8, help="so many faults in one process")
    parser.add_argument("--silent", action="store_true", help="name those of which the run says nothing, too")
    asked = parser.parse_args()
    began = time.monotonic()
    guests = Guests(asked.jobs)
    try:
        faults = Faults(guests, asked.jobs)
        print(f"{len(faults.places)} functions, {len(faults.reached)} of them are called", flush=True)
        plan = [fault for kind in asked.kind or KINDS[:1] for fault in faults.plan(kind, asked.one_in)]
        plan = [one for one in plan if not asked.places or any(word in one.place for word in asked.places)]
        findings = []
        for one in faults.inject(plan, asked.most):
            findings.append(one)
            if one.wrong or (asked.silent and one.silent):
                print(f"{one.fault.kind} in {one.fault.place} ({one.fault.program.name}, {one.fault.mode})")
                for text in one.wrong[:4]:
                    print("    " + text[:1500].replace("\n", "\n    "))
                sys.stdout.flush()
        print(Counter(counts(faults, findings)), f"{time.monotonic() - began:.0f} s")
    finally:
        guests.close()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{used.ru_utime + used.ru_stime:.0f} s of CPU")
    return int(any(one.wrong for one in findings))


if __name__ == "__main__":
    sys.exit(main())
