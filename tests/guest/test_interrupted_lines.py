"""A signal handler of the program raises at any line of ours: it reaches the program, and the training is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interrupted.py")


def wrong_of(places: str, timeout: int) -> list[list[str]]:
    """Interrupt a training at some of the places of ours, and return what went wrong."""
    env = {key: value for key, value in os.environ.items() if key != "NEURALDBG_STRICT"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True, env=env)
    told = json.loads(done.stdout)
    assert told["tried"] > 20
    assert done.stderr == ""
    return list(told["wrong"])


@pytest.mark.parametrize("places", ["7::600", pytest.param("107::400", marks=[pytest.mark.slow, pytest.mark.long])])
def test_a_time_limit_reaches_the_program_and_the_training_is_recorded(places):
    assert wrong_of(places, timeout=400) == []


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("NEURALDBG_EVERY_LINE"), reason="takes an hour: set NEURALDBG_EVERY_LINE=1")
@pytest.mark.parametrize("part", range(10))
def test_a_time_limit_at_each_line(part):
    assert wrong_of(f"{part}::10", timeout=3600) == []
