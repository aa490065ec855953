"""The reader of learning-rate schedulers: class, settings, and steps against those of the optimizer.

The learning rate itself is a scalar of every step. Passes over a DataLoader are counted, because settings in epochs and
settings in steps can only be distinguished if the length of an epoch is known.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import groups, rates
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import Identities, attribute, is_a, item, label, name_of, sequence
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_MOST = 16
"""Schedulers that are followed: a loop may make one in each epoch."""
_SETTINGS = (
    "T_0", "T_i", "T_max", "T_mult", "cooldown", "eta_min", "end_factor", "factor", "gamma", "milestones", "min_lrs",
    "patience", "power", "start_factor", "step_size", "threshold", "total_iters", "total_size", "total_steps",
)  # fmt: skip
_WORDS = {"mode": "mode", "threshold_mode": "threshold_mode", "_anneal_func_type": "anneal_strategy"}
"""Attributes that hold a setting of a scheduler as a word, with the name of its argument."""
_LIST = 16


@dataclass(eq=False)
class Known:
    """The state of one scheduler over the run."""

    ref: weakref.ref[LRScheduler]
    type: str
    made: int
    steps: int = 0
    counter: list[int] = field(default_factory=lambda: [0, -1, 0])
    """[steps of its optimizer, its stream, steps of that stream with other optimizers before]; shared by all schedulers
    of one optimizer. Stream -1 if not known."""
    early: int = 0
    double: int = 0
    before: int = 0
    """Steps of the optimizer when the scheduler was made."""
    since: int = 0
    """Steps of the optimizer when the scheduler was last stepped."""
    heard: int = 0
    """Backward passes when the scheduler was last stepped."""
    counted: tuple[int, int] = (0, 0)
    """The scheduler's own counts of steps at the last reading: (calls, epochs)."""
    inner: bool = False
    """True if another scheduler steps this one."""
    fact: dict[str, Any] = field(default_factory=dict)


