"""The parameters that one optimizer steps, and the plans to read them: made once, used at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.parameters.batched_reads import Gradients, Item, Samples, plain
from neuraldbg.capture.parameters.device_reads import OnDevice, by_device
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.statistics.table import Table
    from neuraldbg.capture.statistics.watched_parameter import Watched


def cap_of(w: Watched, most: int) -> int:
    """Return the number of elements to read of a weight, 0 for all."""
    return 0 if w.whole and not _overlaps(w.ref) else most


def _overlaps(x: Tensor) -> bool:
    """Return True for an expanded tensor, which has more elements than memory."""
    held = tensor_memory.local(x)
    return held is not None and held.numel() * held.element_size() > held.untyped_storage().nbytes()


class Stepped:
    """Parameters that are stepped together, and their plans. ``most``: elements of one that are read at most."""

    def __init__(self, watched: list[Watched], most: int, table: Table) -> None:
        rows = table.rows
        self.watched = list(watched)
        self._keys = [w.key for w in watched]
        for w in watched:
            w.matrix = w.ref.dim() > 1
        self._whole = [w.whole for w in watched]  # a copy: the writer's thread may change w.whole
        # Parameters are split by the way in which they are read: in place here, on a device, one by one.
        caps = [0 if whole else most for whole in self._whole]
        held = [w for w in watched if w.param is not None]
        here = [w for w in held if plain(w.ref)]
        there = [w for w in held if placement.plain(w.ref)]
        self.others = [w for w in held if not plain(w.ref) and w not in there]
        """Parameters that cannot be read in place: sharded, sparse, of a dtype that is not read."""
        cap = {id(w): cap for w, cap in zip(watched, caps, strict=True)}
        self.devices = [
            OnDevice(members, [cap[id(w)] for w in members], most, table.on(device))
            for device, members in by_device(there).items()
        ]
        """One reader per other device."""
        items = [Item(w.weak, row_of(w.param), cap[id(w)]) for w in here]
        self.samples = Samples(items, [row_of(w.update) for w in here], rows)
        self.readable = here
        self.gradients = Gradients(
            [w.weak for w in here], [rows.address + row_of(w.grad) * operation.ROW for w in here], 0
        )
        self._without = [w for w in watched if w.param is None]
        """Parameters for which the table has no row."""
        self._all_had = False
        """True once each parameter has had a gradient."""
        self.lookups = [w for w in here if w.rows and w.ref.numel() > most]
        """Large embeddings."""

    @property
    def gone(self) -> bool:
        """True if the program has dropped one of the parameters."""
        return any(w.weak() is None for w in self.watched)

    @property
    def plain(self) -> bool:
        """True if the plans for CPU memory read all parameters, and no further work is needed."""
        return self.all_here and not self.lookups

    @property
    def all_here(self) -> bool:
        """True if the plans for CPU memory read all parameters, but for what a step changes in large embeddings: a
        sample at fixed places says nothing of those.
        """
        return not (self.others or self.devices or self._without) and self._all_had

    def forget(self) -> None:
        """Drop the kept samples of the weights: they do not belong to the next step."""
        self.samples.forget()
        for each in self.devices:
            each.forget()

    def note_gradients(self) -> None:
        """Record which parameters had a gradient in the last reading."""
        if self._all_had:
            return
        missing = set(self.gradients.missing())
        for i, w in enumerate(self.readable):
            w.had_grad |= i not in missing
        for w in self._without:
            w.had_grad |= w.ref.grad is not None
        self._all_had = all(w.had_grad for w in self.watched)

    def holds(self, watched: list[Watched]) -> bool:
        """Return True if these are the same parameters, to be read in the same way."""
        return (
            self.watched == watched
            and self._keys == [w.key for w in watched]
            and self._whole == [w.whole for w in watched]
            and self.samples.follows()
            and (not self.devices or all(each.holds() for each in self.devices))
            and not (self.others and any(plain(w.ref) or placement.plain(w.ref) for w in self.others))
        )


def row_of(row: int | None) -> int:
    """Return a row that is known to exist: the three rows of a parameter are made together, or not at all."""
    assert row is not None
    return row
