"""Statistics over depth and layers: weights at the start, gradients, activations, units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.symptom import Symptoms
    from neuraldbg.nouns import Layer

    Floats = npt.NDArray[np.float64]

MATRIX_TYPES = (
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Bilinear",
)
"""Layers with a weight matrix whose initial scale sets the gain."""
NORM_WORDS = ("Norm",)
RECURRENT_TYPES = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
HEALTHY_STEPS = 5
"""Number of steps before the onset that are needed for a healthy gradient norm."""
FIRST = 10
"""Number of steps that count as the beginning."""


@dataclass(frozen=True)
class Weight:
    """The statistics of a weight matrix at its first recorded step."""

    layer: Layer
    rms: float
    fan_in: float
    gain: float
    """rms times the square root of fan_in: 1.41 for He, 1 for Glorot on square layers, 0.58 for torch's default."""
    moved: float
    """norm(update) / norm(weight) at the first recorded step; NaN if unknown."""
    normed: bool
    """True if a normalisation layer follows directly, which cancels the scale."""


@dataclass(frozen=True)
class Profile:
    """The profile of a statistic over depth: one number per layer, in data-flow order."""

    layers: tuple[str, ...]
    values: Floats

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def ratio(self) -> float:
        """The last value over the first: the gain through the whole depth; NaN with fewer than two layers."""
        if len(self) < 2 or self.values[0] <= 0:
            return float("nan")
        return float(self.values[-1] / self.values[0])

    @property
    def per_layer(self) -> float:
        """Geometric mean of the change from layer to layer; NaN if unknown."""
        ratio = self.ratio
        return float(ratio ** (1 / (len(self) - 1))) if ratio > 0 else float("nan")

    @property
    def monotone(self) -> float:
        """Share of the layer-to-layer changes that have the sign of the change over the whole depth."""
        if len(self) < 2:
            return 0.0
        change = np.diff(np.log(np.maximum(self.values, 1e-300)))
        return float(np.mean(np.sign(change) == np.sign(np.log(max(self.ratio, 1e-300)))))


def is_norm(layer: Layer) -> bool:
    """Return True if a layer is a normalisation layer, by the name of its type."""
    return any(word in layer.type for word in NORM_WORDS)


def weights(run: Symptoms) -> tuple[Weight, ...]:
    """Return the weight matrices at their first recorded step, in data-flow order."""
    found = []
    order = [layer for layer in run.ordered if layer.leaf]
    for index, layer in enumerate(order):
        if layer.type not in MATRIX_TYPES or "weight" not in layer.params:
            continue
        # A tied matrix has no site of its own: its site is that of the embedding.
        held = layer if run.layout.rows("param", layer.path, "weight") else _tied(run, layer)
        rows = run.layout.rows("param", held.path, "weight") if held is not None else ()
        if held is None or not rows:
            continue
        rms, total = run.run.series(rows[0], "rms").finite(), run.run.series(rows[0], "total").finite()
        # fan_in is what remains of the matrix's elements for each output.
        out = layer.settings.get("out_features") or layer.settings.get("out_channels")
        if not len(rms) or not len(total) or not isinstance(out, (int, float)) or not out:
            continue
        scale, fan_in = float(rms.values[0]), float(total.values[0]) / float(out)
        update = run.layout.rows("update", held.path, "weight")
        step = run.run.series(update[0], "rms").finite() if update else None
        moved = float(step.values[0]) / scale if step is not None and len(step) and scale > 0 else float("nan")
        following = order[index + 1] if index + 1 < len(order) else None
        normed = following is not None and is_norm(following)
        found.append(Weight(held, scale, fan_in, scale * float(np.sqrt(fan_in)), moved, normed))
    return tuple(found)


def _tied(run: Symptoms, layer: Layer) -> Layer | None:
    """Return the embedding whose matrix a layer shares: the matrix is recorded once, where it is registered first."""
    sizes = (layer.settings.get("out_features"), layer.settings.get("in_features"))
    tables = [one for one in run.layout.layers if one.type == "Embedding" and one.model == layer.model]
    fitting = [
        one for one in tables if (one.settings.get("num_embeddings"), one.settings.get("embedding_dim")) == sizes
    ]
    return fitting[0] if len(fitting) == 1 else None


def gradient_profile(run: Symptoms, kind: str = "output_grad", stat: str = "rms") -> Profile:
    """Return the gradient's size for each layer with weights, median over the first recorded steps.

    ``output_grad`` is the gradient of each layer's output, per element; ``param_grad`` replaces it where it was not
    read.
    """
    found: dict[str, float] = {}
    # Where the first updates did harm, only the first step still shows the model as it was built.
    steps = 1 if run.loss.early_rise > 1.5 or (run.onset is not None and run.trouble.broke) else FIRST
    for layer in run.ordered:
        if layer.type not in MATRIX_TYPES + RECURRENT_TYPES:
            continue
        rows = run.layout.rows(kind, layer.path)
        if kind == "param_grad":
            rows = tuple(r for r in rows if "weight" in run.layout.sites[r].name)
        if rows:
            series = run.run.series(rows[0], stat).finite()
            if len(series):
                found[layer.path] = float(np.median(run.early(series, steps).values))
    found = _one_model(run, found)
    if len(found) < 2 and kind == "output_grad":
        return gradient_profile(run, "param_grad", stat)
    return Profile(tuple(found), np.asarray(list(found.values()), dtype=np.float64))


def _one_model(run: Symptoms, found: dict[str, float]) -> dict[str, float]:
    """Keep the layers of the model with most of them: gradients of two models make no profile over depth."""
    models = [run.layout.by_path[path].model for path in found]
    largest = max(dict.fromkeys(models), key=models.count, default=None)
    return {path: value for path, value in found.items() if run.layout.by_path[path].model == largest}


def activation_profile(run: Symptoms) -> Profile:
    """Return the activations' rms for each layer with weights at the first recorded step, before any update."""
    found: dict[str, float] = {}
    for layer in run.ordered:
        if layer.type not in MATRIX_TYPES:
            continue
        rows = run.layout.rows("activation", layer.path)
        series = run.run.series(rows[0], "rms") if rows else None
        if series is not None and len(series) and np.isfinite(series.values[0]):
            found[layer.path] = float(series.values[0])
    return Profile(tuple(found), np.asarray(list(found.values()), dtype=np.float64))


def saturated_share(run: Symptoms, row: int) -> tuple[Floats, Floats]:
    """Return steps and share (0 to 1) of saturated elements. Each reading counts for the unread steps after it as
    well.
    """
    end = run.origin.step - 1 if run.origin is not None else run.run.steps  # NaN is at no bound
    part, whole = (run.held(run.run.series(row, name).between(0, end)) for name in ("saturated", "count"))
    keep = (whole.values > 0) & np.isfinite(part.values)
    return part.steps[keep].astype(np.float64), part.values[keep] / whole.values[keep]


def healthy_norm(run: Symptoms) -> float:
    """Return the 90% quantile of the gradient norm before the onset, and no less than its median; NaN if no healthy
    steps are known. A reading counts for the unread steps after it: the first steps are read most closely, and have
    the largest gradients.
    """
    norm = run.scalar("grad_norm").finite()
    if run.onset is not None:
        norm = norm.between(0, run.onset - 1)
    if len(norm) < HEALTHY_STEPS:
        return float("nan")
    # If the norm grew before the onset, only its first steps were healthy.
    usual = float(np.median(norm.values[:HEALTHY_STEPS]))
    if not usual > 0:
        return float("nan")
    held = run.held(norm).values
    return max(min(float(np.quantile(held, 0.9)), 10 * usual), float(np.median(held)))
