from __future__ import annotations

import pytest
from tests.show.dashboard.pages import HOSTILE, trained


@pytest.fixture(scope="session")
def doomed(tmp_path_factory):
    """A run with a learning rate of 100."""
    return trained(tmp_path_factory.mktemp("doomed"), lr=100.0)


@pytest.fixture(scope="session")
def healthy(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("healthy"), lr=0.1, steps=120)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A run whose script and one layer have a name that would run a script, were it not text."""
    return trained(tmp_path_factory.mktemp("hostile"), lr=100.0, name=HOSTILE, script=f"{HOSTILE}.py")
