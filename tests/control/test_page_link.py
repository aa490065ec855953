"""The training's end of the connection to a dashboard: its end."""

from __future__ import annotations

import os
import socket

import pytest

from neuraldbg.control.page_link import PageAddress, PageLink


class Ended:
    """A connection whose other end has closed it."""

    def __init__(self) -> None:
        self.socket = socket.socket()  # never connected: its shutdown is refused

    def fileno(self) -> int:
        return self.socket.fileno()


@pytest.mark.filterwarnings("error")
def test_the_end_leaves_the_descriptor_to_the_connection() -> None:
    link = PageLink(PageAddress("127.0.0.1", 0, ""), lambda _: {})
    ended = Ended()
    link._connection = ended
    link.close()
    os.fstat(ended.fileno())
    ended.socket.close()
