"""The modules that Python had loaded before the command line: imported first by it, and by nothing else."""

from __future__ import annotations

import sys

LOADED = frozenset(sys.modules)
"""Their names."""
