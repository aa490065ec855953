"""Threads of packages that draw nothing do not keep experiments from being made; the program's own do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from neuraldbg.capture.experiments.threads_beside import company

WAITS = """
import asyncio, sys
from neuraldbg.capture.experiments.threads_beside import company

async def beside():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    print(repr(company()))
    await child.communicate(b"\\n")

asyncio.run(beside())
"""


def test_a_thread_that_waits_for_a_child_process_is_no_company() -> None:
    """Playwright and Jupyter start one."""
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "''\n"


def test_a_pool_is_company_while_it_works() -> None:
    """Inductor leaves one, with nothing to do, when it has compiled."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait(20.0)

    with ThreadPoolExecutor(1, "loaders") as pool:
        working = pool.submit(work)
        begun.wait()
        assert company() == "another thread of the program runs (loaders_0)"
        over.set()
        working.result()
        until = time.monotonic() + 5.0
        while company() and time.monotonic() < until:
            time.sleep(0.001)
        assert company() == ""


def test_a_thread_of_the_program_is_company() -> None:
    over = threading.Event()
    thread = threading.Thread(target=lambda: over.wait(20.0), name="loader")
    thread.start()
    try:
        assert company() == "another thread of the program runs (loader)"
    finally:
        over.set()
        thread.join()
