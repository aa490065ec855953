"""What watching costs on a GPU, and whether what it reads there is right.

    python benchmarks/device.py [--rounds 8] [--steps 20] [--modes eager,compiled] [--weights float32]
                                [--compiled auto] [--json FILE]
    python benchmarks/device.py --smoke     # no GPU: a tiny model on the CPU; checks this program, measures nothing

Three parts. Correctness: each statistic of tensors of all dtypes against float64 on the CPU. Launches: what one call
costs the program's thread and the device. Overhead: a GPT of 124 million parameters (GPT-2 small), trained in bf16
(autocast; with `--weights bfloat16` all of it), eager and compiled: bare, under the default budget, without a budget
(`overhead=None`), and bare again, which says what differences mean nothing. Each of the four is a process of its own
that lives through all rounds, with the tool attached from the first step to the last; they train in turns, in an order
that rotates. A block of steps is timed as a whole, and the device is waited for at its ends only.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from models import GPT
from rich.console import Console
from rich.table import Table

from neuraldbg import NeuralDbg
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device.async_copy import Sent
from neuraldbg.capture.statistics.device.table import DeviceTable, why_torch
from neuraldbg.capture.statistics.device.tensor_group import TensorGroup

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("bare", "default", "no budget", "bare again")
WARM_UP = 30
"""Steps before the first round: compilation, the allocator's growth, and what a session reads at its beginning."""
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Size:
    """How large the model and its batch are."""

    vocabulary: int = 50_304
    time: int = 1024
    width: int = 768
    layers: int = 12
    batch: int = 8


TINY = Size(vocabulary=64, time=16, width=64, layers=1, batch=2)


def device_of(options: argparse.Namespace) -> torch.device:
    return torch.device("cpu" if options.smoke else "cuda")


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ---------------------------------------------------------------- correctness


