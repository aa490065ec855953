"""A fault in any function of capture, record and detect leaves the training as it is without us, to the last bit.

All functions that the trainings call get a RuntimeError, a third of them a MemoryError or None as well, up to eight in
one process: see ``Faults.inject``. ``python -m tests.guest.faults --kind MemoryError --kind None`` does all of these,
``--most 1`` one by one. All of it takes half an hour and is left to ``make long``; the slow part takes one function in
twelve for each kind, the part that is fast a few functions of a few trainings.
"""

from __future__ import annotations

import pytest
from tests.families import some
from tests.guest.faults import KINDS, QUICK, Faults, counts

pytestmark = pytest.mark.xdist_group("guest faults")
"""All of it in one worker: what was chosen is begun at once."""


PARTS = 12
"""One function in so many is a part of the functions."""
TRIED = {"RuntimeError": PARTS, "MemoryError": PARTS // 3, "None": PARTS // 3}
"""So many parts are tried."""
FEW = 24
"""One in so many functions in the part that is fast."""


@pytest.fixture(scope="module")
def faults(guests):
    return Faults(guests)


@pytest.fixture(scope="module")
def few(guests):
    return Faults(guests, trainings=QUICK)


@pytest.mark.slow
def test_trainings_call_most_functions(faults):
    # The rest is for devices, compiled graphs, experiments and what other programs of the suite do.
    assert len(faults.reached) > 0.7 * len(faults.places), f"{len(faults.reached)} of {len(faults.places)}"


def test_a_fault_is_where_it_was_put(few):
    findings = list(few.inject(few.plan("RuntimeError", FEW)[:5], most=1))

    assert findings
    assert all(one.fired for one in findings)


@pytest.mark.parametrize("kind", some(KINDS, 3))
def test_a_few_faults(kind, few, record_property):
    check(few, few.plan(kind, FEW), record_property)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "part"),
    [one for kind in KINDS for one in some([(kind, part) for part in range(TRIED[kind])], TRIED[kind])],
)
def test_every_fault(kind, part, faults, record_property):
    check(faults, faults.plan(kind, PARTS, part), record_property)


AT_THE_END = {"capture/compiled/operators.py rest"}
"""What the end of the process calls, when there is nobody to tell any more."""


def check(faults, plan, record_property):
    findings = list(faults.inject(plan))
    silent = {
        f"{one.fault.place.partition(':')[0]} {one.fault.place.rpartition(' ')[2]}" for one in findings if one.silent
    }
    record_property("guest faults", counts(faults, findings))
    wrong = [one for one in findings if one.wrong]
    assert not wrong, "\n".join(
        f"{one.fault.kind} in {one.fault.place} ({one.fault.program.name}, {one.fault.mode}): {one.wrong[0]}"
        for one in wrong
    )
    assert silent <= AT_THE_END
