"""Check an installed wheel: it runs the demo, names its cause, and reads with the code that is expected of it.

    python check_wheel.py native              the native kernel
    python check_wheel.py "torch operators"   a wheel without native parts

The package must be the installed one: this runs in a folder of its own, from a copy of the example.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def neuraldbg(folder: str, *arguments: str) -> str:
    """Run one command of the tool; return what it printed. SystemExit if it failed."""
    command = [sys.executable, "-X", "utf8", "-m", "neuraldbg", *arguments]  # Windows has another encoding for pipes
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S603 (ours)
    for printed in (done.stdout, done.stderr):
        print(printed.encode("ascii", "replace").decode())  # noqa: T201 (the log of the workflow)
    if done.returncode:
        sys.exit(f"neuraldbg {' '.join(arguments)} ended with status {done.returncode}")
    return done.stdout


def main(expected: str) -> None:
    """Run the demo and compare."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "doomed_digits.py", folder)
        found = neuraldbg(folder, "doctor")
        if f"on the CPU {expected}" not in found:
            sys.exit(f"CPU tensors are not read by {expected}")
        neuraldbg(folder, "run", "-o", "saved", "doomed_digits.py")
        said = json.loads(Path(folder, "saved", "diagnosis.json").read_text(encoding="utf-8"))
        first = said["hypotheses"][0]["cause"] if said["hypotheses"] else None
        if (said["verdict"], first) != ("failing", "lr_too_high"):
            sys.exit(f"the demo is {said['verdict']}, its first cause {first}")
        neuraldbg(folder, "explain", "saved")


if __name__ == "__main__":
    main(*sys.argv[1:])
