"""The clock functions of Python, looked up before the program runs.

A program may replace ``time.perf_counter`` and others by functions of its own (a test that freezes time, a simulation):
it would notice our calls of them, and their results would be wrong for us. So no code of ours in a program's process
calls a function as an attribute of ``time``; ``neuraldbg run`` imports this module first.
"""

from __future__ import annotations

import time

now = time.time
"""Returns Unix time, in seconds."""
monotonic = time.monotonic
perf_counter = time.perf_counter
thread_time = time.thread_time
sleep = time.sleep
