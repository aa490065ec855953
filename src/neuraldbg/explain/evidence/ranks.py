"""The ranks of one job side by side: what they are to hold alike, from fingerprints of the same steps on each.

Fingerprints are of samples of each tensor (``nouns/facts/replica.py``). Ranks that hold other parameters, as the stages
of a pipeline do, are no replicas of each other; of parameters of which each rank holds a part nothing is compared.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from neuraldbg.nouns.facts.ranks import RanksFact
from neuraldbg.nouns.facts.replica import NONE, Fingerprints, ReplicaFact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.nouns import Outcome, RunRecord

Kind = Literal["weights", "gradients"]
ROUNDING = 1e-5
"""Relative difference of the norms of two samples up to which other hardware may have rounded otherwise."""
EVEN = 1e-3
"""Relative spread of the ratios of two ranks' gradient norms up to which one rank's gradients are scaled as a whole."""
FEW, MOST = 4, 0.75
"""Steps in which ranks are alike, and share of the steps compared, from which they always are: the last step of an
epoch may be filled up with samples of another rank."""
LEAST_STEPS = 4
"""Steps from which on it is known how long one takes."""
WAITED = re.compile(
    r"timed out|timeout|connection (closed|reset)|broken pipe|remote process exited|watchdog|collective", re.IGNORECASE
)
"""Words of the errors with which a rank ends that has waited for another."""
WHOLE = "r"
"""Letter of a parameter of which each rank holds all."""
PARALLEL = "DistributedDataParallel"
SHARDED = "FSDP"


@dataclass(frozen=True)
class Reading:
    """The fingerprints of one step on one rank, with the names that belong to them."""

    fact: ReplicaFact
    names: tuple[str, ...]
    buffer_names: tuple[str, ...]

    def of(self, kind: Kind) -> Mapping[str, tuple[str, float]]:
        """Return fingerprint and norm of each tensor that this rank holds all of, by path."""
        prints: Fingerprints = getattr(self.fact, kind)
        each = zip(self.names, self.fact.held, prints.norms, strict=False)
        return {
            name: (prints.of(at), norm)
            for at, (name, held, norm) in enumerate(each)
            if held == WHOLE and prints.of(at) not in ("", NONE)
        }


@dataclass(frozen=True)
class Difference:
    """The first step at which tensors that were equal on all ranks were no longer so."""

    step: int
    since: int | None
    """The last step compared before, at which they were equal; None if none was."""
    names: tuple[str, ...]
    """Paths of the tensors that differ there."""
    count: int
    """Number of tensors that were compared."""
    ranks: tuple[int, ...]
    """Ranks that differ from most others; all ranks where no value is that of most."""
    size: float
    """Largest relative difference of two norms, at that step or later."""


class Ranks:
    """The records of the ranks of one job, compared."""

    def __init__(self, runs: Mapping[int, RunRecord]) -> None:
        self.runs = dict(sorted(runs.items()))

    @cached_property
    def places(self) -> dict[int, RanksFact]:
        """The RANKS fact of each rank that has one."""
        known = {rank: run.known(RanksFact) for rank, run in self.runs.items()}
        return {rank: one for rank, one in known.items() if one is not None}

    @cached_property
    def world(self) -> int:
        """Number of ranks of the job, of which some may have left no file."""
        return max([len(self.runs), *(int(run.info.job.get("world", 1)) for run in self.runs.values())])

    @cached_property
    def readings(self) -> dict[int, dict[int, dict[int, Reading]]]:
        """Fingerprints by optimizer, rank and step."""
        found: dict[int, dict[int, dict[int, Reading]]] = defaultdict(lambda: defaultdict(dict))
        for rank, run in self.runs.items():
            names: dict[int, tuple[str, ...]] = {}
            buffers: tuple[str, ...] = ()
            for step, fact in run.versions(ReplicaFact):
                names[fact.stream] = fact.names or names.get(fact.stream, ())
                buffers = fact.buffer_names or buffers
                found[fact.stream][rank][step] = Reading(fact, names[fact.stream], buffers)
        return {stream: dict(ranks) for stream, ranks in found.items()}

    @cached_property
    def replicas(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Groups of ranks that step the same parameters, as (optimizer, ranks), those of two ranks or more."""
        found = []
        for stream, ranks in self.readings.items():
            alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
            for rank, readings in ranks.items():
                alike[next(iter(readings.values())).names].append(rank)
            found += [(stream, tuple(sorted(group))) for names, group in alike.items() if len(group) > 1 and names]
        return tuple(found)

    @property
    def compared(self) -> int:
        """Number of steps in which weights of several ranks could be compared."""
        return sum(
            all(self.readings[stream][rank][step].of("weights") for rank in ranks)
            for stream, ranks in self.replicas
            for step in self.steps(stream, ranks)
        )

    @property
    def data_parallel(self) -> bool:
        """True if each rank is known to train the same model on data of its own: a wrapper says so, or gradients that
        were averaged do. Tensor-parallel ranks get the same data.
        """
        wrappers = {wrapper for place in self.places.values() for wrapper in place.wrappers.values()}
        if any(place.parts for place in self.places.values()):
            return any(one.startswith(SHARDED) for one in wrappers)
        return PARALLEL in wrappers or self.averaged

    @cached_property
    def averaged(self) -> bool:
        """True if gradients were equal on all ranks in two steps or more, while inputs were not."""
        for stream, ranks in self.replicas:
            count = 0
            for step in self.steps(stream, ranks):
                every = [self.readings[stream][rank][step] for rank in ranks]
                equal = len({one.fact.gradients.crc for one in every}) == 1 and any(every[0].of("gradients").values())
                count += equal and len({one.fact.inputs for one in every}) == len(every)
            if count >= 2:
                return True
        return False

    def steps(self, stream: int, ranks: Iterable[int]) -> list[int]:
        """Return the steps that were read on all of these ranks."""
        return sorted(set.intersection(*(set(self.readings[stream][rank]) for rank in ranks)))

    def difference(self, kind: Kind, *, always: bool = False) -> Difference | None:
        """Return the first difference of tensors that were equal at the first step compared; with ``always``, of those
        that never were. None if there is none beyond rounding, or the ranks become equal again.
        """
        found = [self._differs(kind, stream, ranks, always=always) for stream, ranks in self.replicas]
        return min((one for one in found if one is not None), key=lambda one: one.step, default=None)

    def _differs(self, kind: Kind, stream: int, ranks: tuple[int, ...], *, always: bool) -> Difference | None:
        steps = self.steps(stream, ranks)
        if not steps:
            return None
        tables = {step: [self.readings[stream][rank][step].of(kind) for rank in ranks] for step in steps}
        begun = tables[steps[0]]
        shared = [name for name in begun[0] if all(name in table for table in begun)]
        judged = [name for name in shared if (len({table[name][0] for table in begun}) > 1) is always]
        unequal = {step: _unequal(tables[step], judged) for step in steps}
        last = unequal[steps[-1]]
        if not last:  # averaged now and then, on purpose
            return None
        size = max(_gap([table[name][1] for table in tables[step]]) for step in steps for name in unequal[step] or ())
        if size <= ROUNDING:
            return None
        first = next(step for step in steps if unequal[step] and set(unequal[step]) & set(last))
        since = max((step for step in steps if step < first), default=None)
        return Difference(
            first, since, tuple(unequal[first]), len(judged), _odd(ranks, tables[first], unequal[first]), size
        )

    def gradients_after(self, step: int) -> tuple[int, int, tuple[int, float] | None]:
        """Return the number of steps from one on at which gradients differ, the number of those compared, and the rank
        whose gradients are all those of the others times one factor, with that factor; None if there is none.
        """
        count = total = 0
        scaled: tuple[int, float] | None = None
        for stream, ranks in self.replicas:
            for at in self.steps(stream, ranks):
                if at < step:
                    continue
                tables = [self.readings[stream][rank][at].of("gradients") for rank in ranks]
                unequal = _unequal(tables, tables[0])
                total += 1
                count += bool(unequal)
                if unequal and scaled is None:
                    scaled = _scaled(ranks, tables, unequal)
        return count, total, scaled

    def rates(self, step: int) -> dict[int, float]:
        """Return the learning rate in force at a step, of each rank whose is known."""
        found = {}
        for rank, run in self.runs.items():
            series = run.scalar("lr").finite()
            known = np.flatnonzero(series.steps <= step)
            if len(known):
                found[rank] = float(series.values[known[-1]])
        return found

    def rates_differ(self, step: int) -> bool:
        """Return True if two ranks had other learning rates at a step, or in the one before it."""
        return any(len(set(self.rates(at).values())) > 1 for at in (step - 1, step))

    def idle(self, rank: int) -> tuple[float, float]:
        """Return the seconds between the last step of a rank and its end, and the median seconds of its steps; zeros if
        they are not known.
        """
        run = self.runs[rank]
        times = run.history.time
        if len(times) < LEAST_STEPS or not run.info.ended:
            return 0.0, 0.0
        steps = np.diff(times) / np.maximum(run.history.width[1:], 1)
        return run.info.ended - run.info.started - float(times[-1]), float(np.median(steps))

    def same_inputs(self) -> tuple[tuple[int, ...], int, int] | None:
        """Return the largest group of ranks with equal inputs, the number of steps with such, and of those compared;
        None if no two ranks have any.
        """
        best: tuple[tuple[int, ...], int, int] | None = None
        for stream, ranks in self.replicas:
            steps = self.steps(stream, ranks)
            groups: Counter[tuple[int, ...]] = Counter()
            for step in steps:
                alike: dict[str, list[int]] = defaultdict(list)
                for rank in ranks:
                    alike[self.readings[stream][rank][step].fact.inputs].append(rank)
                groups.update(tuple(group) for crc, group in alike.items() if crc and len(group) > 1)
            for group, count in groups.items():
                if best is None or count > best[1]:
                    best = (group, count, len(steps))
        return best

    def same_generators(self) -> tuple[int, int]:
        """Return the number of steps at which two ranks' generators were in one state that had changed since the step
        compared before, and the number of steps compared.
        """
        count = total = 0
        for stream, ranks in self.replicas[:1]:
            before: set[str] = set()
            for step in self.steps(stream, ranks):
                states = [self.readings[stream][rank][step].fact.generator for rank in ranks]
                total += 1
                count += len(set(states)) < len(states) and not before & set(states)
                before = set(states)
        return count, total


