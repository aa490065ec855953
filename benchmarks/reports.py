"""Faults of strangers: trainings rebuilt from public reports, each as its own script under `neuraldbg run`.

    python benchmarks/reports.py [--only PATTERN] [--out FOLDER] [--cached]

`corpus/` holds scripts in the style of the report, the fix of each, some healthy ones of unusual style, and
`goldens.json` with the cause that the report came to and its address. A mended script is written into the folder before
it runs. They were written in four sets, without a look at the rules; after the first run of each, rules were mended for
what it had shown. A fault is right
when the first hypothesis is one of the accepted causes, with a confidence of at least 0.5; of a layer one name must
contain the other. On a mended or healthy script a verdict of `suspect` or `failing` is an alarm.
With `--cached` the diagnoses of an earlier run in the same folder are graded again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.report_scripts import GOLDENS, script

NEAR = 2
SURE = 0.5
SECONDS = 300


def run(name: str, folder: Path) -> None:
    """Run one script under the tool, with one thread."""
    path = script(name, folder / "mended")
    words = [sys.executable, "-m", "neuraldbg", "run", "-q", "-o", str(folder / name), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False)


def grade(golden: dict[str, Any], diagnosis: dict[str, Any]) -> dict[str, bool]:
    """Compare a diagnosis with a golden; what the golden leaves open is left out."""
    hypotheses = diagnosis["hypotheses"]
    nothing: dict[str, Any] = {"cause": "", "confidence": 0.0, "layer": None, "step": None}
    top: dict[str, Any] = hypotheses[0] if hypotheses else nothing
    if not golden["cause"]:
        return {"silent": diagnosis["verdict"] not in ("suspect", "failing")}
    found = {
        "cause": top["cause"] in golden["cause"] and top["confidence"] >= SURE,
        "among three": any(h["cause"] in golden["cause"] for h in hypotheses[:3]),
    }
    if golden["layer"]:
        said = top["layer"] or ""
        found["layer"] = bool(said) and (golden["layer"] in said or said in golden["layer"])
    if golden["step"] is not None:
        found["step"] = top["step"] is not None and abs(top["step"] - golden["step"]) <= NEAR
    return found


def said(diagnosis: dict[str, Any]) -> str:
    told = [f"{h['cause']} {h['confidence']:.2f}" for h in diagnosis["hypotheses"][:3]]
    return f"{diagnosis['verdict']}: {', '.join(told)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression on names of scripts")
    parser.add_argument("--out", type=Path, default=Path("neuraldbg-runs/reports"))
    parser.add_argument("--cached", action="store_true")
    wanted = parser.parse_args()
    folder = wanted.out.absolute()
    (folder / "mended").mkdir(parents=True, exist_ok=True)
    chosen = sorted(name for name in GOLDENS if re.search(wanted.only, name))
    if not wanted.cached:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda name: run(Path(name).stem, folder), chosen))
    right, known = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    wrong = Table("script", "true cause", "said", "wrong")
    for name in chosen:
        diagnosis = json.loads((folder / Path(name).stem / "diagnosis.json").read_text(encoding="utf-8"))
        found = grade(GOLDENS[name], diagnosis)
        which = GOLDENS[name]["set"]
        known.update((which, key) for key in found)
        right.update((which, key) for key, good in found.items() if good)
        if not all(found.values()):
            bad = ", ".join(key for key, good in found.items() if not good)
            wrong.add_row(name, " or ".join(GOLDENS[name]["cause"]) or "-", said(diagnosis), bad)
    console = Console(width=160 if not sys.stdout.isatty() else None)
    console.print(wrong)
    for which in sorted({number for number, _ in known}):
        parts = [f"{key} {right[number, key]}/{count}" for (number, key), count in known.items() if number == which]
        console.print(f"set {which}: {'  '.join(parts)}")


if __name__ == "__main__":
    main()
