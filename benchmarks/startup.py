"""What a start costs: importing, attaching to a large model, and the command line. Each in fresh processes, medians.

    python benchmarks/startup.py [--quick] [--json FILE]

Commands that are compared take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPEATS = 7
CLOCKED = "import time; {}; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
IMPORTS = {
    "import torch": ("pass", "import torch"),
    "import neuraldbg": ("import torch", "import neuraldbg"),
    "from neuraldbg import NeuralDbg": ("import torch", "from neuraldbg import NeuralDbg"),
}
"""What is clocked, after what: the difference of two processes would drown in the noise of importing torch."""
ATTACH = """
import time, torch
from torch import nn
from neuraldbg import NeuralDbg

model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(999)))
assert sum(1 for _ in model.modules()) == 1000
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began = time.perf_counter()
NeuralDbg(model, optimizer).start()
print(time.perf_counter() - began, flush=True)
import os
os._exit(0)
"""


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As a user has it: modules are compiled once, not at each start."""


def clocked(code: str) -> float:
    """Run Python code that prints seconds, in a fresh process."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=ENVIRONMENT)
    return float(done.stdout.split()[-1])


def help_s() -> float:
    """Return the seconds that the help takes, as a shell would clock it."""
    command = [str(Path(sys.executable).parent / "neuraldbg"), "--help"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - began


def empty_s() -> float:
    """Return the seconds of a Python that does nothing, in the same way."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True, env=ENVIRONMENT)
    return time.perf_counter() - began


def run(repeats: int = REPEATS) -> dict[str, float]:
    """Return milliseconds by what was started."""
    times: dict[str, list[float]] = {}
    for _ in range(repeats + 1):  # the first fills the caches of files
        for name, codes in IMPORTS.items():
            times.setdefault(name, []).append(clocked(CLOCKED.format(*codes)))
        times.setdefault("attach to 1,000 modules", []).append(clocked(ATTACH))
        times.setdefault("neuraldbg --help", []).append(help_s())
        times.setdefault("python -c ''", []).append(empty_s())
    return {name: 1000 * statistics.median(seconds[1:]) for name, seconds in times.items()}


def table(found: dict[str, float]) -> Table:
    """Draw the results."""
    out = Table("what", "ms")
    for name, milliseconds in found.items():
        out.add_row(name, f"{milliseconds:.1f}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    args = parser.parse_args()
    found = run(2 if args.quick else REPEATS)
    Console().print(table(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
