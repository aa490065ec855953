"""Each program of the suite does the same bare, under ``neuraldbg run``, and under ``neuraldbg run --overhead full``,
to the last bit.

The part that is fast watches each program in one of the two modes, half of them in each, and ends a process after its
last exit handler. The slow part watches a sixth of them in the other (`make long` all of them), and takes the
interpreter down as python does; programs that say ``slow`` are in the slow part alone.
"""

from __future__ import annotations

import pytest
from tests.families import some
from tests.guest.suite import MODES, fast_leave, fast_mode, programs, slow_mode

pytestmark = pytest.mark.xdist_group("guest programs")
"""All of it in one worker: what was chosen is begun at once."""


ALL = programs()


def marks(program):
    """Return the mark of a program that takes more than a second: it is run with the slow ones."""
    return [pytest.mark.slow] if program.says("slow") else []


@pytest.fixture(scope="module")
def running(request, guests):
    """The verdicts on all programs whose tests were chosen, begun at once."""
    found = {}
    for item in request.session.items:
        if "running" not in getattr(item, "fixturenames", ()):
            continue
        program, other = item.callspec.params["program"], item.originalname.endswith("to_the_very_end")
        how = ([slow_mode(program)], "") if other else ([fast_mode(program)], fast_leave(program))
        found[item.originalname, program.name] = guests.submit(program, *how)
    return found


each_program = pytest.mark.parametrize("program", [pytest.param(one, id=one.name, marks=marks(one)) for one in ALL])


@each_program
def test_does_the_same_when_watched(program, request, running, record_property):
    check(running[request.node.originalname, program.name].result(), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("program", some([pytest.param(one, id=one.name) for one in ALL], 6))
def test_does_the_same_in_the_other_mode_to_the_very_end(program, request, running, record_property):
    check(running[request.node.originalname, program.name].result(), record_property)


def check(verdict, record_property):
    record_property(
        "guest programs",
        {
            "programs": 1,
            "runs": verdict.runs,
            "differ": int(bool(verdict.differences)),
            "not the same twice": int(bool(verdict.unsteady)),
        },
    )
    assert not verdict.differences, "\n".join(verdict.differences[:20])


def test_names_are_unique():
    names = [one.name for one in ALL]

    assert len(set(names)) == len(names)


def test_both_modes_are_watched_in_the_fast_part():
    modes = [fast_mode(one) for one in ALL]

    assert min(map(modes.count, MODES[1:])) > 0.4 * len(ALL)