def crashed(outcome: Outcome) -> bool:
    """Return True if a rank ended with an error of its own."""
    return outcome.kind == "raised" and WAITED.search(outcome.message) is None


def left_waiting(outcome: Outcome) -> bool:
    """Return True if a rank ended with the error of one that has waited for another in vain."""
    return outcome.kind == "raised" and WAITED.search(outcome.message) is not None


def rank_words(ranks: Iterable[int], most: int = 4) -> str:
    """Write ranks as a person would: ``rank 1``, ``ranks 0 and 1``, ``ranks 0, 1, 2, 3 and 4 more``."""
    every = [str(rank) for rank in ranks]
    shown, more = every[:most], len(every) - most
    last = [f"{more} more"] if more > 0 else [shown.pop()] if len(shown) > 1 else []
    return f"rank{'s' if len(every) > 1 else ''} {' and '.join([', '.join(shown), *last])}"


def _unequal(tables: list[Mapping[str, tuple[str, float]]], names: Iterable[str]) -> list[str]:
    """Return the names of the tensors that some ranks hold otherwise."""
    return [name for name in names if len({table[name][0] for table in tables if name in table}) > 1]


def _gap(norms: list[float]) -> float:
    """Return the relative difference of norms, infinity if only some are finite."""
    if any(norm < 0 for norm in norms):
        return 0.0 if all(norm < 0 for norm in norms) else float("inf")
    return (max(norms) - min(norms)) / max(*norms, 1e-30)


