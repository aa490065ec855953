"""A fault in any function of capture, record and detect leaves the training as it is without us, to the last bit.

All functions that the trainings call get a RuntimeError, a third of them a MemoryError or None as well;
``python -m tests.guest.faults --kind MemoryError --kind None`` does all of these.
"""

from __future__ import annotations

import pytest
from tests.guest.faults import KINDS, Faults, counts

SHARES = {"RuntimeError": 1, "MemoryError": 3, "None": 3}
"""One in so many functions."""
PARTS = 4
FEW = 24
"""One in so many functions in the part that is fast."""


@pytest.fixture(scope="module")
def faults(guests):
    return Faults(guests)


def test_trainings_call_most_functions(faults):
    # The rest is for devices, compiled graphs, experiments and what other programs of the suite do.
    assert len(faults.reached) > 0.7 * len(faults.places), f"{len(faults.reached)} of {len(faults.places)}"


def test_a_fault_is_where_it_was_put(faults):
    findings = list(faults.inject(faults.plan("RuntimeError", FEW)[:5]))

    assert findings
    assert all(one.fired for one in findings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_faults(kind, faults, record_property):
    check(faults, faults.plan(kind, FEW), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault(kind, part, faults, record_property):
    check(faults, faults.plan(kind, SHARES[kind])[part::PARTS], record_property)


def check(faults, plan, record_property):
    findings = list(faults.inject(plan))
    record_property("guest faults", counts(faults, findings))
    wrong = [one for one in findings if one.wrong]
    assert not wrong, "\n".join(
        f"{one.fault.kind} in {one.fault.place} ({one.fault.program.name}, {one.fault.mode}): {one.wrong[0]}"
        for one in wrong
    )
