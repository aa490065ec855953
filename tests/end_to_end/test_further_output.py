"""What ``neuraldbg run`` prints and writes beside the diagnosis: views, an export, a note."""

from __future__ import annotations

import json

import pytest
from tests.end_to_end.place import Place, healthy

from neuraldbg import Run

NOTE = "made-up data"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("further"))
    place.write("train.py", healthy(30))
    return place.run(
        "--overhead", "full", "--show", "flow", "--show", "units", "--export", "run.json", "--note", NOTE, "train.py"
    )


@pytest.mark.long
def test_views_follow_the_diagnosis_in_the_order_asked_for(done):
    assert done.status == 0
    assert done.err.index("HEALTHY") < done.err.index("gradient") < done.err.index("dead")


def test_the_note_is_in_the_record_and_below_each_picture(done):
    run = Run.load(done.run)
    assert run.info.note == NOTE
    assert done.diagnosis["run"]["note"] == NOTE
    assert done.err.lower().count(NOTE) >= 2, "below each of the two views"
    from neuraldbg.show.static.crash import crash_figure
    from neuraldbg.show.views import VIEWS, view

    diagnosis = run.diagnose()
    for member in VIEWS:
        assert view(member.name, run, diagnosis).notes[-1] == NOTE
    assert NOTE in crash_figure(run, diagnosis).get_supxlabel().lower()


def test_the_report_and_explain_say_the_note(done, tmp_path, capsys):
    from neuraldbg.cli import main

    assert main(["report", str(done.run), "-o", str(tmp_path / "report.html")]) == 0
    assert NOTE in (tmp_path / "report.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["explain", "-v", str(done.run)]) == 0
    assert NOTE in capsys.readouterr().out


def test_the_export_is_the_run(done):
    assert json.loads((done.run.parent / "run.json").read_text(encoding="utf-8"))
    assert Run.load(done.run.parent / "run.json").steps == 30


WRONG = [
    (["--show", "flows", "train.py"], "--show: there is no view 'flows': choose one of chain, dataflow"),
    (["--export", "run.csv", "train.py"], "name a file that ends in .json"),
    (["--export", "no/run.json", "train.py"], "there is no folder"),
    (["--note", "two\nlines", "train.py"], "--note is one line of at most 200 characters"),
    (["--theme", "dark", "train.py"], "--theme is the dashboard's: give --dashboard, too"),
    (["--tab", "gradients", "train.py"], "--tab is the dashboard's: give --dashboard, too"),
]


@pytest.mark.parametrize(("args", "words"), WRONG)
def test_wrong_use_is_said_before_the_training(tmp_path, args, words):
    place = Place(tmp_path)
    place.write("train.py", "print('never')")
    done = place.run(*args)
    assert (done.status, done.out) == (2, "")
    assert words in done.err
