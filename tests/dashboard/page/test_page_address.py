"""The address as a value: what is written is read again, and what cannot be read is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.dashboard.page.address import LONGEST, State, keys_of, listed, read, written
from neuraldbg.dashboard.page.cache import Newest

NAMES = st.none() | st.text(min_size=1, max_size=80)
STEPS = st.none() | st.integers(0, 10**9)


@given(
    st.builds(
        State,
        run=NAMES,
        with_=NAMES,
        tab=NAMES,
        layer=NAMES,
        step=STEPS,
        stat=NAMES,
        kind=NAMES,
        scalar=NAMES,
        sort=NAMES,
        smooth=NAMES,
        filter=NAMES,
        runs=NAMES,
    )
)
def test_what_is_written_is_read_again(state):
    assert read(written(state)) == (state, ())


@given(st.text(max_size=300))
def test_any_text_is_harmless(text):
    state, problems = read(text)
    assert isinstance(state, State)
    assert all(problem.isprintable() for problem in problems)


@pytest.mark.parametrize(("search", "said"), [
    ("?step=-1", "step='-1': a step is a number"),
    ("?step=" + "9" * 400, "a step is a number"),
    ("?step=٣", "a step is a number"),
    ("?nope=1", "'nope', which is not known here"),
    ("?first=9&last=3", "steps 9 to 3, the first of which comes last"),
    ("?layer=" + "x" * LONGEST, "too long"),
])  # fmt: skip
def test_what_is_left_out_is_said(search, said):
    state, problems = read(search)
    assert state == State()
    assert len(problems) == 1
    assert said in problems[0]


@given(st.lists(st.text(min_size=1, max_size=20), max_size=5, unique=True))
def test_keys_of_runs_are_read_again_whatever_they_hold(keys):
    assert keys_of(listed(keys)) == tuple(keys)
    state, problems = read(written(State(runs=listed(keys))))
    assert (keys_of(state.runs), problems) == (tuple(keys), ())


def test_the_store_is_bounded_and_keeps_what_was_asked_for_last():
    store, made = Newest(2), []

    def make(key):
        return store.get(key, lambda: made.append(key) or key)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert make(key) == key
    assert made == ["a", "b", "c", "b"]
    assert len(store) == 2
