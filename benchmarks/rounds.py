"""From turns to ratios: workers enter, what each kind costs beside the bare training leaves.

Several sets of processes are measured, one set after the other. In each a bare turn stands before every second turn of
the others, and each turn is compared with the bare turns next to it in time, before and after, so that a machine that
slows down or speeds up meanwhile does so for both.
"""

from __future__ import annotations

import statistics
from bisect import bisect
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers import Turn, Worker

TURN_S = 0.1
"""A machine that others use, too, is faster or slower for seconds on end: of turns that follow each other closely, few
fall astride of a change. With as much time in all, medians of turns of 0.05 to 0.1 s stray by a quarter of what those
of 0.5 s do."""
OPENING_TURN_S = 0.5
IN_PLACE_TURN_S, IN_PLACE_LEAST = 0.15, 5
"""A little longer, so that what is done at one step of eight does not reach the median of a turn."""
LEAST = 3
"""Steps of a turn at least. The first of them, with cold caches, counts in totals but not in medians."""
BARE = "bare"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    sets: int = 3
    """Processes of each kind of this tool, one after the other, each beside bare ones that are new, too: two processes
    that do the same differ for good, by where their memory lies, and one alone speaks for itself only."""
    rounds: int = 5
    """Turns in each set, at least."""
    seconds: float = 2.5
    """Of training of each process in each set, at least, in as many turns as it takes."""
    peer_rounds: int = 3
    peer_seconds: float = 1.5
    opening_s: float = 10.0
    """Seconds of the beginning of a session that are looked at apart."""

    def for_peers(self) -> Effort:
        """Return the same with the turns that other tools have."""
        return replace(self, rounds=self.peer_rounds, seconds=self.peer_seconds)


@dataclass
class Course:
    """All turns in the order in which they were."""

    turns: list[tuple[str, Turn]] = field(default_factory=list)
    graphs: int = 0
    """What had been compiled before the first turn."""

    def take(self, worker: Worker, seconds: float = TURN_S, least: int = LEAST) -> Turn:
        self.turns.append((worker.kind, worker.turn(seconds, least)))
        return self.turns[-1][1]

    def last(self, kind: str) -> Turn:
        """Return the newest turn of a kind."""
        return next(turn for whose, turn in reversed(self.turns) if whose == kind)

    def near(self, place: int) -> list[Turn]:
        """Return the bare turns next to a place, before and after."""
        places = [i for i, (kind, _) in enumerate(self.turns) if kind == BARE and i != place]
        after = bisect(places, place)
        return [self.turns[i][1] for i in places[max(after - 1, 0) : after + 1]]

    def of(self, kind: str) -> Iterator[tuple[Turn, Beside]]:
        """Yield each turn of a kind with what bare steps took at that time."""
        for place, (whose, turn) in enumerate(self.turns):
            if whose == kind:
                near = self.near(place)
                yield turn, Beside(*(statistics.fmean(map(one, near)) for one in (median, mean, processor)))


@dataclass(frozen=True)
class Beside:
    """Seconds of a bare step at the time of another's turn."""

    median: float
    mean: float
    processor: float


def median(turn: Turn) -> float:
    return statistics.median(turn.seconds[1:] or turn.seconds)


def mean(turn: Turn) -> float:
    return turn.total / len(turn.seconds)


def processor(turn: Turn) -> float:
    return turn.processor / len(turn.seconds)


@dataclass
class Cost:
    """What one kind costs on one workload. Ratios are to the bare training."""

    kind: str
    step_ms: float = 0.0
    ratio: float = 0.0
    """Median, over turns, of the ratio of medians of steps; of several sets the median of theirs."""
    low: float = 0.0
    high: float = 0.0
    """Quartiles of the same: over turns, or over sets."""
    ratios: list[float] = field(default_factory=list)
    """Of each set."""
    of_totals: float = 0.0
    """All steps together over as many bare ones: it sees what is done only now and then."""
    of_processor: float = 0.0
    """The same of processor time, of all threads: free of what other programs do, and sees work beside the training."""
    in_place: float = 0.0
    in_place_low: float = 0.0
    in_place_high: float = 0.0
    in_place_ratios: list[float] = field(default_factory=list)
    in_place_totals: float = 0.0
    """As ``ratio``, ``ratios`` and ``of_totals``, with the bare turns in the same process; nothing where they cannot be
    had."""
    memory_mb: float = 0.0
    """Peak memory over that of the bare process."""
    disk_mb: float = 0.0
    disk_kb_a_step: float = 0.0
    steps: int = 0
    attach_ms: float = 0.0
    close_s: float = 0.0
    start_s: float = 0.0
    """Seconds more than bare from attaching to the end of the opening."""
    start_100_s: float = 0.0
    """The same up to the hundredth step."""
    opening_steps: int = 0
    settled_step: int = 0
    """Step of the opening after which half a second of training was always within 5% of bare."""
    sites: int = 0
    graphs: int = 0
    late_graphs: int = 0
    """Graphs of torch.compile, and those of them that it made after the opening."""
    breaks: int = 0
    problem: str = ""
    """Why nothing was measured."""


def order(others: Sequence[Worker], bare: Worker, number: int) -> list[Worker]:
    """Return who has a turn in a round: the others, turned about from round to round, a bare one before each pair."""
    shift = number % len(others)
    turned = [*others[shift:], *others[:shift]]
    return [one for i, other in enumerate(turned) for one in ((bare, other) if i % 2 == 0 else (other,))]


