"""Fit the map from evidence to probability: answers enter, the text of ``calibration.json`` leaves.

A finding of a cause in a run is one observation: its evidence, its tier, its cause, and whether that cause is true of
the run. The fit is the most likely logistic map under normal priors: slope around 1, each tier's prior around what
reasoning had set, each cause's offset around 0, so that a cause that was seen twice moves by little. It is plain
Newton iteration; nothing is drawn at random, so the same answers give the same file.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain import Tier
from neuraldbg.explain.verdict.calibration import FILE

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FIT_TASKS = frozenset({
    # scripts
    "accumulate", "digits_cnn", "house", "mean_teacher", "multitask", "policy", "rows_lstm", "vae",
    # functions, by kind of model
    "contrastive", "gan", "lstm", "mlp", "reinforce", "transformer",
})  # fmt: skip
"""Base tasks that numbers are fitted on; all others are held out, and so is the last seed of these."""
MOST = 7.0
"""Evidence beyond this counts no further: 5 is as good as proof."""
SPREAD = {"slope": 0.2, "prior": 0.7, "offset": 0.7}
"""Standard deviations of the normal priors: the ridge. An offset of 0.7 is a factor of two in the odds."""
START = {"certain": -2.5, "specific": -3.0, "statistical": -3.0, "palliative": -2.0}
"""What reasoning had set for each tier before there was anything to fit on: the centre of its prior, and its upper end.
A corpus holds far more faults than the world does, and a false alarm costs more than silence: weak evidence may become
weaker by fitting, not stronger."""
CERTAIN = 0.98
"""No confidence exceeds this: a corpus of this size cannot show more."""
SURE = 0.8
"""A tier's cap is judged on its findings above this probability."""
POOLED = 10
"""Findings' worth of what all tiers together show, added to each tier's own."""


@dataclass(frozen=True)
class Observation:
    """One finding of one run."""

    tier: str
    cause: str
    evidence: float
    taken: float
    """Evidence that another cause explains."""
    right: bool

    @property
    def score(self) -> float:
        return min(MOST, self.evidence) - self.taken


def fit(observations: list[Observation]) -> dict[str, Any]:
    """Return slope, prior, offset and cap."""
    tiers, causes = [tier.name.lower() for tier in Tier], sorted({o.cause for o in observations})
    columns = ["slope", *tiers, *causes]
    x = np.zeros((len(observations), len(columns)))
    for row, one in enumerate(observations):
        x[row, 0] = one.score
        x[row, columns.index(one.tier)] = 1
        x[row, columns.index(one.cause)] = 1
    y = np.array([one.right for one in observations], dtype=np.float64)
    centre = np.array([1.0, *(START[tier] for tier in tiers), *(0.0 for _ in causes)])
    spread = np.array([SPREAD["slope"], *(SPREAD["prior"] for _ in tiers), *(SPREAD["offset"] for _ in causes)])
    most = np.array([np.inf, *(START[tier] for tier in tiers), *(np.inf for _ in causes)])
    theta = _newton(x, y, centre, spread**-2, most)
    p = _sigmoid(x @ theta)
    named = dict(zip(columns, (round(float(value), 3) for value in theta), strict=True))
    return {
        "slope": max(0.1, named["slope"]),
        "most": MOST,
        "prior": {tier: named[tier] for tier in tiers},
        "offset": {cause: named[cause] for cause in causes},
        "cap": {tier: _cap(p, y, x[:, 1 + k] > 0) for k, tier in enumerate(tiers)},
    }


def _newton(x: Floats, y: Floats, centre: Floats, precision: Floats, most: Floats) -> Floats:
    """Return the maximum a posteriori of a logistic regression with independent normal priors and upper ends."""
    theta = centre.copy()
    for _ in range(100):
        p = _sigmoid(x @ theta)
        gradient = x.T @ (p - y) + precision * (theta - centre)
        hessian = (x.T * (p * (1 - p))) @ x + np.diag(precision)
        # What lies at its upper end and would go beyond is held there.
        free = (theta < most) | (gradient > 0)
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-9))
        theta = np.minimum(theta - step, most)
        if np.abs(step).max() < 1e-8:
            break
    return theta


def _sigmoid(z: Floats) -> Floats:
    result: Floats = 1 / (1 + np.exp(-np.clip(z, -50, 50)))
    return result


def _cap(p: Floats, y: Floats, mine: npt.NDArray[np.bool_]) -> float:
    """Return what a tier's sure findings support, drawn towards what those of all tiers do where there are few."""
    sure = p >= SURE
    overall = (float(y[sure].sum()) + 1) / (int(sure.sum()) + 2)
    right, count = float(y[sure & mine].sum()), int((sure & mine).sum())
    return round(float(np.clip((right + POOLED * overall) / (count + POOLED), 0.5, CERTAIN)), 3)


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S607


def write(numbers: dict[str, Any], counts: dict[str, object], command: str, root: Path) -> Path:
    """Write the data file of the package and return its path."""
    commit = _git(root, "rev-parse", "--short", "HEAD")
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        commit += ", with what was not committed yet"
    body = {
        "schema": "neuraldbg.calibration/1",
        "about": {
            "model": "probability = sigmoid(slope * score + prior[tier] + offset[cause]), at most cap[tier]; "
            "score = min(evidence, most) - what another cause explains",
            "slope": "log-odds for each unit of evidence",
            "most": "evidence beyond this counts no further",
            "prior": "log-odds of each tier before any evidence",
            "offset": "log-odds by which a cause differs from its tier; a cause that was not seen in fitting has none",
            "cap": "largest probability that a tier may claim: the share of its findings above "
            f"{SURE} that was right, with {POOLED} findings' worth of what all tiers show; never above {CERTAIN}",
        },
        "provenance": {
            "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
            "command": command,
            "commit": commit,
            "ridge": f"standard deviations of the normal priors: {SPREAD}",
            "fit_tasks": sorted(FIT_TASKS),
            **counts,
        },
        **numbers,
    }
    path = root / "src" / "neuraldbg" / "explain" / "verdict" / FILE
    path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return path
