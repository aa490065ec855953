"""The cost of a session by hand: 10,000 inspected tensors, 1,000,000 gradients, and what is kept of them.

Prints the time of one record beside that of numpy's own mean, min and max of the same array, the memory of the process
on the way, and the seconds of ``stop``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg import debug_session
from neuraldbg.process_memory import resident_or_most

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS = 10
MIB = 2**20


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median seconds of a call."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--gradients", type=int, default=1_000_000)
    asked = parser.parse_args()
    values = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        session = debug_session(output_dir=Path(folder, "run"))
        plain = seconds(lambda: (values.mean(), values.min(), values.max()), 2000)
        inspected = seconds(lambda: session.tensor_inspector.inspect_tensor(values, "hidden", "layer0"), 2000)
        print(f"numpy mean, min, max   {1e6 * plain:8.1f} us")
        print(f"inspect_tensor         {1e6 * inspected:8.1f} us")
        for number in range(asked.tensors):
            session.tensor_inspector.inspect_tensor(values, f"tensor {number % 2000}", f"layer{number % 50}")
        print(f"{asked.tensors:,} tensors         {resident_or_most() / MIB:8.0f} MiB resident")
        began = time.perf_counter()
        for number in range(asked.gradients):
            session.gradient_debugger.record_gradient_flow(f"layer{number % LAYERS}.weight", values)
            if (number + 1) % max(1, asked.gradients // 5) == 0:
                took = 1e6 * (time.perf_counter() - began) / (number + 1)
                resident = resident_or_most() / MIB
                print(f"{number + 1:>10,} gradients  {took:8.1f} us each, {resident:8.0f} MiB resident")
        began = time.perf_counter()
        report = session.stop()
        print(f"stop                   {time.perf_counter() - began:8.2f} s, {report.run.steps:,} steps")
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.ndbg"))
        print(f"run file               {size / MIB:8.1f} MiB")


if __name__ == "__main__":
    main()