def _scaled(
    ranks: tuple[int, ...], tables: list[Mapping[str, tuple[str, float]]], names: list[str]
) -> tuple[int, float] | None:
    """Return the rank whose norms are those of the first other rank times one factor, with the factor."""
    if len(names) < 2 or any(table.get(name, ("", 0.0))[1] <= 0 for table in tables for name in names):
        return None
    norms = np.asarray([[table[name][1] for name in names] for table in tables])
    ratios = norms / np.median(norms, axis=0) if len(ranks) > 2 else norms / norms[0]
    even = ratios.max(axis=1) - ratios.min(axis=1) <= EVEN * ratios.max(axis=1)
    far = np.abs(ratios.mean(axis=1) - 1.0)
    if not even.all() or far.max() <= EVEN:
        return None
    at = int(far.argmax())
    if len(ranks) == 2 and ratios[1].mean() > 1:  # the smaller ones were scaled down
        return ranks[0], float(1.0 / ratios[1].mean())
    return ranks[at], float(ratios[at].mean())


def _odd(
    ranks: tuple[int, ...], tables: list[Mapping[str, tuple[str, float]]], names: Iterable[str]
) -> tuple[int, ...]:
    """Return the ranks that differ from more than half of all; all ranks if there is no such majority."""
    votes: Counter[tuple[str, ...]] = Counter()
    each = []
    for table in tables:
        told = tuple(table[name][0] for name in names if name in table)
        votes[told] += 1
        each.append(told)
    common, count = votes.most_common(1)[0]
    if 2 * count <= len(ranks):
        return ranks
    return tuple(rank for rank, told in zip(ranks, each, strict=True) if told != common)
