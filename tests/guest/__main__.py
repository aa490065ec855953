"""``python -m tests.guest [PROGRAM...]``: runs programs of the suite (all, by part of their name, or any path)."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.guest.suite import Guests, Program, count, fast_leave, fast_mode, programs

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.guest.suite import Verdict


def main() -> int:
    """Run what is asked for and print what differs; status 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.guest", description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="part of topic/name, or the path of a script")
    parser.add_argument("--jobs", type=int, default=2, help="programs at once")
    parser.add_argument("--repeat", type=int, default=1, help="run all of it so many times")
    parser.add_argument("--fast", action="store_true", help="in one mode each, and no further than the exit handlers")
    parser.add_argument("--burn", action="store_true", help="keep both cores busy meanwhile")
    parser.add_argument("--keep", type=Path, help="leave outputs and run files in this folder")
    parser.add_argument("--times", action="store_true", help="say how long each took")
    parser.add_argument("--trace", action="store_true", help="leave a traceback of crashes and hangs (with --keep)")
    asked = parser.parse_args()
    paths = [Program(Path(name).resolve()) for name in asked.programs if Path(name).exists()]
    words = [name for name in asked.programs if not Path(name).exists()]
    chosen = paths + (programs(*words) if words or not paths else [])
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)] if asked.burn else []
    failed = False
    guests = Guests(asked.jobs, keep=asked.keep, trace=asked.trace)

    def begin(one: Program) -> Future[Verdict]:
        return guests.submit(one, [fast_mode(one)], fast_leave(one)) if asked.fast else guests.submit(one)

    try:
        for _ in range(asked.repeat):
            began = time.monotonic()
            verdicts = []
            for future in [begin(one) for one in chosen]:
                verdict = future.result()
                verdicts.append(verdict)
                if asked.times or verdict.differences:
                    spent = " ".join(f"{one.mode} {one.seconds:.2f} s ({one.cpu:.2f})" for one in verdict.outcomes)
                    print(f"{verdict.program.name}: {spent}")
                for text in verdict.differences[:12]:
                    print(f"    {text}")
                if len(verdict.differences) > 12:
                    print(f"    and {len(verdict.differences) - 12} more")
                sys.stdout.flush()
                if verdict.unsteady:
                    print(f"    not the same twice in {verdict.program.name}: {', '.join(verdict.unsteady)[:300]}")
            failed |= any(one.differences for one in verdicts)
            spent = sum(run.cpu for one in verdicts for run in one.outcomes)
            print(f"{count(verdicts)} ({time.monotonic() - began:.0f} s, {spent:.0f} s of CPU)")
    finally:
        guests.close()
        for one in burning:
            one.kill()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
