"""`python -m neural`: the same as the command `neural`."""

import sys

from neural.cli import main

if __name__ == "__main__":
    sys.exit(main())
