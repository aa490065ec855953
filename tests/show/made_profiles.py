"""Records with hand-made facts of a profile: of a few layers, of hundreds, with long names, and with parts missing."""

from __future__ import annotations

import numpy as np
from tests.explain.run_builder import Build

from neuraldbg.nouns import Diagnosis

HEALTHY = Diagnosis("healthy", "no fault was found")
MB = 2**20
"""Bytes of a MiB."""


def timing(layers=("fc1", "act1", "fc2"), **changes):
    """The value of a TIMING fact: layer i takes i + 1 ms forward and twice that backward."""
    timed = [
        {
            "layer": path,
            "calls": 1,
            "forward_s": (i + 1) * 1e-3,
            "own_forward_s": (i + 1) * 1e-3,
            "backward_s": (i + 1) * 2e-3,
            "own_backward_s": (i + 1) * 2e-3,
            "flops": 1e6 * (i + 1),
            "backward_flops": 2e6 * (i + 1),
            "inputs": ["float32[32, 64]"],
            "outputs": ["float32[32, 64]"],
        }
        for i, path in enumerate(layers)
    ]
    forward = sum(layer["own_forward_s"] for layer in timed)
    value = {
        "steps": 4,
        "first": 3,
        "last": 40,
        "clock": "cpu",
        "step_s": 5 * forward,
        "data_s": 1.5 * forward,
        "forward_s": forward,
        "backward_s": 2 * forward,
        "optimizer_s": 0.25 * forward,
        "other_s": 0.25 * forward,
        "usual_s": 4.9 * forward,
        "flops": 3e6 * sum(range(1, len(timed) + 1)),
        "machine_flops": 5e10,
        "machine": "cpu, float32, 512",
        "workers": 0,
        "layers": timed,
    }
    return {**value, **changes}


def footprint(layers=("fc1", "act1", "fc2"), **changes):
    """The value of a FOOTPRINT fact: layer i holds i + 1 MB of parameters; an activation layer holds outputs only."""
    held = [
        {
            "layer": path,
            "parameters": 0 if "act" in path else int((i + 1) * MB),
            "gradients": 0 if "act" in path else int((i + 1) * MB),
            "optimizer": 0 if "act" in path else int(2 * (i + 1) * MB),
            "activations": int(0.5 * (i + 1) * MB),
            "peak": int((10 + i / len(layers)) * MB),
            "backward_peak": int((20 - i / len(layers)) * MB),
        }
        for i, path in enumerate(layers)
    ]
    sums = {part: sum(one[part] for one in held) for part in ("parameters", "gradients", "optimizer", "activations")}
    value = {
        "step": 7,
        "method": "tensors of the step",
        "peak": int(21 * MB),
        "peak_at": f"backward of '{layers[0]}'",
        "device_total": int(1000 * MB),
        **sums,
        "layers": held,
    }
    return {**value, **changes}


def growth(**changes):
    """The value of a GROWTH fact: a list of losses that keep their graphs, and a buffer without a known line."""
    survivors = [
        {
            "type": "Tensor with its graph",
            "shape": [],
            "dtype": "float32",
            "per_step": 1.0,
            "bytes_per_step": 1.5 * MB,
            "alive": 120,
            "with_graph": True,
            "made": ["train.py", 31, "loss = criterion(model(x), y)"],
            "kept": ["train.py", 35, "history.append(loss)"],
            "holder": "history",
        },
        {"type": "Tensor", "shape": [32, 10], "dtype": "float32", "per_step": 2.0, "bytes_per_step": 2560.0,
         "alive": 240},
    ]  # fmt: skip
    value = {
        "first": 0,
        "last": 120,
        "counts": 8,
        "resident_per_step": 1.6 * MB,
        "device_per_step": None,
        "survivors": survivors,
    }
    return {**value, **changes}


def profiled(layers=("fc1", "act1", "fc2"), *, steps=60, parts=("timing", "footprint", "growth")):
    """A record of a healthy run with facts of a profile. ``fc1`` and the like are the layers that the run has."""
    build = Build(steps=steps)
    for path in layers:
        if path not in {layer.path for layer in build.layers}:
            build.layer(path, "Linear", ("weight",), in_features=64, out_features=64)
    if "timing" in parts:
        build.fact("timing", 40, **timing(layers))
    if "footprint" in parts:
        build.fact("footprint", 7, **footprint(layers))
    if "growth" in parts:
        build.fact("growth", 50, **growth())
        build.scalar("resident", 300 * MB + 1.6 * MB * np.arange(steps))
        build.scalar("device_memory", 20 * MB)
    return build.build()


def deep(count=300):
    """Paths of layers as deep models have them, alike at both ends."""
    parts = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
    return tuple(f"transformer.h.{i // 6}.{parts[i % 6]}" for i in range(count))
