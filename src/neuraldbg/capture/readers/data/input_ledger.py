"""The ledger of one model's inputs: sizes, levels, repeated samples, and samples shared with evaluation.

Small copies of passes enter, the BATCHES fact leaves. The arithmetic is done for many passes together.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.guest.module_tree import training
from neuraldbg.capture.readers.data.input_levels import column_scale, columns, grid, middle, skewed
from neuraldbg.capture.readers.data.repeated_batches import Pass, Runs
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.async_copy import Sent
from neuraldbg.capture.statistics.operation import observable
from neuraldbg.capture.statistics.sample_hashes import Chance, Sketch, excerpt, hashes

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.statistics.sample_hashes import Hashes

    Rows = npt.NDArray[np.float32]

TOGETHER = 16
"""Passes that are processed together."""
FIRST = 64
"""First training passes of a model, all of which are read."""
EVERY = 4
"""After those, every 4th training pass is read."""
SETTLED, RARELY = 256, 8
"""After 256 training passes, every 8th is read."""
_EVALS = 256
"""Evaluation passes whose sample hashes are kept: the first half, and the newest."""
_PICTURES = 8
"""Batches of images that are read for the order of their axes."""
_SIZES = 64
_DATASETS = 8
_SCATTER = 2_654_435_761
"""Multiplier that scatters the passes to read: a fixed stride could always hit the same samples."""


class Ledger:
    """The statistics of the inputs of one model."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.pending: list[Pass] = []
        self._away: tuple[list[Pass], Sent] | None = None
        """Passes whose excerpts are being copied from a device, None if there are none."""
        self.sizes: dict[int, int] = {}
        """{batch size: number of training passes}."""
        self.odd: list[tuple[int, int]] = []
        """(step, size) of training passes with a size not seen before."""
        self.trained = 0
        self.steps = 0
        """Number of steps in which a training pass was seen."""
        self._step = -1
        self.evaluated = 0
        self.first_eval = -1
        self.sketch = Sketch()
        self.chance = Chance()
        self.known = self.counted = 0
        """Moving counts over the newest samples: those that were seen before (``known``), and all (``counted``)."""
        self.twice = self.rows = 0
        """Number of samples that are twice in their own batch (``twice``), and of all (``rows``)."""
        self.full = self.looked = 0
        self.evals: list[tuple[int, Hashes, int]] = []
        self.delivered = 0
        """Batches that loaders had delivered at the newest pass: a pass without a new one came from no loader."""
        self.alike: dict[str, Any] | None = None
        self.sources: set[int] = set()
        """Datasets that were trained on."""
        self.again = 0
        """Evaluation passes whose samples were evaluated in another burst before."""
        self._before: dict[int, int] = {}
        self.burst_sizes: dict[int, int] = {}
        """Samples evaluated in each of the newest bursts."""
        self.bursts = 0
        self._burst_at = -1
        self.stats: dict[bool, list[tuple[float, float, float, float]]] = {False: [], True: []}
        self.by_column: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        """Means over the columns of a table, of the squared mean of a column and of its variance, for each pass."""
        self.grid: dict[bool, str] = {}
        self.columns: dict[str, Any] | None = None
        self.likeness: list[tuple[float, float]] = []
        """Likeness of numbers of the first images, for two distances: see ``interleaved.py``."""
        self.runs = Runs()
        self._last: weakref.ref[Tensor] | None = None
        self.floating = True
        self.shape: list[int] = []

    def take(self, step: int, given: Tensor, x: Tensor, call: Call, source: int = 0) -> None:
        """Record a pass. ``x`` is the ordinary tensor that holds the numbers of ``given``."""
        size = int(x.shape[0])
        evaluating = call.evaluating
        # Counts are exact for all passes; only the excerpts below are of some.
        if evaluating:
            if training(call.module):
                return  # a teacher, a rollout, a check of the loss: no validation
            self.evaluated += 1
            if self.first_eval < 0:
                self.first_eval = step
            if step != self._burst_at:
                self._burst_at, self.bursts = step, self.bursts + 1
                if len(self.burst_sizes) > _SIZES:
                    del self.burst_sizes[next(iter(self.burst_sizes))]
            self.burst_sizes[self.bursts] = self.burst_sizes.get(self.bursts, 0) + size
        else:
            self.trained += 1
            self.steps += step != self._step
            self._step = step
            if len(self.sources) < _SIZES:
                self.sources.add(source)
            if size not in self.sizes and len(self.odd) < _SIZES:
                self.odd.append((step, size))
            if size in self.sizes or len(self.sizes) < _SIZES:
                self.sizes[size] = self.sizes.get(size, 0) + 1
            every = EVERY if self.trained <= SETTLED else RARELY
            if self.trained > FIRST and (self.trained * _SCATTER >> 8) % every:
                return
        if not observable(x) and (x.is_floating_point() or not x.numel() or x.is_quantized):
            return
        # Shape and dtype are those of training passes.
        if not evaluating:
            self.floating, self.shape = x.is_floating_point(), list(x.shape)
        fresh = self._last is None or self._last() is not given
        if not evaluating:
            self._last = weakref.ref(given)
        # Every other evaluation is read at the same rows, so that a repeated one is recognised.
        turn = 0 if evaluating and self.bursts % 2 else self.trained + self.evaluated
        self.pending.append(Pass(step, size, evaluating, self.bursts, fresh, source, excerpt(x, turn)))
        if self.columns is None and not evaluating and x.dim() == 2 and self.floating:
            self.columns = columns(x)
        if not evaluating and self.floating and len(self.likeness) < _PICTURES and x.dim() == 4:
            self._look(x)
        # Device excerpts are copied asynchronously, and processed at a later pass.
        if len(self.pending) >= TOGETHER:
            self._begin_work()
        if self._away is not None and self._away[1].arrived():
            self._take_back()

    def _look(self, x: Tensor) -> None:
        """Read the order of the axes of a batch of images."""
        from neuraldbg.capture.readers.data import interleaved  # noqa: PLC0415 (a session is imported without it)

        if interleaved.fits(tuple(x.shape)):
            few = interleaved.likeness(operation.numbers(interleaved.first_rows(x).float().cpu()), int(x.shape[1]))
            self.likeness += [few] if few is not None else []

    def cut(self) -> None:
        """End the current run of equal batches: passes were not seen."""
        if self.runs.passes < FIRST:  # later none are added
            self.work()
            self.runs.cut()

    def work(self) -> None:
        """Process the collected passes; wait for excerpts on a device."""
        self._begin_work()
        self._take_back()

    def _begin_work(self) -> None:
        """Process the collected passes, or start the copy of their excerpts."""
        self._take_back()
        pending, self.pending = self.pending, []
        if any(placement.lies(one.rows) for one in pending):
            self._away = pending, Sent([one.rows.float() for one in pending])
        elif pending:
            self._learn(pending, [one.rows.float().numpy() for one in pending])

    def _take_back(self) -> None:
        """Process the passes whose excerpts were copied."""
        away, self._away = self._away, None
        if away is not None:
            self._learn(away[0], [rows.astype(np.float32) for rows in away[1].read()])

    @np.errstate(all="ignore")  # infinities in the data trigger numpy warnings
    def _learn(self, pending: list[Pass], rows: list[Rows]) -> None:
        numbered = _numbered(rows)
        levels = _levels(rows) if self.floating else np.empty((len(rows), 0))
        for one, found, numbers, level in zip(pending, rows, numbered, levels, strict=True):
            self._stats(found, one, level)
            if one.evaluating:
                self._evaluated(one, numbers)
            else:
                self._trained(one, found, numbers)

    def _stats(self, rows: Rows, one: Pass, level: npt.NDArray[np.float64]) -> None:
        kept = self.stats[one.evaluating]
        if len(kept) >= _EVALS or not level.size or not math.isfinite(level[1]):
            return
        if one.evaluating not in self.grid:
            self.grid[one.evaluating] = grid(rows.ravel())
        mean, std, low, high = level.tolist()
        kept.append((mean, std, low, high))
        if len(self.shape) == 2 and (scale := column_scale(rows)) is not None:
            self.by_column[one.evaluating].append(scale)

    def _trained(self, one: Pass, rows: Rows, numbers: Hashes) -> None:
        unique = np.unique(numbers)
        self.twice += len(numbers) - len(unique)
        self.rows += len(numbers)
        self.full += len(numbers)
        self.looked += one.size
        low = self.sketch.below(unique)
        known = self.sketch.add(unique)
        self.chance.add(rows, known, len(low))
        if len(low):  # a moving share: the newest samples count most
            self.known, self.counted = self.known * 15 // 16 + known * 16, self.counted * 15 // 16 + len(low) * 16
        if self.runs.passes == FIRST:
            self.chance.close()
        if self.runs.passes < FIRST:  # later ones are not all read
            self.runs.add(int(numbers.sum(dtype=np.uint64)) ^ (one.size << 1), one)

    def _evaluated(self, one: Pass, numbers: Hashes) -> None:
        whole = int(numbers.sum(dtype=np.uint64))
        if self._before.setdefault(whole, one.burst) != one.burst:
            self.again += 1
        if len(self._before) > 4 * _EVALS:
            self._before.clear()
        self.evals.append((one.burst, np.unique(numbers), one.source))
        if len(self.evals) > _EVALS:
            del self.evals[_EVALS // 2]

    def fact(self) -> dict[str, Any] | None:
        """Return the BATCHES fact, None without a training pass."""
        self.work()
        if not self.trained:
            return None
        usual = max(self.sizes, key=lambda size: self.sizes[size])
        odd = [[step, size] for step, size in self.odd if size != usual]
        return {
            "model": self.model,
            "passes": self.trained,
            "steps": self.steps,
            "evals": self.evaluated,
            "bursts": self.bursts,
            "first_eval": self.first_eval,
            "usual": usual,
            "odd": odd,
            "sizes": len(self.sizes),
            "floating": self.floating,
            "shape": self.shape,
            "grid": self.grid.get(False, ""),
            "grid_eval": self.grid.get(True, ""),
            "columns": self.columns,
            "train": middle(self.stats[False], self.by_column[False]),
            "eval": middle(self.stats[True], self.by_column[True]),
            "skewed": skewed(self.stats),
            "overlap": self._overlap(),
            "runs": self.runs.fact(),
            "alike": self.alike,
            "likeness": np.median(self.likeness, axis=0).tolist() if self.likeness else None,
        }

    def _overlap(self) -> dict[str, Any] | None:
        """Return the comparison of each evaluation pass's samples with all that were trained on."""
        if not self.evals or not self.rows:
            return None
        # A batch that is in part of the training set is a leak; one that is wholly of it is an evaluation of training
        # data.
        passes = []
        for _, numbers, _ in self.evals:
            shared, possible = self.sketch.share(numbers)
            if possible:
                passes.append((shared, possible))
        mixed = [(s, p) for s, p in passes if 0 < s < 0.8 * p]
        part = sum(s for s, _ in passes) / max(1, sum(p for _, p in passes))
        recall = part * max(self.burst_sizes.values()) / max(1.0, self.sketch.size)
        return {
            "passes": len(passes),
            "mixed": len(mixed),
            "pure": sum(1 for s, p in passes if s >= 0.8 * p),
            "shared": sum(s for s, _ in passes),
            "samples": sum(p for _, p in passes),
            "mixed_shared": sum(s for s, _ in mixed),
            "mixed_samples": sum(p for _, p in mixed),
            "seen_before": self.known / self.counted if self.counted else 0.0,
            "twice": self.twice / self.rows,
            "covered": self.full / max(1, self.looked),
            "again": self.again,
            "recall": min(1.0, recall),
            "natural": self.chance.share(self.sketch.size),
            "datasets": self._datasets(),
        }

    def _datasets(self) -> list[dict[str, Any]]:
        """Return for each dataset that loaders evaluated how much of it was trained on."""
        found: dict[int, dict[str, Any]] = {}
        bursts: dict[int, set[int]] = {}
        for burst, numbers, source in self.evals:
            if source == 0 or (source not in found and len(found) >= _DATASETS):
                continue
            shared, possible = self.sketch.share(numbers)
            one = found.setdefault(source, {"trained": source in self.sources, "shared": 0, "samples": 0, "bursts": 0})
            one["shared"] += shared
            one["samples"] += possible
            bursts.setdefault(source, set()).add(burst)
            one["bursts"] = len(bursts[source])
        return list(found.values())


def _levels(rows: list[Rows]) -> npt.NDArray[np.float64]:
    """Return mean, standard deviation, minimum and maximum of each pass, shape (passes, 4); NaN for an empty one.

    Batches are mostly of one size, and are then reduced together.
    """
    if not all(each.size for each in rows):
        return np.concatenate([_levels([each]) if each.size else np.full((1, 4), np.nan) for each in rows])
    if len({each.shape for each in rows}) > 1:
        return np.concatenate([_levels([each]) for each in rows])
    wide = np.stack(rows).reshape(len(rows), -1).astype(np.float64)
    return np.stack([wide.mean(1), wide.std(1), wide.min(1), wide.max(1)], axis=1)


def _numbered(rows: list[Rows]) -> list[Hashes]:
    """Hash the rows of all passes, those of one width together."""
    widths = {each.shape[1] for each in rows}
    found: dict[int, Hashes] = {}
    for width in widths:
        chosen = [i for i, each in enumerate(rows) if each.shape[1] == width]
        together = hashes(np.concatenate([rows[i] for i in chosen]))
        ends = np.cumsum([len(rows[i]) for i in chosen])
        found.update(zip(chosen, np.split(together, ends[:-1]), strict=True))
    return [found[i] for i in range(len(rows))]
