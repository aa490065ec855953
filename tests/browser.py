"""A real browser for the tests of pages: one headless Chromium a session, and visits that write down what went wrong.

The playwright package drives the Chromium of the machine: nothing is downloaded. Where there is none, the tests that
ask for it are skipped, and say so.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium for the whole session: starting it takes a second, a new context in it milliseconds.

    Playwright's loop runs in this thread from then on: ``asyncio.run`` in later tests belongs into a thread of its own.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("PAGES ARE NOT TESTED: there is no chromium here (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


@dataclass
class Visit:
    """A page, and what went wrong on it so far."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Errors and warnings of the console (what the content policy refused is among them), exceptions of scripts, and
    requests that failed."""
    requests: list[str] = field(default_factory=list)
    """The address of every request, the page itself included, ``data:`` addresses left out."""

    def listen(self) -> None:
        """Write down what goes wrong from now on."""
        self.page.on("console", lambda said: said.type in {"error", "warning"} and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error.stack)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._requested)

    def _failed(self, request: Request) -> None:
        # The page asks for news all the time: a question that is under way when it is reloaded gets no answer.
        if not (request.failure == "net::ERR_ABORTED" and request.method == "POST"):
            self.errors.append(f"{request.url}: {request.failure}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.requests.append(request.url)


@contextmanager
def visiting(browser: Browser, **context: Any) -> Iterator[Visit]:
    """Open an empty page in a context of its own: cookies, size (``viewport``), theme (``color_scheme``) and so on."""
    opened = browser.new_context(**context)
    try:
        visit = Visit(opened.new_page())
        visit.listen()
        yield visit
    finally:
        opened.close()
