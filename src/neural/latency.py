"""The time of `predict` of a compiled model, as a program of its own: `python -m neural.latency MODEL.py DATA.npz ...`.

It prints JSON: for each size of a batch the median time in seconds and its deciles. It runs the model's own file, and
takes torch from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM, LEAST, MOST = 3, 10, 200
"""Runs that are not counted, and counted ones at least and at most."""
LONG_S = 2.0
"""Time after which a batch size has had enough runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m neural.latency", description="Time the predictions of a model.")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--device", default=None)
    parser.add_argument("--batch", type=int, action="append", default=[])
    given = parser.parse_args(arguments)
    import numpy as np  # noqa: PLC0415 (after --help)

    module = _loaded(given.model)
    torch, device = module.torch, given.device or module.DEVICE
    torch.manual_seed(0)
    model = module.build_model().to(device)
    with np.load(given.data) as data:
        inputs, _ = module.tensors(data)
    wait = torch.cuda.synchronize if str(device).startswith("cuda") else _nothing
    found = []
    for size in dict.fromkeys(given.batch):
        rows = torch.arange(size) % len(inputs[0])
        batch = [each[rows].to(device) for each in inputs]
        times = measured(lambda: (module.predict(model, *batch), wait()))  # noqa: B023 (used at once)
        low, high = statistics.quantiles(times, n=10)[::8]
        found.append(
            {"batch": size, "runs": len(times), "median_s": statistics.median(times), "low_s": low, "high_s": high}
        )
    out = {"device": str(device), "threads": torch.get_num_threads(), "batches": found}
    sys.stdout.write(json.dumps(out) + "\n")


def measured(run: Callable[[], object]) -> list[float]:
    """Return the times of repeated runs, the first ones left out."""
    for _ in range(WARM):
        run()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() - begun < LONG_S):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def _nothing() -> None:
    pass


def _loaded(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("neural_measured_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