class Schedule(Reader):
    """Reads the SCHEDULE fact of each learning-rate scheduler."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._known: list[Known] = []
        self._of: Identities[LRScheduler, Known] = Identities()
        self._noted: list[tuple[weakref.ref[LRScheduler], int]] = []
        """Schedulers that were made in light steps, each with its step, and that were not looked at since."""
        self._counters: Identities[Optimizer, list[int]] = Identities()
        self._streams: set[int] = set()
        self._steps = 0
        """Steps of all optimizers when one was last seen to step."""
        self._backwards = 0
        self._inside = 0
        self._loader: int | None = None
        self._began = 0
        self._passes: dict[int, list[int]] = {}
        self._first: dict[int, int] = {}
        """Steps of the first optimizer at the begin of the first whole pass over each dataset."""
        self._cut: Counter[int] = Counter()
        """Passes over each dataset that were seen in part only."""

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of every scheduler's ``step`` and constructor, and of the start of a DataLoader."""
        classes = [c for c in vars(lr_scheduler).values() if isinstance(c, type) and issubclass(c, LRScheduler)]
        found: list[Patch] = [(c, "step", self._step) for c in dict.fromkeys(classes) if "step" in vars(c)]
        return [*found, (LRScheduler, "__init__", self._init), (DataLoader, "__iter__", self._iterate)]

    # -- wrappers ---------------------------------------------------------------------------------------------------

    def _init(self, scheduler: LRScheduler, *_: Any, **__: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._get, scheduler)
        elif self.scene.switch.here():
            self.seen(self._note, scheduler)

    def _step(self, scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Around:
        if not self.scene.switch.in_full_step():
            return
        rate = self._rate_of_waiting(scheduler)
        inside = self._inside
        try:
            self._inside = inside + 1
            yield
        finally:
            self._inside = inside
            self.seen(self._stepped, scheduler)
            if rate is not None:
                self.seen(self._waited, (scheduler, args[0] if args else kwargs.get("metrics"), rate))

    def _iterate(self, loader: Any) -> Around:
        if self.scene.switch.in_full_step():
            self.seen(self._pass_begins, loader)
        yield

    @guarded
    def _rate_of_waiting(self, scheduler: LRScheduler) -> float | None:
        """Return the learning rate before the step of a ReduceLROnPlateau, None for any other scheduler."""
        return _rate(scheduler) if is_a(scheduler, lr_scheduler.ReduceLROnPlateau) else None

    # -- events ------------------------------------------------------------------------------------------------------

    def resumes(self) -> None:
        """Handle a gap: optimizers and schedulers count steps themselves; the length of the current pass is lost."""
        for known in self._known:
            scheduler = known.ref()
            known.since = -1
            known.steps += self._look_back(scheduler, known) if scheduler is not None else 0
        self._get_noted()
        self._pass_is_cut()

    def _pass_is_cut(self) -> None:
        if self._loader is not None:
            self._cut[self._loader] += 1
        self._loader = None

    @property
    def _behind(self) -> bool:
        """True if optimizers stepped without being seen."""
        return sum(stream.steps for stream in self.scene.optimizers.streams) != self._steps

    @property
    def _now(self) -> int:
        """Steps of the first optimizer."""
        streams = self.scene.optimizers.streams
        return streams[0].steps if streams else 0

    def _taken(self, opt: Optimizer | None, counter: list[int], *, seen: int = 0) -> int:
        """Return the number of steps an optimizer took, unseen ones included."""
        stream = next((one for one in self.scene.optimizers.streams if one.opt() is opt), None)
        if stream is None or opt is None:
            return counter[0]
        if counter[1] < 0:  # a new optimizer continues the stream of a dead one
            counter[1:] = stream.index, stream.steps - seen if stream.index in self._streams else 0
            self._streams.add(stream.index)
        counter[0] = stream.steps - counter[2]
        return counter[0]

    def _look_back(self, scheduler: LRScheduler, known: Known) -> int:
        """Return the number of steps of a scheduler since the last reading, by its own count; 0 without a gap."""
        before, known.counted = known.counted, _counted(scheduler)
        if not self._behind:
            return 0  # without a gap only the program can have set the count
        by_calls, by_epochs = (now - then for now, then in zip(known.counted, before, strict=True))
        if by_calls or by_epochs:
            known.fact["position"] = _plain(attribute(scheduler, "last_epoch"))
        return max(0, by_calls or by_epochs)

    def _note(self, scheduler: LRScheduler) -> None:
        """Note a scheduler that is made in a light step: it is looked at in the next full one, which it asks for."""
        self.scene.schedulers += 1
        if len(self._known) + len(self._noted) < _MOST:
            self.scene.light.hurry()
            self._noted.append((weakref.ref(scheduler), self.scene.step))

    def _get_noted(self) -> None:
        noted, self._noted = self._noted, []
        for ref, step in noted:
            scheduler = ref()
            known = self._get(scheduler) if scheduler is not None else None
            if known is not None:
                known.made = min(known.made, step)

    def _get(self, scheduler: LRScheduler) -> Known | None:
        known: Known | None = self._of.get(scheduler)
        if known is None and len(self._known) < _MOST:
            opt = attribute(scheduler, "optimizer")
            counter = self._counter(opt) if is_a(opt, Optimizer) else [0, -1, 0]
            self._taken(opt, counter)
            known = Known(weakref.ref(scheduler), name_of(scheduler), self.scene.step, counter=counter)
            known.since = known.before = counter[0]
            known.heard = self._backwards
            known.counted = _counted(scheduler)
            self._describe(scheduler, known)
            self._of[scheduler] = known
            self._known.append(known)
        return known

    def _counter(self, opt: Optimizer) -> list[int]:
        found: list[int] | None = self._counters.get(opt)
        if found is None:
            found = self._counters[opt] = [0, -1, 0]
        return found

    def _describe(self, scheduler: LRScheduler, known: Known) -> None:
        known.fact |= {
            "params": settings(scheduler),
            "words": words(scheduler),
            "base_lr": max(_numbers(attribute(scheduler, "base_lrs")), default=None),
        }

    def _stepped(self, scheduler: LRScheduler) -> None:
        if attribute(scheduler, "_is_initial") is True:  # the constructor steps it
            return
        known = self._get(scheduler)
        if known is None:
            return
        if self._inside:
            known.inner = True
            return
        for other in sequence(attribute(scheduler, "_schedulers")):
            part = self._of.get(other)
            if part is not None:
                part.inner = True
        self.scene.did("schedule")
        taken = self._taken(attribute(scheduler, "optimizer"), known.counter)
        known.fact["position"] = _plain(attribute(scheduler, "last_epoch"))
        known.early += taken == 0
        if known.steps and taken == known.since and self._backwards == known.heard:
            known.double += 1
        known.since, known.heard = taken, self._backwards
        known.steps += max(1, self._look_back(scheduler, known))

    def _waited(self, given: tuple[lr_scheduler.ReduceLROnPlateau, Any, float]) -> None:
        """Record the metric given to a ReduceLROnPlateau, and a cut of the rate."""
        (scheduler, metric, rate), known = given, self._of.get(given[0])
        value = _plain(metric)
        if known is None or value is None:
            return
        mode = label(attribute(scheduler, "mode"))
        seen = known.fact.setdefault("waits", {"mode": mode, "first": value, "last": value, "rises": 0,
                                               "falls": 0, "cuts": 0, "cut_at": None})  # fmt: skip
        seen["rises"] += value > seen["last"]
        seen["falls"] += value < seen["last"]
        seen["last"] = value
        if _rate(scheduler) < rate:
            seen["cuts"] += 1
            seen["cut_at"] = self.scene.step if seen["cut_at"] is None else seen["cut_at"]

    def _pass_begins(self, loader: Any) -> None:
        if self._behind:
            self._pass_is_cut()
        self._pass_ends()
        self._loader = id(attribute(loader, "dataset", loader))  # some programs make a new loader for each epoch
        self._began = self._now

    def _pass_ends(self) -> None:
        if self._loader is not None and self._now > self._began:
            lengths = self._passes.setdefault(self._loader, [])
            self._first.setdefault(self._loader, self._began)
            if len(lengths) < 1024 and len(self._passes) < 64:
                lengths.append(self._now - self._began)

    def backward_begins(self, backward: Backward) -> None:
        """Count a backward pass."""
        self._backwards += backward.accumulates

    def step_ends(self, stream: Stream, opt: Optimizer) -> None:
        """Count the steps of each optimizer."""
        counter = self._counter(opt)
        if counter[1] < 0:
            self._taken(opt, counter, seen=1)
        counter[0] = stream.steps - counter[2]
        self._steps = sum(one.steps for one in self.scene.optimizers.streams)

    def step_closes(self) -> None:
        """Log in steps whose facts are read, for a run that is killed."""
        if self.scene.reading and self._known:
            self.summarise()

    def summarise(self) -> None:
        """Log the facts of each scheduler."""
        self._get_noted()
        loader = max(self._passes, key=lambda one: sum(self._passes[one]), default=0)
        lengths = self._passes.get(loader, [])
        begun = self._cut[loader] + (self._now > self._began and self._loader is not None)
        for place, known in enumerate(self._known):
            scheduler = known.ref()
            if scheduler is not None:
                self._describe(scheduler, known)
                known.steps += self._look_back(scheduler, known)
            opt = attribute(scheduler, "optimizer") if scheduler is not None else None
            if known.inner:
                continue
            taken, stream = self._taken(opt, known.counter), known.counter[1]
            value = {"id": place, "type": known.type, "stream": stream if stream >= 0 else None, "position": 0}
            value |= known.fact
            value |= {"optimizer_steps": taken - known.before, "made": known.made, "steps": known.steps}
            value |= {"double": known.double, "early": known.early}
            of = list(dict.fromkeys(id(one.counter) for one in self._known))
            value |= {"optimizer": of.index(id(known.counter))}
            passes = max(len(lengths) + begun, self._passes_by_steps(loader)) if lengths else 0
            value |= {"passes": passes, "pass_steps": lengths[0] if lengths else 0}
            self.scene.log(FactKey.SCHEDULE, value)

    def _passes_by_steps(self, loader: int) -> int:
        """Return the passes over the only loader that fit into the steps since its first one: most begin in light
        steps, unseen, while the optimizer counts its steps itself.
        """
        lengths = self._passes[loader]
        return (self._now - self._first[loader]) // max(lengths) if len(self._passes) == 1 else 0


def _counted(scheduler: LRScheduler) -> tuple[int, int]:
    """Return a scheduler's own counts of its steps: of calls, which not all keep, and of epochs."""
    parts = [scheduler] if attribute(scheduler, "last_epoch") is not None else []
    one = next(iter([*parts, *sequence(attribute(scheduler, "_schedulers"))]), scheduler)
    counts = (_plain(attribute(one, name)) for name in ("_step_count", "last_epoch"))
    calls, epochs = (int(n) if n is not None else 0 for n in counts)
    return calls, epochs


def words(scheduler: LRScheduler) -> dict[str, str]:
    """Return the settings of a scheduler that are words."""
    found = {name: attribute(scheduler, at) for at, name in _WORDS.items()}
    return {name: value[:40] for name, value in found.items() if type(value) is str}


def settings(scheduler: LRScheduler) -> dict[str, Any]:
    """Return the numeric settings that a scheduler was made with."""
    found: dict[str, Any] = {}
    for name in _SETTINGS:
        value = attribute(scheduler, name)
        if type(value) is Counter:
            value = sorted(value.elements())
        many = is_a(value, (list, tuple))
        plain = [_plain(v) for v in list(sequence(value))[:_LIST]] if many else _plain(value)
        if plain is not None:
            found[name] = plain
    every = groups(attribute(scheduler, "optimizer"))
    peaks = _numbers([item(group, "max_lr") for group in every])
    if peaks:
        found["max_lr"] = max(peaks)
    return found


def _rate(scheduler: LRScheduler) -> float:
    """Return the largest learning rate that a scheduler has set, NaN if there is none."""
    return max(rates(attribute(scheduler, "optimizer")), default=math.nan)


def _plain(value: Any) -> float | int | None:
    if type(value) is int:
        return value
    found = number(value) if type(value) is not bool else None
    return found if found is not None and math.isfinite(found) else None


def _numbers(values: Any) -> list[float]:
    return [value for value in map(number, sequence(values)) if value is not None]


READER = Schedule
