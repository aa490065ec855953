"""Threads of packages that draw nothing do not keep experiments from being made; the program's own do."""

from __future__ import annotations

import asyncio
import sys
import threading

from neuraldbg.capture.company import company


def test_a_thread_that_waits_for_a_child_process_is_no_company() -> None:
    """Playwright and Jupyter start one."""

    async def beside() -> str:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
        said = company()
        await child.communicate(b"\n")
        return said

    assert asyncio.run(beside()) == ""


def test_a_thread_of_the_program_is_company() -> None:
    over = threading.Event()
    thread = threading.Thread(target=lambda: over.wait(20.0), name="loader")
    thread.start()
    try:
        assert company() == "another thread of the program runs (loader)"
    finally:
        over.set()
        thread.join()
