"""A folder to run programs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.runner.both_ways import Place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty folder."""
    return Place(tmp_path)
