"""The clocks, as Python gave them before the program ran.

A program may put functions of its own in the place of ``time.perf_counter`` (a test that freezes time, a simulation):
they would be called by us, which it sees, and what they say would be nonsense here. So nothing of ours that runs in a
program's process calls a function of ``time`` by its name in that module; ``neuraldbg run`` imports this one first.
"""

from __future__ import annotations

import time

now = time.time
"""Seconds since 1970."""
monotonic = time.monotonic
perf_counter = time.perf_counter
thread_time = time.thread_time
sleep = time.sleep
