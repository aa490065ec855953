"""``python -m neuraldbg`` is the command ``neuraldbg``."""

from __future__ import annotations

import sys

from neuraldbg.cli import main

if __name__ == "__main__":
    sys.exit(main())
