"""Each program of the suite runs bare, under ``neuraldbg run``, and under ``neuraldbg run --overhead full``, and does
the same to the last bit.
"""

from __future__ import annotations

import pytest
from tests.guest.suite import programs

ALL = programs()
OPEN = {
    "functional/ao_qat": "quantisation copies hooks of ours, which do nothing, to the modules that it makes",
    "functional/jit_script_globals": "torch.jit.script of a class resolves names in the frame of our stand-in",
    "modules/hooks_of_every_kind": "a warning of torch points at torch, not at the line of the program",
    "optim/accumulation": "a warning of torch points at our stand-in",
    "process/del_raises": "a model that the program lets go lives until the session ends",
    "process/exit_object": "str() of what SystemExit holds is called twice",
    "process/keyboard_interrupt": "sys.excepthook is silenced before the interrupt is raised again",
    "process/warnings_once": "a warning of torch points at our stand-in",
    "process/weakrefs": "a model that the program lets go lives until the session ends",
    "structure/time_frozen": "a replaced time.perf_counter of the program is called by us",
    "tensors/deepcopy_pickle": "hooks are in what is pickled, and do nothing there",
    "tensors/weights_only": "torch.load(weights_only=True) refuses a module that was saved with hooks",
}
"""What is known to differ, and is still to be mended: issue 28."""


def marks(program):
    """Return how a program is run: with the slow ones, and as one that is known to differ."""
    slow = [pytest.mark.slow] if program.says("slow") else []
    known = [pytest.mark.xfail(reason=OPEN[program.name], strict=False)] if program.name in OPEN else []
    return slow + known


@pytest.fixture(scope="session")
def running(request, guests):
    """The verdicts on all programs whose tests were chosen, begun at once."""
    chosen = {
        item.callspec.params["program"].name: item.callspec.params["program"]
        for item in request.session.items
        if "running" in getattr(item, "fixturenames", ())
    }
    return {name: guests.submit(program) for name, program in chosen.items()}


@pytest.mark.parametrize(
    "program",
    [pytest.param(one, id=one.name, marks=marks(one)) for one in ALL],
)
def test_does_the_same_when_watched(program, running, record_property):
    verdict = running[program.name].result()
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


def test_what_is_open_is_there():
    assert set(OPEN) <= {one.name for one in ALL}
