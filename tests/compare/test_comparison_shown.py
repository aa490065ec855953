"""What people see of a comparison: the command, its text, its picture and its JSON."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from tests.compare.paired_trainings import STEPS, Plan, changed, train

from neuraldbg import Run
from neuraldbg.cli import main
from neuraldbg.compare import compare
from neuraldbg.compare.layers import match
from neuraldbg.compare.settings import differences
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import RunRecord
from neuraldbg.show.static.pair import pair_figure
from neuraldbg.show.terminal.comparison import render
from neuraldbg.show.terminal.draw import drawn
from neuraldbg.show.views.pair import drift, losses, pair_views


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of a base run, of the same once more, and of one whose rate falls at step 7."""
    home = tmp_path_factory.mktemp("runs")
    for name, plan in {"base": Plan(), "again": Plan(), "slow": Plan(drop_at=7)}.items():
        train(plan, home / name)
    return home


@pytest.fixture(scope="module")
def slow(runs):
    return Run.load(runs / "base").compare(Run.load(runs / "slow"), names=("base", "slow"))


def text(comparison, width=100, **console):
    out = StringIO()
    Console(file=out, width=width, **console).print(render(comparison))
    return out.getvalue()


# ---------------------------------------------------------------- the command


def test_the_command_says_where_two_runs_part(runs, capsys):
    assert main(["compare", str(runs / "base"), str(runs / "slow")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("! DIVERGED  base against slow\nChanged: learning rate 0.1 -> 0.01 from step 7, ")
    assert "The runs are identical for 7 steps; at step 7 the update of" in " ".join(out.split())
    assert "learning rate" in out
    assert "0.1 -> 0.01 (from step 7)" in out


def test_exit_statuses(runs, capsys, tmp_path):
    base, again, slow = (str(runs / name) for name in ("base", "again", "slow"))
    assert main(["compare", base, slow, "--fail-on", "divergence"]) == 3
    assert main(["compare", base, again, "--fail-on", "divergence"]) == 0
    assert main(["compare", base, slow, "--fail-on", "divergence", "--rtol", "10"]) == 0
    for wrong in (
        [base],
        [base, slow, "--ranks", "0", "1"],
        [base, slow, "--rtol", "-1"],
        [base, str(tmp_path / "no")],
    ):
        assert main(["compare", *wrong]) == 2
        assert capsys.readouterr().err.startswith("neuraldbg: ")
    assert main(["compare", base, slow, "-o", str(tmp_path / "a.gif")]) == 2


def test_what_cannot_be_written_is_one_status_whatever_it_is(runs, tmp_path, capsys):
    base, slow = str(runs / "base"), str(runs / "slow")
    for arguments in (
        ["compare", base, slow, "--json", str(tmp_path / "no" / "x.json")],
        ["compare", base, slow, "--json", str(tmp_path)],
        ["compare", base, slow, "--json", "/dev/full"],
        ["compare", base, slow, "-o", str(tmp_path / "no" / "x.png")],
        ["explain", base, "--json", str(tmp_path / "no" / "x.json")],
        ["explain", base, "--json", "/dev/full"],
    ):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.err.startswith("neuraldbg: ")
        assert said.err.count("\n") == 1
        assert "/dev/full" in arguments or said.out == ""  # nothing is computed in vain


def test_a_run_and_itself_are_named_as_one(runs, capsys):
    base = runs / "base"
    for again in (str(base), f"{base}/", str(base / "rank0.ndbg")):
        assert main(["compare", str(base), again]) == 0
        assert capsys.readouterr().out.startswith("✓ IDENTICAL  base against base (again)\n")


def test_what_is_no_run_is_said_to_be_none(runs, capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "x.ndbg").write_text("junk", encoding="utf-8")
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    for wrong, words in (
        (tmp_path / "nowhere", "no such file or folder"),
        (tmp_path / "notes.txt", "is no NeuralDBG run file"),
        (tmp_path / "x.ndbg", "is no NeuralDBG run file"),
        (tmp_path / "x.json", "is not an exported run"),
        (runs, "holds 3 runs: name one of them"),
    ):
        assert main(["compare", str(runs / "base"), str(wrong)]) == 2
        assert words in capsys.readouterr().err


def test_two_ranks_of_one_run(runs, tmp_path, capsys):
    shutil.copy(runs / "base" / "rank0.ndbg", tmp_path / "rank0.ndbg")
    shutil.copy(runs / "slow" / "rank0.ndbg", tmp_path / "rank1.ndbg")
    assert main(["compare", str(tmp_path), "--ranks", "0", "1"]) == 0
    ranks = capsys.readouterr().out
    assert ranks.startswith("! DIVERGED  rank 0 against rank 1\n")
    assert main(["compare", str(tmp_path / "rank0.ndbg"), str(tmp_path / "rank1.ndbg")]) == 0
    files = capsys.readouterr().out
    assert files.startswith("! DIVERGED  rank0 against rank1\n")
    # Data differ between ranks, and with them activations and losses: only what they hold alike is compared.
    rows = ("  outputs  ", "  loss  ", "  weights  ")
    assert [row in files for row in rows] == [True, True, True]
    assert [row in ranks for row in rows] == [False, False, True]
    assert main(["compare", str(tmp_path), "--ranks", "0", "7"]) == 2
    assert "it has rank 0, 1" in capsys.readouterr().err


def test_an_exported_session_is_a_run_like_any_other(runs, tmp_path, capsys):
    exported = Run.load(runs / "base").export(tmp_path / "session.json")
    assert main(["compare", str(runs / "base"), str(exported), "--fail-on", "divergence"]) == 0
    assert capsys.readouterr().out.startswith("✓ IDENTICAL")


def test_the_json_is_the_comparison(runs, tmp_path, capsys):
    target = tmp_path / "c.json"
    arguments = ["compare", str(runs / "base"), str(runs / "slow"), "--json"]
    assert main([*arguments, str(target)]) == 0
    capsys.readouterr()
    body = json.loads(target.read_text(encoding="utf-8"))
    assert body["schema"] == "neuraldbg.comparison/1"
    assert (body["verdict"], body["first"]["step"], body["first"]["kind"]) == ("diverged", 7, "update")
    assert "drift" not in body
    assert main([*arguments, "-"]) == 0
    assert json.loads(capsys.readouterr().out) == body


# ---------------------------------------------------------------- the text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(slow, width):
    lines = text(slow, width).splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_the_whole_text(slow):
    said = text(slow)
    order = [
        "DIVERGED",
        "Different settings",
        "Differences, with their first step",
        "Loss",
        "tolerance 1.3e-06",
    ]
    assert sorted(order, key=said.index) == order
    assert "updates               step 7     6 of 6  at most" in said
    assert "inputs                identical  0 of 1" in said
    assert f"29 sites in {STEPS} steps compared, the loss in {STEPS}" in said


def test_names_of_a_run_are_data():
    evil = "[red]\x1b[31m<img>"
    base = changed(steps=4)
    renamed = replace(base, layout=replace(base.layout, sites=tuple(
        replace(site, module=evil) if site.module == "fc1" else site for site in base.layout.sites
    ), layers=tuple(replace(x, path=evil) if x.path == "fc1" else x for x in base.layout.layers)))  # fmt: skip
    other = replace(renamed, history=replace(base.history, mean=base.history.mean * 2, low=base.history.low * 2,
                                             high=base.history.high * 2))  # fmt: skip
    said = text(compare(renamed, other, names=(evil, "b")))
    assert "\x1b" not in said
    assert "[red]\\x1b[31m<img> against b" in said
    ascii_only = StringIO()
    stream = Console(file=ascii_only, width=80, legacy_windows=False)
    stream.options.encoding = "ascii"
    pair_figure(renamed, other, compare(renamed, other)).draw_without_rendering()


# ---------------------------------------------------------------- the picture


def test_the_map_holds_the_largest_difference_of_each_layer(runs, slow):
    one, other = Run.load(runs / "base"), Run.load(runs / "slow")
    view = drift(slow)
    assert view.layers == ("(input)", "fc1", "act", "drop", "fc2", "head")
    assert view.values.shape == (6, STEPS)
    assert (view.values[:, :7] == 0).all()
    assert (view.values[0] == 0).all()
    assert view.guilty == ("fc1",)
    assert [(mark.step, mark.role) for mark in view.marks] == [(7, "failure")]
    # By hand: of an activation, whose layer has no other site but its gradient.
    worst = 0.0
    for kind in ("activation", "output_grad"):
        row = one.layout.rows(kind, "act")[0]
        a, b = ({s: run.history.stat(row, s)[10] for s in ("mean", "std", "rms", "min", "max")} for run in (one, other))
        scale = max(a["rms"], b["rms"])
        top = max(abs(run[s]) for run in (a, b) for s in ("min", "max"))
        worst = max(worst, *(abs(a[s] - b[s]) / scale for s in ("mean", "std", "rms")))
        worst = max(worst, *(abs(a[s] - b[s]) / top for s in ("min", "max")))
    assert view.values[2, 10] == pytest.approx(worst, rel=1e-5)


def test_the_losses_are_those_of_the_runs(runs, slow):
    one, other = Run.load(runs / "base"), Run.load(runs / "slow")
    view = losses(one, other, slow)
    assert [line.name for line in view.lines] == ["base", "slow"]
    for line, run in zip(view.lines, (one, other), strict=True):
        np.testing.assert_array_equal(line.values, run.scalar("loss").values)


def test_the_command_draws_as_text(runs, capsys):
    assert main(["compare", str(runs / "base"), str(runs / "slow"), "--terminal"]) == 0
    out = capsys.readouterr().out
    assert "Loss: base against slow" in out
    assert "Largest relative difference in each layer" in out


def test_every_view_is_text_too(runs, slow):
    one, other = Run.load(runs / "base"), Run.load(runs / "slow")
    for view in pair_views(one, other, slow):
        assert "first divergence" in drawn(view, 100).plain


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_picture_is_written(runs, tmp_path, suffix, capsys):
    out = tmp_path / f"pair.{suffix}"
    assert main(["compare", str(runs / "base"), str(runs / "slow"), "-o", str(out)]) == 0
    assert out.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    assert f"wrote {out}" in capsys.readouterr().out


@pytest.mark.parametrize("width", [10.0, 6.0])
def test_everything_is_inside_the_picture(runs, slow, width):
    figure = pair_figure(Run.load(runs / "base"), Run.load(runs / "slow"), slow, width_in=width)
    figure.draw_without_rendering()
    page, inked = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert page.x0 <= inked.x0 + 1
    assert inked.x1 <= page.x1 + 1
    assert page.y0 <= inked.y0 + 1
    assert inked.y1 <= page.y1 + 1


def test_nothing_to_draw_is_said(runs):
    base = Run.load(runs / "base")
    same = drift(base.compare(Run.load(runs / "again")))
    assert same.empty == "no layer differs in anything that was read"
    none = compare(RunRecord(), RunRecord())
    assert [bool(view.empty) for view in pair_views(RunRecord(), RunRecord(), none)] == [True, True]
    pair_figure(RunRecord(), RunRecord(), none).draw_without_rendering()


# ---------------------------------------------------------------- settings


def told(one, other):
    return {s.name: (s.one, s.other) for s in differences((one, other), match(one, other))}


def test_versions_devices_and_arguments():
    base = changed(steps=2)
    argv = ("train.py", "data", "--lr", "0.1", "--amp", "--width=8")
    other = ("train.py", "data", "--lr", "0.2", "--width=16", "--seed", "3")
    one, two = (
        replace(base, info=replace(base.info, script=script, argv=args, device=device, versions={"torch": version}))
        for script, args, device, version in (
            ("a/train.py", argv, "cpu", "2.12"), ("b/train.py", other, "cuda", "2.13")
        )
    )  # fmt: skip
    assert told(one, two) == {
        "device": ("cpu", "cuda"),
        "version of torch": ("2.12", "2.13"),
        "argument --lr": ("0.1", "0.2"),
        "argument --amp": ("given", "none"),
        "argument --width": ("8", "16"),
        "argument --seed": ("none", "3"),
    }


def test_a_tolerance_that_is_none(runs):
    base = Run.load(runs / "base")
    for wrong in ({"rtol": -1.0}, {"atol": float("nan")}):
        with pytest.raises(ConfigError, match="must be a number from 0 on"):
            base.compare(base, **wrong)
