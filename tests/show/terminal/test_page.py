"""Every page of text in the terminal keeps to its width, ends no line in blanks, and knows its size in a table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table
from tests.show.made_diagnoses import EXPLODING

from neuraldbg.nouns.comparison import Compared, Comparison, Setting, Tolerance
from neuraldbg.show.terminal import comparison, diagnosis

PARTED = Comparison(
    verdict="diverged",
    summary="The runs are identical for 7 steps; at step 7 the update of conv1.weight differs",
    names=("base", "sl\x1b[31mow"),
    tolerance=Tolerance(1e-6, 1e-5, "float32"),
    settings=(Setting("learning rate", 0.1, 0.01, 7),),
    compared=Compared((10, 10), 10, (0, 9), 10, 4, (0, 0), 0.08),
    notes=("8% of the elements were read: large tensors are sampled at the same places in both runs",),
)


def printed(what, encoding="utf-8", width=200):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    Console(file=file, width=width).print(what)
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("page", [diagnosis.render(EXPLODING, 60), comparison.render(PARTED, 60)])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_page_keeps_to_its_width_and_ends_no_line_in_blanks(page, encoding):
    lines = printed(page, encoding)
    code = [line for line in lines if line.lstrip().startswith(("▏", "|")) and "=" in line]  # it is never wrapped
    assert max(map(len, set(lines) - set(code))) <= 60
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("page", [diagnosis.render(EXPLODING, 60), comparison.render(PARTED, 60)])
def test_a_page_takes_its_own_width_beside_another(page):
    side = Table.grid(padding=(0, 1))
    side.add_row(page, "|")
    assert {line.rstrip()[61:] for line in printed(side) if line.endswith("|")} == {"|"}
