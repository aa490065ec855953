"""``python -m neuraldbg`` is the command ``neuraldbg``."""

from __future__ import annotations

import os
import sys

try:
    safe = getattr(sys.flags, "safe_path", sys.flags.isolated)  # with -P the first entry is one of PYTHONPATH
    if not safe and sys.path[0] == os.getcwd():  # noqa: PTH109 (pathlib would be looked for there)
        # Python puts the folder there that it is called in, whose modules are the program's and none of the command's.
        sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120
except OSError:  # the folder was deleted
    pass

from neuraldbg.cli import main

if __name__ == "__main__":
    sys.exit(main())
