"""``neuraldbg plot``: every view as a file and as text, and what it says of wishes that cannot be."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.saved_run import saved
from tests.show.made_diagnoses import failing_run

from neuraldbg.cli import main
from neuraldbg.record import RingBuffer
from neuraldbg.show.views import VIEWS


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.mark.parametrize("name", ["crash", *(member.name for member in VIEWS)])
def test_every_view_has_a_file_of_its_name(folder, name, inside, capsys):
    assert main(["plot", str(folder), "--view", name]) == 0
    assert capsys.readouterr().out == f"wrote {name}.png\n"
    assert (inside / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_dark_is_another_picture(folder, inside):
    from matplotlib.image import imread

    for theme in ("light", "dark"):
        for name in ("crash", "loss"):
            assert main(["plot", str(folder), "--view", name, "--theme", theme, "-o", f"{name}-{theme}.png"]) == 0
            corner = imread(inside / f"{name}-{theme}.png")[0, 0, :3].mean()
            assert (corner > 0.9) == (theme == "light")


def test_a_choice_reaches_the_view(folder, capsys):
    words = ["plot", str(folder), "--view", "series", "--layer", "conv2", "--stat", "rms", "--kind", "activation"]
    assert main([*words, "--steps", "5:20", "--step", "7", "--terminal"]) == 0
    out = capsys.readouterr().out
    assert "conv2" in out
    assert "step 7" in out
    assert "wrote" not in out


def test_the_crash_in_a_terminal_is_loss_heat_map_and_chain(folder, inside, capsys):
    assert main(["plot", str(folder), "--terminal"]) == 0
    out = capsys.readouterr().out
    parts = [out.index(title) for title in ("Loss", "L2 norm: gradient", "Causal chain")]
    assert parts == sorted(parts)
    assert max(len(line) for line in out.splitlines()) <= 80
    assert list(inside.glob("*.png")) == []
    assert main(["plot", str(folder), "--terminal", "--view", "flow", "-o", "a.svg"]) == 0
    assert capsys.readouterr().out.endswith("wrote a.svg\n")
    assert (inside / "a.svg").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--view", "nope"], "there is no view 'nope': choose one of chain, crash, dataflow, distribution, "),
        (["--stat", "rms"], "the view crash does not take --stat: it takes --layer"),
        (["--layer", "con2"], "no layer is called 'con2'. Did you mean: conv"),
        (["--view", "loss", "--stat", "rms", "--kind", "op"], "the view loss does not take --kind, --stat: it takes"),
        (["--view", "heatmap", "--layer", "con2"], "no layer is called 'con2'. Did you mean: conv"),
        (["--view", "heatmap", "--stat", "nope"], "there is no statistic 'nope'"),
        (["--view", "heatmap", "--kind", "nope"], "there is no kind of sites 'nope'"),
        (["--view", "loss", "--step", "100000"], "--step 100000: the run has "),
        (["--view", "loss", "--steps", "7"], "--steps 7: give the first and the last step as A:B"),
        (["--view", "loss", "--steps", "9:7"], "--steps 9:7: 9 comes after 7"),
        (["--view", "loss", "-o", "a.gif"], "must end in .png, .svg, .pdf"),
        (["--view", "loss", "-o", "no/a.png"], "cannot write 'no/a.png': there is no folder no; create it first"),
    ],
)
def test_wrong_wishes(folder, words, message, capsys):
    assert main(["plot", str(folder), *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("neuraldbg: ")
    assert message in err


def test_a_place_that_cannot_be_is_refused_before_the_run_is_read(tmp_path, capsys):
    for out, message in (("no/a.png", "there is no folder no"), ("a.gif", "must end in .png")):
        assert main(["plot", str(tmp_path / "no-run"), "-o", out]) == 2
        assert message in capsys.readouterr().err


def test_the_crash_picture_of_one_layer(folder, inside, capsys):
    assert main(["plot", str(folder), "--layer", "conv2", "-o", "one.png"]) == 0
    assert (inside / "one.png").exists()
    assert main(["plot", str(folder), "--layer", "conv2", "--terminal"]) == 0
    out = capsys.readouterr().out
    parts = [out.index(title) for title in ("Loss", "gradient of the parameters of conv2", "Distribution over time")]
    assert parts == sorted(parts)


def test_a_crash_dump_is_drawn(inside, capsys):
    """A dump of the flight recorder, and one that a person wrote down."""
    ring = RingBuffer(10)
    for step in range(8):
        ring.add(step, {"fc1": 1.0, "fc2": float("inf")}, {"fc1": 2.0}, 0.5 if step < 5 else float("nan"))
    ring.save_json(inside / "crash.json", "the loss is NaN")
    by_hand = [{"step": 4, "loss": 0.7, "grad_norms": {"fc1": 0.1}}, {"step": 5, "loss": "NaN"}]
    (inside / "hand.json").write_text(json.dumps(by_hand))
    for name in ("crash.json", "hand.json"):
        assert main(["plot", name, "-o", f"{name}.png"]) == 0
        assert (inside / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert main(["plot", "hand.json", "--terminal", "--view", "loss"]) == 0
    assert "loss not finite from step 5" in capsys.readouterr().out
    assert main(["explain", "hand.json"]) == 2
    assert "is a crash dump, the last steps of a run: draw it with neuraldbg plot" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [60, 120])
def test_the_note_tells_how_many_steps_a_cell_of_the_terminal_stands_for(tmp_path, columns, monkeypatch, capsys):
    """A run of 250 steps that is NaN from step 7 on: what was finite before it stays to be seen."""
    monkeypatch.setenv("COLUMNS", str(columns))
    saved(tmp_path / "run", failing_run(steps=250, fail=7))
    assert main(["plot", str(tmp_path / "run"), "--terminal", "--view", "heatmap"]) == 0
    out = capsys.readouterr().out
    maps = [line.partition("│")[2] for line in out.splitlines() if "│" in line]
    (cells,) = {len(row) for row in maps}
    each = int(re.search(r"covers\s+about\s+(\d+)", out)[1])
    assert each == -(-250 // cells)
    kinds = [{"finite" if step < 7 else "not" for step in range(250) if step * cells // 250 == c} for c in range(cells)]
    sign = {frozenset({"finite"}): "▁", frozenset({"not"}): "✗", frozenset({"finite", "not"}): "&"}
    for row in maps:
        assert re.sub("[▁▂▃▄▅▆▇█]", "▁", row) == "".join(sign[frozenset(kind)] for kind in kinds)
        assert row[0] in "▁▂▃▄▅▆▇█"


def test_the_help_lists_the_views(capsys):
    assert main(["plot", "--help"]) == 0
    out = capsys.readouterr().out
    listed = out[out.index("Views:") :].split()
    assert {member.name for member in VIEWS} | {"crash"} <= set(listed)


def test_numbers_of_steps_may_be_open(folder, capsys):
    for span in (":", "3:", ":9", "0:0"):
        assert main(["plot", str(folder), "--view", "loss", "--terminal", "--steps", span]) == 0
    assert capsys.readouterr().out.count("optimizer step") == 4
