"""Runs the programs that were chosen ahead of their tests, and prints the counts of the suite at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.guest.suite import Guests

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = "guest"
"""The property of a test's report that holds its counts; it travels from xdist's workers, too."""


@pytest.fixture(scope="module")
def guests() -> Iterator[Guests]:
    """Return the servers that fork a child for each program. Their threads end before tests elsewhere begin: no
    experiment is made while another thread runs.
    """
    guests = Guests()
    yield guests
    guests.close()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter) -> None:
    """Print a line of counts for each part of the suite that has counted something."""
    parts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name.startswith(COUNT):
                    parts.setdefault(name, Counter()).update(counts)
    for name, counts in sorted(parts.items()):
        terminalreporter.write_line(f"{name}: {', '.join(f'{number:,} {what}' for what, number in counts.items())}")
