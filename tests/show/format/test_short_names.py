from __future__ import annotations

from neuraldbg.show.format.short_names import LONGEST, short_names


def test_short_names_stay_different():
    paths = [
        "",
        "fc1",
        "transformer.blocks.17.mlp.fc",
        *(f"encoder.{i}.the_same_long_name.in_each_block" for i in "ab"),
    ]
    names = short_names(paths)
    assert list(names.values()) == [
        "(model)",
        "fc1",
        "…blocks.17.mlp.fc",
        "encoder.a.the…n_each_block",
        "encoder.b.the…n_each_block",
    ]
    assert max(map(len, names.values())) <= LONGEST
