"""How fast one tensor is read: the statistics kernel beside a plain read of as much memory, on one thread.

    python benchmarks/kernel.py [--quick] [--json FILE]

The limit is the fastest of several ways to read memory once and do next to nothing with it. Each number is the best of
many repeats: what else runs on the machine makes a read slower, never faster. Beside it stands what the same
statistics take with torch's operators, read whole.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SIZES = tuple(2**n for n in (10, 12, 14, 16, 18, 20, 22, 24, 26))
"""Elements: 4 KB to 256 MB of float32."""
LARGE = 2**28
"""Bytes of a tensor of the other formats: beyond any cache."""
REPEAT_S = 0.4


@dataclass(frozen=True)
class Speed:
    """Of one tensor."""

    dtype: str
    elements: int
    kernel_us: float
    torch_us: float
    """The same statistics with torch's operators."""
    limit_us: float
    limit_by: str
    copy_us: float
    """memcpy, which reads as much and writes it as well."""

    def gbs(self, microseconds: float) -> float:
        return self.elements * torch.empty(0, dtype=getattr(torch, self.dtype)).element_size() / microseconds / 1e3

    @property
    def share(self) -> float:
        """Of the limit that the kernel reaches."""
        return self.limit_us / self.kernel_us


def observe_call(x: Tensor) -> Callable[[], None]:
    """Return a call that reads a whole tensor into a row of the table, as the hooks call it."""
    table = torch.zeros(1, operation.WIDTH, dtype=torch.float64)
    rows = operation.rows_of(table)
    return lambda: operation.observe_cpu(x, rows, 0, x.numel())


def torch_call(x: Tensor) -> Callable[[], None]:
    """Return a call that reads a whole tensor with torch's operators."""
    table = torch.zeros(1, operation.WIDTH, dtype=torch.float64)
    return lambda: operation.observe_device(x, table, 0, x.numel())


def plain_reads(x: Tensor) -> dict[str, Callable[[], object]]:
    """Return ways to read as much memory as a tensor has, once. Each reads its own, or the next would find it in a
    cache that the tensor has no part in. Torch allocates it: numpy asks for huge pages, which only who asks may get.
    """
    size = x.numel() * x.element_size()
    whole, squared, largest, added, summed = (torch.ones(size, dtype=torch.uint8) for _ in range(5))
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes, memchr.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p
    flat = squared.view(torch.float32)
    return {
        "memchr": lambda: memchr(whole.data_ptr(), 0, size),
        "BLAS dot": lambda: torch.dot(flat, flat),
        "numpy max": functools.partial(np.maximum.reduce, largest.view(torch.float32).numpy()),
        "numpy sum": functools.partial(np.add.reduce, added.view(torch.float32).numpy()),
        "torch sum": summed.view(torch.float32).sum,
    }


def best_us(calls: dict[str, Callable[[], object]], seconds: float = REPEAT_S) -> dict[str, float]:
    """Return the microseconds of the fastest of many calls; the calls take turns, so that all meet the same machine."""
    many = {}
    for name, call in calls.items():
        call()
        began = time.perf_counter()
        call()
        # calls too short for a clock are timed many at once
        many[name] = max(1, int(50e-6 / max(time.perf_counter() - began, 1e-7)))
    best = dict.fromkeys(calls, float("inf"))
    until = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < until:
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(many[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - began) / many[name])
    return {name: 1e6 * took for name, took in best.items()}


def speed(dtype: torch.dtype, elements: int, seconds: float) -> Speed:
    """Measure one tensor of ordinary numbers."""
    x = torch.randn(elements, generator=torch.Generator().manual_seed(0)).to(dtype)
    copy = torch.empty_like(x)
    reads = plain_reads(x)
    ours = {"kernel": observe_call(x), "copy": lambda: copy.copy_(x)}
    took = best_us({**ours, **reads}, seconds)
    by = min(reads, key=took.__getitem__)
    whole = best_us({"torch": torch_call(x)}, seconds / 2)["torch"]
    return Speed(str(dtype).removeprefix("torch."), elements, took["kernel"], whole, took[by], by, took["copy"])


def run(seconds: float = REPEAT_S) -> list[Speed]:
    """Measure float32 over sizes, and the other formats at one size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = [speed(torch.float32, elements, seconds) for elements in SIZES]
        return found + [
            speed(dtype, LARGE // dtype.itemsize, seconds) for dtype in (torch.float64, torch.float16, torch.bfloat16)
        ]
    finally:
        torch.set_num_threads(threads)


def table(speeds: list[Speed]) -> Table:
    """Draw the results."""
    out = Table("dtype", "elements", "us", "GB/s", "plain read GB/s", "by", "share", "memcpy GB/s", "torch ops GB/s")
    for s in speeds:
        out.add_row(
            s.dtype, f"{s.elements:,}", f"{s.kernel_us:.2f}", f"{s.gbs(s.kernel_us):.1f}",
            f"{s.gbs(s.limit_us):.1f}", s.limit_by, f"{s.share:.0%}",
            f"{s.gbs(s.copy_us):.1f}", f"{s.gbs(s.torch_us):.2f}",
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    args = parser.parse_args()
    speeds = run(0.05 if args.quick else REPEAT_S)
    Console(width=140).print(table(speeds))
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in speeds], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
