"""Print a script of the corpus: ``python -m tests.faults.show NAME > x.py; neuraldbg run x.py``.

Without a name, list all scripts: name, task or fault, golden. ``NAME_fixed`` is the mended script of a fault.
"""

from __future__ import annotations

import sys

from tests.faults import edits, report_scripts


def main(words: list[str]) -> int:
    known = {**edits.every(), **report_scripts.every()}
    if not words:
        for one in known.values():
            print(f"{one.name:45} {one.task:14} {' or '.join(one.golden.every) or ' or '.join(one.golden.verdicts)}")
        return 0
    if words[0] not in known:
        print(f"no script is called {words[0]}; `python -m tests.faults.show` lists them", file=sys.stderr)
        return 2
    sys.stdout.write(known[words[0]].text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