def correctness(device: torch.device, longest: int) -> Table:
    """Compare every statistic with float64 on the CPU."""
    out = Table(title="Against float64 on the CPU (largest relative error; counts and extremes must be equal)")
    for head in ("dtype", "elements", "cap", "sum", "squares", "counts and extremes"):
        out.add_column(head, justify="right")
    for dtype in DTYPES:
        for numel in (1000, longest):
            for cap in (4096, 0):
                x = (torch.randn(numel, device=device) * 30).to(dtype)
                x[:: numel // 7], x[3 :: numel // 5], x[5 :: numel // 3] = 0.0, float("nan"), float("inf")
                out.add_row(str(dtype).removeprefix("torch."), f"{numel:,}", str(cap or "all"), *compared(x, cap))
    return out


def compared(x: torch.Tensor, cap: int) -> tuple[str, str, str]:
    table = DeviceTable(x.device, 1)
    table.observe(x, 0, cap)
    (rows,) = Sent([table.table]).read()
    values = operation.sample(x, cap or x.numel()).cpu().double().numpy()
    finite = values[np.isfinite(values)]
    size = np.abs(finite)
    exact = {
        operation.TOTAL: x.numel(),
        operation.COUNT: values.size,
        operation.NONFINITE: values.size - finite.size,
        operation.MIN: finite.min(),
        operation.MAX: finite.max(),
        operation.ZEROS: (finite == 0).sum(),
        operation.UNDER: ((size > 0) & (size <= operation.HALF_UNDER)).sum(),
        operation.OVER: (size >= operation.HALF_OVER).sum(),
    }
    squares = math.fsum(finite**2)
    errors = (
        abs(rows[0, operation.SUM] - math.fsum(finite))
        / math.sqrt(squares * finite.size),  # relative to what is summed
        abs(rows[0, operation.SQUARES] - squares) / squares,
    )
    equal = all(rows[0, column] == value for column, value in exact.items())
    return f"{errors[0]:.1e}", f"{errors[1]:.1e}", "equal" if equal else "[red]DIFFERENT[/red]"


# ---------------------------------------------------------------- launches


def launches(device: torch.device, numel: int, times: int) -> Table:
    """Time single calls: of the thread that makes them, and of the device that carries them out."""
    out = Table(title="What one call costs")
    for head in ("call", "thread us", "device us"):
        out.add_column(head, justify="left" if head == "call" else "right")
    x = torch.randn(numel, device=device).to(torch.bfloat16)
    sizes = [min(n, numel) for n in (768, 3072, 589_824, 2_359_296)]  # as in a GPT of this size
    grads = [torch.randn(n, device=device).to(torch.bfloat16) for n in sizes for _ in range(37)]
    table, plain = DeviceTable(device, 1024), DeviceTable(device, 1024, "torch")
    some, every = (TensorGroup(table, grads, range(len(grads)), [cap] * len(grads)) for cap in (4096, 0))
    sent: list[Sent] = []

    def send() -> None:
        sent.append(Sent([table.table[:512]]))
        table.clear(512)
        if sent[0].arrived():
            sent.pop(0).read()

    calls: dict[str, Callable[[], Any]] = {
        "observe, cap 4,096": lambda: table.observe(x, 0, 4096),
        f"observe, all of {numel:,}": lambda: table.observe(x, 0, 0),
        "the same by torch, cap 4,096": lambda: plain.observe(x, 0, 4096),
        f"many: {len(grads)} tensors, cap 4,096": lambda: some.observe(grads),
        f"many: {len(grads)} tensors, all": lambda: every.observe(grads),
        "send and take": send,
    }
    for name, call in calls.items():
        out.add_row(name, *(f"{1e6 * seconds:.1f}" for seconds in timed_call(call, device, times)))
    return out


def timed_call(call: Callable[[], Any], device: torch.device, times: int) -> tuple[float, float]:
    """Return the seconds of the thread and those until the device is done, for one call of many in a row."""
    for _ in range(10):
        call()
    wait(device)
    begin = time.perf_counter()
    for _ in range(times):
        call()
    made = time.perf_counter() - begin
    wait(device)
    return made / times, (time.perf_counter() - begin) / times


# ---------------------------------------------------------------- overhead


class Training:
    """A GPT that is trained on random tokens, all on the device: a step's time does not depend on their values."""

    def __init__(self, options: argparse.Namespace, mode: str) -> None:
        size = TINY if options.smoke else Size()
        self.device, self.size = device_of(options), size
        torch.manual_seed(0)
        self.model = GPT(size.vocabulary, size.time, size.width, size.layers)
        self.model.to(self.device, getattr(torch, options.weights))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=self.device.type == "cuda")
        self.call: Callable[..., Any] = torch.compile(self.model) if mode == "compiled" else self.model
        self.tokens = torch.randint(size.vocabulary, (options.batch or size.batch, size.time + 1), device=self.device)

    def block(self, steps: int) -> float:
        """Train some steps; returns the seconds of one."""
        wait(self.device)
        begin = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(self.device.type, torch.bfloat16):
                logits = self.call(self.tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, -2), self.tokens[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        wait(self.device)
        return (time.perf_counter() - begin) / steps


def work(options: argparse.Namespace) -> None:
    """Be one of the processes: a block for each line that comes in, its time and what was seen as a line out."""
    training = Training(options, options.modes)
    with tempfile.TemporaryDirectory() as folder:
        dbg = None
        if not options.worker.startswith("bare"):
            model, optimizer = training.model, training.optimizer
            settings = {"capture": {"compiled": options.compiled}}
            if options.worker == "default":
                dbg = NeuralDbg(model, optimizer, out=folder, settings=settings)
            else:
                dbg = NeuralDbg(model, optimizer, out=folder, settings=settings, overhead=None)
            dbg.start()
        try:
            training.block(2 if options.smoke else WARM_UP)
            print(json.dumps({"parameters": sum(p.numel() for p in training.model.parameters())}), flush=True)
            for line in sys.stdin:
                print(json.dumps({"seconds": training.block(int(line))}), flush=True)
        finally:
            if dbg is not None:
                dbg.stop()


def overhead(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Let the four processes train in turns. Returns the seconds of a step by kind and round."""
    command = [sys.executable, __file__, "--modes", mode, "--weights", options.weights, "--compiled", options.compiled]
    command += ["--smoke"] * options.smoke
    command += ["--batch", str(options.batch)] if options.batch else []
    workers = {
        kind: subprocess.Popen([*command, "--worker", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for kind in KINDS
    }
    try:
        parameters = {answer(worker)["parameters"] for worker in workers.values()}.pop()
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(options.rounds):
            shift = number % len(KINDS)
            for kind in KINDS[shift:] + KINDS[:shift]:
                seconds[kind].append(answer(workers[kind], options.steps)["seconds"])
    finally:
        for worker in workers.values():
            worker.communicate()  # closes their input: they stop
    return {"mode": mode, "parameters": parameters, "seconds": seconds}


def answer(worker: subprocess.Popen[str], steps: int | None = None) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    if steps is not None:
        worker.stdin.write(f"{steps}\n")
        worker.stdin.flush()
    for line in worker.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise SystemExit("a process of the benchmark failed: see above")


def drawn(results: list[dict[str, Any]]) -> Table:
    out = Table(title="What watching costs (ratios to bare, paired by round: median, and quartiles)")
    for head in ("mode", "parameters", "kind", "ms a step", "ratio", "range"):
        out.add_column(head, justify="right")
    for result in results:
        bare = result["seconds"]["bare"]
        for kind, seconds in result["seconds"].items():
            ratios = [a / b for a, b in zip(seconds, bare, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            out.add_row(
                result["mode"],
                f"{result['parameters']:,}",
                kind,
                f"{1000 * statistics.median(seconds):.2f}",
                f"{middle:.4f}",
                f"{low:.4f}-{high:.4f}",
            )
    return out


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="of one block")
    parser.add_argument("--modes", default="eager,compiled", help="a comma between names; default: %(default)s")
    parser.add_argument("--batch", type=int, help="default: 8, about 14 GB for each of the four processes")
    parser.add_argument("--weights", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compiled", choices=("auto", "observe"), default="auto", help="the setting of that name")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if not options.smoke and not torch.cuda.is_available():
        raise SystemExit("There is no GPU here: nothing was measured. `--smoke` checks this program on the CPU.")
    if options.worker:
        work(options)
        return
    device, console = device_of(options), Console()
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU: these are no measurements"
    console.print(f"torch {torch.__version__} on {where}; statistics by {why_torch(device) or 'Triton'}")
    console.print(correctness(device, 10_000 if options.smoke else 50_000_000))
    console.print(launches(device, *((10_000, 3) if options.smoke else (50_000_000, 200))))
    results = []
    for mode in options.modes.split(","):
        results.append(overhead(options, mode))
        console.print(drawn(results[-1:]))
    if options.json:
        options.json.write_text(json.dumps({"device": where, "torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
