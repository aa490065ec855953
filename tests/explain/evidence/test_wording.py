"""How names are written: as a person would say them."""

from __future__ import annotations

import pytest

from neuraldbg.explain.evidence.wording import listing
from neuraldbg.nouns.layout import called


@pytest.mark.parametrize(("path", "said"), [
    ("encoder.fc1", "encoder.fc1"), ("3", "layer 3"), ("0.12", "layer 0.12"), ("net.0", "net.0"),
    ("0.weight", "0.weight"), ("", ""),
])  # fmt: skip
def test_a_layer_that_nobody_named_is_called_one(path, said):
    assert called(path) == said


@pytest.mark.parametrize(("names", "said"), [
    ([], ""),
    (["fc1"], "fc1"),
    (["fc1", "fc2"], "fc1 and fc2"),
    (["a", "b", "c", "d"], "a, b, c and d"),
    (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    (["4"], "layer 4"),
    (["4", "2", "0"], "layers 4, 2 and 0"),
    (["0", "1", "2", "3", "4"], "layers 0, 1, 2 and 2 more"),
    (["head", "0"], "head and layer 0"),
    (["0.weight", "0.bias"], "0.weight and 0.bias"),
])  # fmt: skip
def test_a_listing(names, said):
    assert listing(names) == said
