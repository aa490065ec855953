"""Stories of the causes in how graph, parameters and modes are wired: (fires, silent, layer, step, verdict)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.explain.run_builder import Build, flat

PLACE = ["train.py", 12, "x = self.fc2(x.detach())"]


def hidden(**changes: Any) -> Build:
    weights = [
        {
            "name": f"Net.layers[{i}].weight", "owner": f"Net.layers[{i}]", "layer": f"layers[{i}]", "shape": [64, 64],
            "attribute": "layers", "how": "list", "holder": "", "parameter": True, "lone": False, "feeds": ["fc3"],
            "seen": 6, "moved": False, "first": 0, **changes,
        }
        for i in range(2)
    ]  # fmt: skip
    return Build().fact("hidden", 32, weights=weights)


def hidden_judge() -> Build:
    """A fixed network of the loss, in a list of its own so that it is no part of the model."""
    return hidden(lone=True, feeds=["loss"])


def without_gradient(layer: str) -> Build:
    b = Build()
    for kind in ("param_grad", "update"):
        for name in ("weight", "bias"):
            b.stat(kind, layer, "count", 0, name=name)
    return b.params(no_grad=[f"{layer}.weight", f"{layer}.bias"])


def cut(layer: str = "fc1") -> dict[str, Any]:
    return {
        "model": "Net", "no_grad": {}, "reached": ["fc2", "fc3"], "unreached": [layer],
        "cut": {"after": layer, "before": "fc2", "how": "shared", "place": PLACE},
    }  # fmt: skip


def detached_graph() -> Build:
    b = without_gradient("fc1")
    for name in ("weight", "bias"):
        b.stat("param", "fc1", "rms", 0.17, name=name).stat("param", "fc1", "mean", 0.0, name=name)
    return b.fact("cuts", 4, **cut())


def cut_in_some_steps() -> Build:
    """A stop-gradient: the layer gets its gradient in other steps."""
    return Build().fact("cuts", 4, **cut())


def zero_gradient_path() -> Build:
    b = Build().loss(flat(60))
    for name in ("weight", "bias"):
        b.stat("param_grad", "fc1", "rms", 0.0, name=name)
    b.layers[1] = type(b.layers[1])("act1", "Hardtanh", "Net", True)
    return b


def dead_units_before() -> Build:
    """The same zeros behind a ReLU: its units may be dead."""
    b = Build()
    for name in ("weight", "bias"):
        b.stat("param_grad", "fc1", "rms", 0.0, name=name)
    return b


def ties(**changes: Any) -> Build:
    pair = {
        "a": "fc1.weight", "b": "fc3.weight", "transposed": False, "equal": False, "started_equal": True,
        "declared": "", "drifted": 0, "trained": [True, True], "distance": 0.2, "untied": "", **changes,
    }  # fmt: skip
    return Build().fact("ties", 32, pairs=[pair])


def copies(**changes: Any) -> Build:
    base = {
        "model": "ema", "names": ["ema"], "of": "Net", "kind": "copy", "evaluated": 4, "first": 10, "last": 40,
        "began_equal": True, "constant": True, "follows": False, "moved": True, "averaged": None, "stale_norms": [],
        "swapped": False, "lag": None, "written": 0, "refreshed": 0,
    }  # fmt: skip
    return Build().fact("copies", 32, **{**base, **changes})


def reference_model() -> Build:
    return copies(model="reference", names=["reference", "old_model"])


def evals(**changes: Any) -> Build:
    base = {
        "model": "Net", "bursts": 4, "train_bursts": 4, "eval_bursts": 0, "passes": 12, "longest": 3, "repeated": 0,
        "same": False, "steps": 60, "grad": False, "first": 15, "dropout": ["drop"], "norms": ["bn"],
    }  # fmt: skip
    return Build().fact("evaluation_modes", 32, **{**base, **changes}).scalar("evals", np.zeros(60))


def functions(**changes: Any) -> Build:
    base = {
        "name": "Swish", "layer": "fc2", "judged": True, "reason": "", "input": 0, "analytic": 0.4, "numeric": 1.3,
        "error": 0.69, "place": ["train.py", 5, "return Swish.apply(x)"],
    }  # fmt: skip
    return Build().fact("functions", 1, **{**base, **changes})


def straight_through() -> Build:
    return functions(judged=False, reason="it passes the gradient straight through, so that is meant", error=0.0)


WIRING: dict[str, tuple[Any, ...]] = {
    "unregistered_params": (hidden, hidden_judge, "layers[0]", 0, "suspect"),
    "detached_graph": (detached_graph, cut_in_some_steps, "fc1", 0, "suspect"),
    "zero_gradient_path": (zero_gradient_path, dead_units_before, "fc1", 0, "failing"),
    "tied_weights_broken": (ties, lambda: ties(trained=[True, False]), "fc3", 0, "suspect"),
    "ema_stale": (copies, reference_model, None, 10, "suspect"),
    "train_mode_in_eval": (evals, lambda: evals(eval_bursts=4, train_bursts=1), None, 15, "suspect"),
    "wrong_custom_backward": (functions, straight_through, None, 0, "suspect"),
}
