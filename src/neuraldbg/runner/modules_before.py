"""The modules that Python had loaded before the command line, which imports this module first of all."""

from __future__ import annotations

import sys

LOADED = frozenset(sys.modules)
"""Names of these modules."""