def in_turns(bare: Worker, others: Sequence[Worker], rounds: int, seconds: float, least: int = LEAST) -> Course:
    """Give everyone so many turns, and more until all have trained for so long; of ``least`` steps each."""
    course = Course()
    spent = dict.fromkeys((other.kind for other in others), 0.0)
    number = 0
    while number < rounds or min(spent.values()) < seconds:
        for worker in order(others, bare, number):
            turn = course.take(worker, least=least)
            if worker is not bare:
                spent[worker.kind] += turn.total
        number += 1
    course.take(bare)
    return course


def in_place(worker: Worker, rounds: int, seconds: float) -> list[Course]:
    """Let one process train in turns without its tool and with it, until it has with it for so long. What is compiled
    does so twice, compiled anew for the second time and in the other order: two models that were compiled alike in one
    process differ for good, by up to 4%, the first mostly being slower.
    """
    if not worker.compiled:
        return [_in_turns_with_itself(worker, Course(), rounds, seconds)]
    halves: list[Course] = []
    tool_first = worker.apart == (0, 0)
    for order in ((True, False), (tool_first, not tool_first)):  # the first time one of them is compiled already
        course = Course()
        for aside in order:
            renew = bool(halves) and aside == order[0]
            turn = worker.turn(IN_PLACE_TURN_S, IN_PLACE_LEAST, aside=aside, stay=True, renew=renew)
            course.graphs = turn.graphs
        halves.append(_in_turns_with_itself(worker, course, rounds, seconds))
    return halves


def _in_turns_with_itself(worker: Worker, course: Course, rounds: int, seconds: float) -> Course:
    spent, number = 0.0, 0
    while number < rounds or spent < seconds:
        for kind in (BARE, worker.kind):
            turn = worker.turn(IN_PLACE_TURN_S, IN_PLACE_LEAST, aside=kind == BARE, stay=True)
            course.turns.append((kind, turn))
        spent, number = spent + turn.total, number + 1
    course.turns.append((BARE, worker.turn(IN_PLACE_TURN_S, IN_PLACE_LEAST, aside=True)))
    return course


def cost(course: Course, kind: str) -> Cost:
    """Reduce the turns of a kind to its ratios."""
    turns = list(course.of(kind))
    ratios = [median(turn) / bare.median for turn, bare in turns]
    low, middle, high = quartiles(ratios)
    steps = [second for turn, _ in turns for second in turn.seconds]
    found = Cost(kind, 1000 * statistics.median(steps), middle, low, high, [middle])
    found.of_totals = sum(turn.total for turn, _ in turns) / sum(len(t.seconds) * bare.mean for t, bare in turns)
    alike = sum(len(turn.seconds) * bare.processor for turn, bare in turns)
    found.of_processor = sum(turn.processor for turn, _ in turns) / alike
    return found


def tell_in_place(found: Cost, courses: list[Course]) -> None:
    """Say what a kind costs beside the same process without it."""
    here = [cost(course, found.kind) for course in courses]
    found.in_place_ratios = [one.ratio for one in here]
    found.in_place = statistics.median(found.in_place_ratios)
    found.in_place_low, found.in_place_high = (
        (here[0].low, here[0].high) if len(here) == 1 else quartiles(found.in_place_ratios)[::2]
    )
    found.in_place_totals = statistics.fmean(one.of_totals for one in here)
    found.late_graphs += sum(course.turns[-1][1].graphs - course.graphs for course in courses)


OF_OPENING = ("start_s", "start_100_s", "opening_steps", "settled_step")
OF_GRAPHS = ("graphs", "late_graphs", "breaks")


def quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def pooled(costs: Sequence[Cost]) -> Cost:
    """Make one of what several sets cost: medians, but the most of graphs and breaks, and the opening of the
    first, which alone was looked at. A set that failed is left out, unless all did.
    """
    costs = [one for one in costs if not one.problem] or costs[:1]
    if len(costs) == 1:
        return costs[0]
    found = replace(costs[0], ratios=[ratio for one in costs for ratio in one.ratios])
    found.in_place_ratios = [ratio for one in costs for ratio in one.in_place_ratios]
    for each in fields(Cost):
        if isinstance(each.default, (int, float)) and each.name not in OF_OPENING:
            reduce = max if each.name in OF_GRAPHS else statistics.median
            setattr(found, each.name, type(each.default)(reduce(getattr(one, each.name) for one in costs)))
    found.low, found.ratio, found.high = quartiles(found.ratios)
    if found.in_place_ratios:
        found.in_place_low, found.in_place, found.in_place_high = quartiles(found.in_place_ratios)
    return found


def opening(bare: Worker, other: Worker, seconds: float, steps: int = 0) -> Course:
    """Watch the first seconds and steps of a training, with bare turns in between. The seconds begin after the first
    step: it may take longer to compile than what is to be waited for.
    """
    course = Course()
    spent, taken = 0.0, 0
    course.take(bare, OPENING_TURN_S)
    while spent < seconds or taken < steps:
        turn = course.take(other, OPENING_TURN_S)
        spent, taken = spent + sum(turn.seconds[taken == 0 :]), taken + len(turn.seconds)
        course.take(bare, OPENING_TURN_S)
    return course


def tell_opening(found: Cost, course: Course) -> None:
    """Say what the beginning cost, attaching included."""
    chunks = list(course.of(found.kind))
    extra = [second - bare.mean for turn, bare in chunks for second in turn.seconds]
    attach_s = found.attach_ms / 1000
    found.start_s = attach_s + sum(extra)
    found.start_100_s = attach_s + sum(extra[:100])
    found.opening_steps = len(extra)
    step = 0
    for turn, bare in chunks:
        step += len(turn.seconds)
        if median(turn) > 1.05 * bare.median:
            found.settled_step = step
