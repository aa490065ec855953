"""Builds synthetic runs for the explain stage: a healthy classifier, changed step by step into a failing one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuraldbg.nouns import (
    STATS,
    Edge,
    Event,
    Fact,
    History,
    Layer,
    Layout,
    Outcome,
    RunInfo,
    RunRecord,
    Site,
    column,
)

ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}
FAMILY = {
    "loss_spike": "loss", "loss_divergence": "loss", "loss_plateau": "loss", "nonfinite_loss": "loss",
    "nonfinite_input": "data", "dead_units": "activation_regime", "saturated_units": "activation_regime",
    "nonfinite_activation": "activation_regime", "activation_scale": "activation_regime",
    "update_ratio_high": "optimizer_stability", "update_ratio_low": "optimizer_stability",
    "unchanged_parameters": "optimizer_stability", "nonfinite_parameter": "optimizer_stability",
}  # fmt: skip


def falling(steps: int, first: float = 2.3, last: float = 0.3, noise: float = 0.03) -> np.ndarray:
    """A healthy loss: exponential descent with noise."""
    rng, t = np.random.default_rng(0), np.arange(steps)
    return last + (first - last) * np.exp(-4 * t / steps) + rng.normal(0, noise, steps)


def flat(steps: int, level: float = 2.303, noise: float = 0.01) -> np.ndarray:
    """A loss that goes nowhere."""
    return level + np.random.default_rng(1).normal(0, noise, steps)


@dataclass
class Build:
    """A healthy MLP on ten classes with SGD; every method changes one thing and returns the builder."""

    steps: int = 60
    depth: int = 3
    activation: str = "relu"
    width: int = 64
    optimizer: str = "SGD"
    lr: float = 0.1
    batch: int = 32
    layers: list[Layer] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    table: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scalars: dict[str, np.ndarray] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stream: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    outcome: Outcome = field(default_factory=lambda: Outcome("completed"))
    coverage: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, w = self.steps, self.width
        self.rng = np.random.default_rng(7)
        self.stream = np.zeros(n, np.int64)
        self.site("input", "", mean=0.0, std=1.0, rms=1.0, min=-3.0, max=3.0, total=self.batch * w)
        for i in range(1, self.depth + 1):
            out = 10 if i == self.depth else w
            self.layer(f"fc{i}", "Linear", ("weight", "bias"), in_features=w, out_features=out)
            if i < self.depth:
                self.layer(f"act{i}", ACTIVATIONS[self.activation])
        for scalar, value in {
            "loss": falling(n), "loss_nonfinite": 0, "lr": self.lr, "backwards": 1, "forwards": 1, "stale_grad": 0,
            "eval_layers": 0, "batch_size": self.batch, "grad_norm": 1.0, "update_ratio": 2e-3, "evals": 0,
            "duration": 0.01, "overhead": 0.0005,
        }.items():  # fmt: skip
            self.scalar(scalar, value)
        self.fact("loss", stream=0, ops=["NllLoss", "LogSoftmax"], terms=[self.term()])
        self.fact("batch", model="Net", inputs={"": {"shape": [self.batch, w], "dtype": "float32",
                  "column_std_min": 0.9, "column_std_max": 1.1, "column_mean_absmax": 0.1,
                  "image": False}})  # fmt: skip
        self.fact("modes", model="Net", training=True, eval_layers=[], mode_layers=[])
        self.params()
        self.fact("optimizer", **self.group())

    def term(self, **changes: Any) -> dict[str, Any]:
        """One term of the loss graph."""
        for side in {"target", "input"} & changes.keys():
            changes[side] = {"nonfinite": 0, "count": self.batch, **changes[side]}
        return {
            "kind": "cross_entropy", "reduction": "mean", "input_shape": [self.batch, 10], "target_shape": [self.batch],
            "operand_shapes": [[self.batch, 10], [self.batch]], "broadcast": False,
            "fed_by": [], "chain": changes.get("fed_by", []), "layer": f"fc{self.depth}",
            "target": {"min": 0, "max": 9, "mean": 4.5, "std": 2.9, "nonfinite": 0, "count": self.batch},
            "input": {"min": -1, "max": 1, "mean": 0, "std": 0.5, "nonfinite": 0, "count": self.batch * 10},
            "target_dtype": "int64", "classes": 10, "normalised": False, **changes,
        }  # fmt: skip

    def loss_term(self, **changes: Any) -> Build:
        """Replace the loss graph by one with this term."""
        self.facts = [f for f in self.facts if f.key != "loss"]
        return self.fact("loss", stream=0, ops=[], terms=[self.term(**changes)])

    def group(self, **changes: Any) -> dict[str, Any]:
        """The value of the OPTIMIZER fact."""
        return {
            "stream": 0, "type": self.optimizer, "groups": [{"lr": self.lr, "params": 2 * self.depth}], "foreign": 0,
            "foreign_no_grad": 0, "frozen": 0, "owned": 2 * self.depth, "foreign_shapes": [], **changes,
        }  # fmt: skip

    def optimizer_fact(self, **changes: Any) -> Build:
        """Replace the OPTIMIZER fact."""
        self.facts = [f for f in self.facts if f.key != "optimizer"]
        for step in (0, 1):
            self.fact("optimizer", step, **self.group(**changes))
        return self

    def params(self, **changes: Any) -> Build:
        """Replace the PARAMS facts."""
        self.facts = [f for f in self.facts if f.key != "params"]
        base = {
            "total": 2 * self.depth,
            "frozen": [],
            "not_in_optimizer": [],
            "no_grad": [],
            "uncalled": [],
            "zero_lr": [],
            "tied": [],
        }
        for step in (0, 1, 2, 4, 8, 16, 32):
            if step < self.steps:
                self.fact("params", step, **{**base, **changes})
        return self

    def layer(self, path: str, type_: str, params: tuple[str, ...] = (), model: str = "Net", **settings: Any) -> Build:
        """Add a layer with its sites."""
        self.layers.append(Layer(path, type_, model, True, params, settings))
        width = settings.get("out_features", self.width)
        rms = float(np.sqrt(2 / settings.get("in_features", self.width)))
        self.site(
            "activation", path, mean=0.0, std=0.8, rms=0.8, min=-2.0, max=2.5, units=width, total=self.batch * width
        )
        self.site("output_grad", path, mean=0.0, std=0.01, rms=0.01, min=-0.05, max=0.05, total=self.batch * width)
        for name in params:
            size = settings.get("in_features", self.width) * width if name == "weight" else width
            self.site("param", path, name, mean=0.0, std=rms, rms=rms, min=-3 * rms, max=3 * rms, total=size)
            self.site("param_grad", path, name, mean=0.0, std=0.01, rms=0.01, min=-0.1, max=0.1, total=size)
            self.site("update", path, name, mean=0.0, std=2e-3 * rms, rms=2e-3 * rms, min=-1e-3, max=1e-3, total=size)
        return self

    def site(self, kind: str, module: str, name: str = "", dtype: str = "float32", **stats: Any) -> Build:
        """Add a site with constant statistics (times one percent of noise for the moments)."""
        rows = np.zeros((self.steps, 1, len(STATS)))
        stats.setdefault("total", 64)
        stats.setdefault("count", stats["total"])
        for stat, value in stats.items():
            jitter = 1 + 0.01 * self.rng.standard_normal(self.steps) if stat in ("std", "rms", "min", "max") else 1.0
            rows[:, 0, column(stat)] = np.asarray(value) * jitter
        self.sites.append(Site(kind, module, 0, name, dtype))
        self.table = rows if not self.table.size else np.concatenate([self.table, rows], axis=1)
        return self

    def row(self, kind: str, module: str, name: str = "") -> int:
        """Row of a site."""
        return next(i for i, s in enumerate(self.sites) if (s.kind, s.module, s.name) == (kind, module, name))

    def stat(self, kind: str, module: str, stat: str, value: Any, at: Any = slice(None), name: str = "") -> Build:
        """Set one statistic of a site, at some steps or at all."""
        self.table[at, self.row(kind, module, name), column(stat)] = value
        return self

    def scalar(self, name: str, value: Any, at: Any = slice(None)) -> Build:
        """Set one scalar, at some steps or at all."""
        if name not in self.scalars:
            self.scalars[name] = np.full(self.steps, np.nan)
        self.scalars[name][at] = value
        return self

    def loss(self, values: Any, at: Any = slice(None)) -> Build:
        """Set the loss, and count its non-finite values."""
        self.scalar("loss", values, at)
        return self.scalar("loss_nonfinite", (~np.isfinite(self.scalars["loss"])).astype(float))

    def ruin(self, step: int, *, forward: bool = False) -> Build:
        """Everything is NaN from a step on: loss and gradients at once, activations from the next step (or at once)."""
        self.loss(np.nan, slice(step, None))
        for i, site in enumerate(self.sites):
            begin = step + 1 if site.kind in ("activation", "output_grad") and not forward else step
            if site.kind not in ("input", "op"):
                self.table[begin:, i, column("nonfinite")] = 10
                self.table[begin:, i, column("rms")] = np.nan
        self.event("nonfinite_loss", step).event("nonfinite_gradient", step, f"fc{self.depth}")
        return self.event("nonfinite_parameter", step, "fc1")

    def fact(self, key: str, step: int = 0, /, **value: Any) -> Build:
        """Add a fact."""
        self.facts.append(Fact(step, key, value))
        return self

    def event(
        self, kind: str, first: int = 0, layer: str | None = None, confidence: float = 0.95, **details: Any
    ) -> Build:
        """Add an event that lasts to the end."""
        self.events.append(
            Event(kind, FAMILY.get(kind, "gradient_health"), first, self.steps - 1, layer, "", confidence, details)
        )
        return self

    def build(self) -> RunRecord:
        """Return the record."""
        n = self.steps
        table = self.table.astype(np.float32)
        leaves = [layer.path for layer in self.layers]
        layout = Layout(
            tuple(self.layers), tuple(self.sites),
            tuple(Edge(a, b) for a, b in itertools.pairwise(leaves)), frozenset(leaves),
        )  # fmt: skip
        history = History(
            np.arange(n), np.ones(n, np.int64), np.arange(n) * 0.01, self.stream, np.ones(n, bool), table, table, table,
            self.scalars,
        )  # fmt: skip
        optimizers = (self.optimizer,) * (int(self.stream.max()) + 1 if n else 0)
        info = RunInfo(
            "train.py", (), 0.0, ("Net",), optimizers, {"torch": "2.13.0"}, "cpu", self.coverage, self.outcome
        )
        facts = tuple(sorted(self.facts, key=lambda f: f.step))
        return RunRecord(info, layout, history, facts, tuple(sorted(self.events, key=lambda e: e.first_step)), n)
