from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neuraldbg.export.numbers import JSON, PLAIN, texts


@given(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
def test_float32_is_read_back_to_the_bit(values):
    found = np.array([np.float32(text) for text in texts(values, PLAIN)], np.float32)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(np.signbit(found[values == 0]), np.signbit(values[values == 0]))


@given(arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats()))
def test_float64_is_read_back_to_the_bit(values):
    np.testing.assert_array_equal([float(text) for text in texts(values, PLAIN)], values)


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32)))
def test_json_takes_them(values):
    found = json.loads("[" + ",".join(texts(values, JSON)) + "]", parse_constant=lambda _: 1 / 0)
    for text, value in zip(found, values.tolist(), strict=True):
        assert isinstance(text, str) == (not math.isfinite(value))
    np.testing.assert_array_equal(np.array(found, np.float64).astype(np.float32), values)


def test_the_fewest_digits():
    assert texts(np.float32([0.1, 3, 1e-7, np.nan, -np.inf]), PLAIN) == ["0.1", "3", "1e-07", "NaN", "-inf"]
    assert texts(np.float32([4096, 4096]), PLAIN) == ["4096", "4096"]
    assert texts(np.float32([1, 2, -0.0]), PLAIN) == ["1", "2", "-0.0"]
