"""A folder to run programs in, and a folder with a saved run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.saved_run import saved
from tests.runner.both_ways import Place
from tests.show.made_diagnoses import failing_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty folder."""
    return Place(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """A saved run whose loss becomes NaN at step 40."""
    return saved(tmp_path / "runs" / "one", failing_run(nan=True))
