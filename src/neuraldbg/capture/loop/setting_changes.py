"""Settings of optimizers and models that the program changes while it trains, each logged as a CHANGE fact.

The learning rate is a scalar of every step and is not read here, and weights are compared in every step elsewhere. All
other settings are compared every few steps, so that a change is dated to an interval of that length and light steps pay
next to nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn

from neuraldbg.capture.guest.module_tree import groups, training
from neuraldbg.capture.guest.program_objects import attribute, is_a, item
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from neuraldbg.capture.loop.reader_context import Scene

EVERY = 32
"""Steps between two readings of the settings at least."""
_NAMES = ("momentum", "weight_decay", "dampening", "maximize", "eps")
_MOST = 16
"""Changes of one setting that are logged: a program may change it for ever, as one that trains parts by turns."""
_MUCH = 0.3
"""Least change of a weight from outside that is logged: half of it or twice, or other values."""
_OPTIMIZERS = 16
"""Optimizers up to which a new one is a reason to read facts: a program may make one for each step."""
_SCHEDULERS = 32
"""Schedulers up to which a new one is a reason to read facts."""
_PLAIN = (float, int, bool)
"""Types of settings that are compared: to fetch a number from a device would wait for it."""
_DROPOUT = nn.modules.dropout._DropoutNd  # noqa: SLF001

Key: TypeAlias = "tuple[str, int | str]"
"""Name of a setting, with the number of its optimizer or the name of its model or layer."""
_TRAINABLE: Key = ("trainable", "")
_GRADED: Key = ("gradients", "")


class SettingChanges:
    """Compares the settings of all optimizers and models with those of a few steps before."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._known: dict[Key, float] = {}
        self._frozen: frozenset[str] = frozenset()
        self._weights: frozenset[str] = frozenset()
        """Names of the parameters that were known when their number last changed."""
        self.dry: frozenset[str] = frozenset()
        """Names of the parameters that an optimizer steps and that got gradients before, and had none in the last
        reading.
        """
        self._streams = self._schedulers = 0
        """Optimizers at the last reading, and schedulers that were made by then."""
        self._opts: dict[int, weakref.ref[Any]] = {}
        """Weak reference to the object of each optimizer by its number."""
        self._at = -1
        """Step of the last reading."""
        self._moving: dict[Key, tuple[float, int, int]] = {}
        """Value and step before a change that may go on, as along a schedule, and its number of readings."""
        self._logged: dict[Key, int] = {}

    def check(self, step: int, *, every: int = EVERY) -> bool:
        """Compare the settings at the end of a step, if ``every`` steps have passed. Return True if one changed, for
        which facts are to be read; those of a new optimizer are read in any case.
        """
        written = self.note_written(step)
        if self._at >= 0 and step < self._at + every and not self._made_anew():
            return written
        now, before, known = dict(self._settings()), self._at, self._known
        self._known, self._at = now, step
        written |= self._note_gradients(before, step)
        if now.get(_TRAINABLE) != known.get(_TRAINABLE) and not self._turned():
            known = {**known, _TRAINABLE: now.get(_TRAINABLE, 0.0)}  # the program has made another model
        changed = written | self._joined(before) | self._note_replaced(before, step)
        if before < 0 or (now == known and not self._moving):
            return changed
        for key, value in now.items():
            old = known.get(key, value)
            moving, begun = self._moving.get(key), value != old
            if begun:
                start, since, readings = moving or (old, before, 0)
                self._moving[key] = start, since, readings + 1
                changed |= moving is None and self._log(key, start, value, since, step)
            elif moving is not None:
                start, since, readings = self._moving.pop(key)
                # Where a schedule has come to rest, all of its way is one change.
                changed |= readings > 1 and self._log(key, start, value, since, before)
        return changed

    def _made_anew(self) -> bool:
        """Return True if the program has made a scheduler, or another optimizer in the place of one, since the last
        reading: what else it did then is read at once. One that does so at every step is read now and then.
        """
        if self._schedulers != self._scene.schedulers <= _SCHEDULERS:
            return True
        streams = self._scene.optimizers.streams
        return len(streams) <= _OPTIMIZERS and any(
            self._opts.get(stream.index, stream.opt) is not stream.opt
            and self._logged.get(("optimizer", stream.index), 0) < _MOST
            for stream in streams
        )

    def _joined(self, before: int) -> bool:
        """Return True if another optimizer has stepped since the last reading, or a scheduler was made, of the first
        few of a run.
        """
        streams, self._streams = self._streams, len(self._scene.optimizers.streams)
        schedulers, self._schedulers = self._schedulers, self._scene.schedulers
        return before >= 0 and (streams < self._streams <= _OPTIMIZERS or schedulers < self._schedulers <= _SCHEDULERS)

    def _settings(self) -> Iterator[tuple[Key, float]]:
        scene = self._scene
        for stream in scene.optimizers.streams:
            yield from _of_optimizer(stream.index, stream.opt())
        if len(scene.optimizers.streams) == 1:
            yield ("clip", scene.optimizers.streams[0].index), float(scene.optimizers.limit)
        for model in scene.models.found:
            if model.gone:
                continue
            yield ("training", model.name), float(training(model.root))
            for path, layer in model.mode_layers.items():
                yield ("training", path), float(training(layer))
                p: Any = attribute(layer, "p") if is_a(layer, _DROPOUT) else None
                if type(p) in _PLAIN:
                    yield ("dropout", path), float(p)
        if scene.params.by_id:
            yield _TRAINABLE, float(sum(w.ref.requires_grad for w in scene.params.by_id.values()))

    def _log(
        self,
        key: Key,
        before: float | None,
        after: float | None,
        since: int,
        until: int,
        changed: tuple[str, ...] = (),
    ) -> bool:
        times = self._logged[key] = self._logged.get(key, 0) + 1
        if times > _MOST:
            return False
        (what, of), names = key, list(changed[:_MOST])
        if what == "trainable":
            frozen, self._frozen = self._frozen, self._now_frozen()
            names = sorted(frozen ^ self._frozen)[:_MOST]
        value: dict[str, Any] = {"what": what, "since": since, "until": until}
        value |= {"before": _limited(before), "after": _limited(after)}
        value |= {"stream": of, "name": ""} if isinstance(of, int) else {"stream": None, "name": of}
        self._scene.log(FactKey.CHANGE, {**value, "names": names})
        return True

    def _turned(self) -> bool:
        """Return True if a parameter that was known before was frozen or unfrozen since; if not, learn the others."""
        weights, frozen = frozenset(w.name for w in self._scene.params.by_id.values()), self._now_frozen()
        turned = bool((frozen ^ self._frozen) & self._weights & weights)
        self._weights = weights
        if not turned:
            self._frozen = frozen
        return turned

    def _note_gradients(self, since: int, until: int) -> bool:
        """Log the parameters that get no gradient any more, or get one again, though they require one and an optimizer
        steps them. Return True if there are any. Optimizers that step by turns leave out parameters as they like.
        """
        scene = self._scene
        if len(scene.optimizers.streams) != 1 or scene.by_hand:
            self.dry = frozenset()
            return False
        held = [w for w in scene.params.owned(scene.optimizers.streams[0].tensors()) if w.had_grad]
        dry, now = self.dry, frozenset(w.name for w in held if w.ref.requires_grad and w.ref.grad is None)
        self.dry = now
        if dry == now or since < 0 or not dry <= {w.name for w in held}:
            return False
        stream = scene.optimizers.streams[0]
        if stream.turned is not None and since < stream.turned[1] <= until:  # native code has seen the step
            since, until = max(since, stream.turned[0]), stream.turned[1]
        elif stream.missing is not None and stream.missing[0] < until:  # up to then it has seen no change
            since = max(since, stream.missing[0])
        counts = float(len(held) - len(dry)), float(len(held) - len(now))
        return self._log(_GRADED, *counts, since, until, tuple(sorted(dry ^ now)))

    def _now_frozen(self) -> frozenset[str]:
        return frozenset(w.name for w in self._scene.params.by_id.values() if not w.ref.requires_grad)

    def note_written(self, step: int) -> bool:
        """Log the weights that were changed from outside of their optimizer. Return True if there are any."""
        told = False
        for one in self._scene.optimizers.outside.take(step):
            if one.change > _MUCH and one.step is not None:
                of = self._scene.optimizers.streams[-1].index
                told |= self._log(("weights", of), None, one.change, one.step - 1, one.step, one.names)
        return told

    def _note_replaced(self, before: int, step: int) -> bool:
        """Log the optimizers whose object is another one than before. Return True if there are any."""
        told = False
        for stream in self._scene.optimizers.streams:
            old, self._opts[stream.index] = self._opts.get(stream.index), stream.opt
            if old is not None and old is not stream.opt:
                told |= self._log(("optimizer", stream.index), None, None, before, step)
        return told


def _limited(value: float | None) -> float | None:
    """Return a value, None for no limit."""
    return value if value is None or math.isfinite(value) else None


def _of_optimizer(number: int, opt: Any) -> Iterator[tuple[Key, float]]:
    """Yield the largest value of each setting over the parameter groups."""
    found: dict[str, float] = {}
    for group in groups(opt) if opt is not None else ():
        given = [(name, item(group, name)) for name in _NAMES]
        betas = item(group, "betas")
        if type(betas) in (tuple, list):
            given += zip(("beta1", "beta2"), betas, strict=False)
        for name, value in given:
            if type(value) in _PLAIN:
                found[name] = max(found.get(name, float(value)), float(value))
    for name, value in found.items():
        yield (name, number), value
