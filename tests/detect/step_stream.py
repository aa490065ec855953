"""Steps as capture would give them: a model of layers in a row, with a plain way to say what each site reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.detect.watch import Watch
from neuraldbg.nouns import STATS, Edge, Layer, Layout, Site, Step, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from neuraldbg.detect.detector import Detector
    from neuraldbg.nouns import Event

ELEMENTS = 4096
UNITS = 64


def chain(
    depth: int = 4,
    *,
    kind: str = "Linear",
    activation: str = "ReLU",
    ops: Mapping[str, tuple[str, ...]] | None = None,
    model: str = "Net",
    prefix: str = "",
) -> Layout:
    """fc0, act0, fc1, ... as one model; without ``activation`` only the linear layers."""
    layers: list[Layer] = []
    sites: list[Site] = [Site("input", prefix.rstrip("."), 0, "x", "float32")]
    for i in range(depth):
        path = f"{prefix}fc{i}"
        layers.append(Layer(path, kind, model, leaf=True, params=("weight", "bias")))
        sites += [Site("activation", path, dtype="float32"), Site("output_grad", path, dtype="float32")]
        for name in ("weight", "bias"):
            sites += [Site(site, path, 0, name, "float32") for site in ("param", "param_grad", "update")]
        if activation and i < depth - 1:
            layers.append(Layer(f"{prefix}act{i}", activation, model, leaf=True))
            sites += [Site("activation", f"{prefix}act{i}"), Site("output_grad", f"{prefix}act{i}")]
    paths = [layer.path for layer in layers]
    edges = [Edge(a, b, (ops or {}).get(a, ())) for a, b in zip(paths, [*paths[1:], "loss"], strict=True)]
    return Layout(tuple(layers), tuple(sites), tuple(edges), frozenset(paths))


def join(*layouts: Layout) -> Layout:
    """Several models in one run."""
    parts = [[item for layout in layouts for item in getattr(layout, name)] for name in ("layers", "sites", "edges")]
    return Layout(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), frozenset().union(*(x.called for x in layouts)))


HEALTHY = {"activation": 1.0, "output_grad": 1e-3, "param": 0.1, "param_grad": 1e-3, "update": 1e-4, "input": 1.0}
"""RMS of each kind of site in a healthy run."""


class Stream:
    """Builds steps; every site is healthy with a little noise unless it is told otherwise."""

    def __init__(self, layout: Layout, seed: int = 0, noise: float = 0.1, lr: float = 1e-3) -> None:
        self.layout = layout
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.lr = lr
        self.index = 0

    def row(self, kind: str, module: str, name: str | None = None) -> int:
        """The row of a site."""
        return self.layout.rows(kind, module, name)[0]

    def table(self) -> np.ndarray:
        """A healthy table."""
        sites = self.layout.sites
        table = np.zeros((len(sites), len(STATS)))
        rms = np.array([HEALTHY.get(site.kind, 1.0) for site in sites])
        rms *= np.exp(self.noise * self.rng.standard_normal(len(sites)))
        for name, values in {"rms": rms, "std": rms, "min": -3 * rms, "max": 3 * rms}.items():
            table[:, column(name)] = values
        table[:, column("total")] = table[:, column("count")] = ELEMENTS
        for row, site in enumerate(sites):
            if site.kind == "activation":
                table[row, column("units")] = UNITS
                table[row, column("zeros")] = 0.6 * ELEMENTS if site.module.startswith("act") else 0.0
        return table

    def step(
        self,
        loss: float | None = None,
        *,
        edit: Callable[[Stream, np.ndarray], None] | None = None,
        stream: int = 0,
        applied: bool = True,
        **scalars: float,
    ) -> Step:
        """The next step. ``edit(self, table)`` changes what sites read."""
        table = self.table()
        if edit is not None:
            edit(self, table)
        values = {"lr": self.lr, "batch_size": 64.0, **scalars}
        if loss is not None:
            values["loss"] = loss
            values["loss_nonfinite"] = 0.0 if math.isfinite(loss) else 1.0
        step = Step(self.index, stream, 0.01 * self.index, table, values, applied=applied)
        self.index += 1
        return step

    def put(self, table: np.ndarray, rows: int | Sequence[int], **stats: float) -> None:
        """Write statistics of some rows; ``rms`` brings std, min and max along."""
        rows = list(rows) if not isinstance(rows, int) else [rows]
        if "rms" in stats:
            r = stats["rms"]
            stats = {"std": r, "min": -3 * r, "max": 3 * r, **stats}
        for name, value in stats.items():
            table[rows, column(name)] = value

    def hide(self, table: np.ndarray, rows: Iterable[int]) -> None:
        """Make sites unseen: count 0, NaN moments."""
        rows = list(rows)
        table[rows] = 0.0
        for name in ("mean", "std", "rms", "min", "max"):
            table[rows, column(name)] = np.nan


def decay(n: int, start: float = 2.3, end: float = 0.2, tau: float = 50.0) -> np.ndarray:
    """A healthy loss without noise."""
    return end + (start - end) * np.exp(-np.arange(n) / tau)


def feed(detector: Detector | Watch, layout: Layout, steps: Iterable[Step]) -> list[Event]:
    """Run steps through a detector and give its events in their latest version, in the order of their beginning."""
    latest: dict[Any, Event] = {}
    for step in steps:
        for event in detector.observe(step, layout):
            latest[event.key] = event
    if not isinstance(detector, Watch):
        for event in detector.ongoing():
            latest[event.key] = event
        return list(latest.values())
    return list(detector.events)


def losses(values: Iterable[float], seed: int = 0, layout: Layout | None = None, **scalars: float) -> list[Step]:
    """Steps that differ in their loss only."""
    stream = Stream(layout or chain(2), seed)
    return [stream.step(float(value), **scalars) for value in values]
