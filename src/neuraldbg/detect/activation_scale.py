"""From the first step on, the signal grows or shrinks geometrically from layer to layer, or is lost.

Judged on the outputs of the layers that own weight matrices, a model at a time, in its first steps only: before
training has changed anything, the profile over depth shows the initialisation. He and Glorot initialisation keep the
variance of activations over depth, so the standard deviation should stay within a small factor whatever the depth. One
layer with variance zero is no fault (a head or a branch that begins at zero); the event is a signal that is lost for
all layers that follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.episodes import Episode
from neuraldbg.detect.layer_rows import COUNT, STD, Synced, flow, is_embedding, is_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]

PROFILE = 64
"""Layers in the details at most."""


class ActivationScaleThresholds(Thresholds):
    """The thresholds of the profile of activations over depth."""

    ratio: float = Field(
        1e3,
        gt=1,
        description="Between the first and the last layer. Source: He et al. 2015 and Glorot and Bengio 2010 aim at"
        " 1; our own choice of what is out of scale.",
    )
    trend: float = Field(
        0.9, gt=0, le=1, description="Correlation of log std with depth. Source: geometric growth is a straight line."
    )
    layers: int = Field(4, ge=3, description="Least number of layers for a trend. Source: our own choice.")
    lost: float = Field(
        1e-6,
        gt=0,
        description="Std against the first layer's at which the signal is lost. Source: the precision of float32, "
        "1.2e-7.",
    )
    steps: int = Field(
        3, ge=1, description="Observations of a model that are judged. Source: the later ones show training."
    )


@dataclass
class _Model:
    """The layers of one model in data-flow order, and the episode about them."""

    rows: npt.NDArray[np.intp]
    layers: tuple[str, ...]
    seen: int
    episode: Episode


class ActivationScale(Synced):
    """The detector of activations that grow or shrink geometrically over depth in the first steps."""

    name: ClassVar[str] = "activation_scale"
    needs: ClassVar[frozenset[str]] = frozenset({"activation"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: ActivationScaleThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = thresholds or ActivationScaleThresholds()
        self._models: dict[str, _Model] = {}

    def build(self, layout: Layout, rows: int) -> None:
        """Pick the first output of each layer that owns a matrix, a model at a time."""
        position = flow(layout)
        owners = {
            site.module
            for site in layout.sites[:rows]
            if site.kind in ("param", "param_grad") and is_matrix(layout, site) and not is_embedding(layout, site)
        }
        found: dict[str, list[tuple[tuple[int, int], int]]] = {}
        taken: set[str] = set()
        for row in layout.rows("activation"):
            site = layout.sites[row]
            if row < rows and site.module in owners and site.module not in taken and site.module in position:
                taken.add(site.module)
                model = layout.by_path[site.module].model
                found.setdefault(model, []).append((position[site.module], row))
        for model, picked in found.items():
            picked.sort()
            known = self._models.get(model)
            order = [row for _, row in picked]
            self._models[model] = _Model(
                np.array(order, np.intp),
                tuple(layout.sites[row].module for row in order),
                known.seen if known else 0,
                known.episode if known else Episode("activation_scale", "activation_regime"),
            )

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        self.sync(step, layout)
        events: list[Event] = []
        if step.light:
            return events
        for model in self._models.values():
            if model.seen < self.thresholds.steps:
                events += self._judge(step, model)
        return events

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over all steps once every model has been judged."""
        self.sync(block.steps[first], block.layout)
        done = all(model.seen >= self.thresholds.steps for model in self._models.values())
        return len(block) - first if done else 0

    def ongoing(self) -> Iterable[Event]:
        """Return the events in the state of the first steps."""
        return [event for model in self._models.values() for event in model.episode.ongoing()]

    def _judge(self, step: Step, model: _Model) -> list[Event]:
        std = step.table[model.rows, STD]
        usable = (step.table[model.rows, COUNT] > 0) & np.isfinite(std)
        if usable.sum() < 2:
            return []
        model.seen += 1
        layers = [layer for layer, keep in zip(model.layers, usable.tolist(), strict=True) if keep]
        how, at, details = self._profile(std[usable])
        if how is not None and not model.episode.active:
            model.episode.layer = layers[at]
            model.episode.site = f"activation/{layers[at]}"
        details["profile"] = dict(zip(layers[:PROFILE], std[usable].tolist(), strict=False))
        details["threshold"] = self.thresholds.lost if how == "lost" else self.thresholds.ratio
        return model.episode.observe(
            step.index, how is not None, how is None, lambda: (0.85 if how == "lost" else 0.8, details)
        )

    def _profile(self, std: Floats) -> tuple[str | None, int, dict[str, Any]]:
        """Return the kind of fault ("lost", "grow", "shrink", None if there is none), the index of its first layer, and
        the details. ``std`` has the shape (layers,).
        """
        t = self.thresholds
        first = float(std[0])
        details: dict[str, Any] = {"first_std": first, "last_std": float(std[-1]), "layers": len(std)}
        # A lost signal is judged first: with zeros in the profile there is no logarithm for a trend.
        gone = std <= t.lost * first
        tail = len(std) - int(np.argmin(gone[::-1])) if not gone.all() else 0
        if gone[-1] and len(std) - tail >= 2:
            return "lost", tail, {**details, "how": "lost"}
        if len(std) < t.layers or not (std > 0).all():
            return None, 0, details
        log = np.log(std)
        span = float(log[-1] - log[0])
        if abs(span) < np.log(t.ratio):
            return None, 0, details
        trend = float(np.corrcoef(np.arange(len(log)), log)[0, 1])
        if abs(trend) < t.trend or (trend > 0) != (span > 0):
            return None, 0, details
        at = int(np.argmax(np.abs(log - log[0]) > np.log(10.0)))
        details |= {"how": "grow" if span > 0 else "shrink", "trend": trend, "ratio": float(np.exp(span))}
        details["gain"] = float(np.exp(span / (len(log) - 1)))
        return details["how"], at, details
