"""A long run of a deep model, made up: what the faces are measured on.

    python benchmarks/longrun.py FOLDER [--layers 500] [--steps 100000]

Nothing is trained. A chain of Linear layers, each with its output, weight, gradient and update; as the governor has it,
the first 1,000 steps are full and then one in fifty. The loss falls, gradients fade with depth, and at one step one
layer's gradient is a thousand times its size: a spike that no face may lose.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, Edge, Event, Layer, Layout, Outcome, RunInfo, Site, Step, column
from neuraldbg.record import Recorder

KINDS = (("activation", ""), ("param_grad", "weight"), ("param", "weight"), ("update", "weight"))
FIRST, EVERY = 1_000, 50
WIDTH = 256


def layout_of(layers: int) -> Layout:
    """Return a chain: ``block000.fc`` and so on."""
    paths = [f"block{i:03d}.fc" for i in range(layers)]
    return Layout(
        layers=tuple(Layer(path, "Linear", "Deep", leaf=True, params=("weight",)) for path in paths),
        sites=tuple(Site(kind, path, 0, name, "float32") for kind, name in KINDS for path in paths),
        edges=tuple(Edge(a, b) for a, b in zip(paths, [*paths[1:], "loss"], strict=True)),
        called=frozenset(paths),
    )


def spike_of(layers: int, steps: int) -> tuple[int, int]:
    """Return the layer and the step of the spike: a full step late in the run."""
    return layers // 2, steps * 3 // 4 // EVERY * EVERY


def step_of(index: int, layers: int, steps: int, random: np.random.Generator) -> Step:
    """Make one step."""
    scalars = {
        "loss": 2.3 / (1 + index / 2000) + 0.05 * float(random.random()),
        "loss_nonfinite": 0.0,
        "lr": 0.1,
        "grad_norm": 1.0 + 0.2 * float(random.random()),
        "batch_size": 32.0,
        "backwards": 1.0,
        "forwards": 1.0,
        "duration": 0.0027,
        "overhead": 1e-5,
    }
    if index >= FIRST and index % EVERY:
        return Step(index, 0, index * 0.0027, np.zeros((0, len(STATS))), scalars)
    table = np.zeros((len(KINDS) * layers, len(STATS)))
    table[:, [column("total"), column("count")]] = WIDTH * WIDTH, 4096
    rms = np.repeat([1.0, 1e-3, 0.05, 1e-5], layers) * np.exp(0.1 * random.standard_normal(len(table)))
    rms[layers : 2 * layers] *= np.geomspace(0.01, 1.0, layers)
    where, when = spike_of(layers, steps)
    rms[layers + where] *= 1000.0 if index == when else 1.0
    table[:, column("rms")] = table[:, column("std")] = rms
    table[:, column("max")], table[:, column("min")] = 4 * rms, -4 * rms
    table[:layers, column("units")] = WIDTH
    table[:layers, column("dead")] = np.arange(layers) % 7
    return Step(index, 0, index * 0.0027, table, scalars)


def write(folder: Path, layers: int, steps: int, settings: RecordSettings | None = None) -> None:
    """Record the run into a folder."""
    random = np.random.default_rng(0)
    layout = layout_of(layers)
    where, when = spike_of(layers, steps)
    path = layout.layers[where].path
    spike = Event("gradient_spike", "gradient_health", when, when, path, f"param_grad/{path}.weight")
    info = RunInfo(script="deep.py", models=("Deep",), optimizers=("SGD",), outcome=Outcome("completed"))
    recorder = Recorder(folder, settings or RecordSettings(), info)
    for index in range(steps):
        events = [spike] if index == when else []
        recorder.put(step_of(index, layers, steps, random), layout, events)
        if index % 200 == 199:
            recorder.flush()
    assert recorder.problem is None, recorder.problem
    recorder.close()


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=500)
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    write(args.folder, args.layers, args.steps)
    print(f"wrote {args.folder}")


if __name__ == "__main__":
    main()
