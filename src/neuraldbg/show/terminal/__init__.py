"""Diagnosis and views as text: read on any terminal of at least 40 columns, without colour, and in ASCII."""

import random
import sys

if "rich.style" not in sys.modules:  # it draws a number as it is imported, and the program's next ones are its own
    _state = random.getstate()
    import rich.style  # noqa: F401

    random.setstate(_state)
