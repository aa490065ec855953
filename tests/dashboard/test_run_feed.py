"""What the dashboard is fed with: runs found, followed and judged; links, ranks and strangers' files."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import threading
import time

import numpy as np
import pytest
from tests.dashboard.saved_runs import record
from tests.dashboard.served_page import trained
from tests.record.known_steps import INFO, event, layout, step

from neuraldbg.compare import compare
from neuraldbg.config import RecordSettings
from neuraldbg.dashboard import run_feed as module
from neuraldbg.dashboard import run_pairs
from neuraldbg.dashboard.page import layout as shell
from neuraldbg.dashboard.page.request import Desk, draw
from neuraldbg.dashboard.run_entry import shortened
from neuraldbg.dashboard.run_feed import UNREAD, WAITS, RunFeed
from neuraldbg.dashboard.settings import DashboardSettings
from neuraldbg.errors import RunNotFound
from neuraldbg.explain import diagnose
from neuraldbg.nouns import Outcome, RunInfo, Series
from neuraldbg.record import Recorder, follow, read_run
from neuraldbg.record.follow import Follower

SOON_S = 20


@pytest.fixture
def opened():
    """Make feeds that read often, and close them."""
    made = []

    def feed(path, **options):
        made.append(RunFeed(path, pace_s=0.02, **options))
        return made[-1]

    yield feed
    for one in made:
        one.close()


def soon(asked):
    """Return the first true answer."""
    until = time.monotonic() + SOON_S
    while True:
        answer = asked()
        if answer:
            return answer
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.02)


def test_a_run_is_read_and_judged_as_the_command_line_does(tmp_path, opened):
    record(tmp_path / "one")
    feed = opened(tmp_path / "one")
    feed.start()
    moment = soon(lambda: (m := feed.moment("one")).judged and m)
    whole = read_run(tmp_path / "one")
    assert moment.judged == moment.record.steps == whole.steps == 50
    assert moment.diagnosis.to_json() == diagnose(whole).to_json()
    (entry,) = feed.runs()
    assert (entry.key, entry.label, entry.state, entry.script) == ("one", "one", "completed", "train.py")
    assert entry.verdict == moment.diagnosis.verdict
    assert feed.moment("one") is moment, "nothing new, nothing made anew"


def test_a_run_that_is_written_is_followed_and_judged_again(tmp_path, opened):
    recorder = Recorder(tmp_path / "run", RecordSettings(flush_s=0.05), RunInfo(script="t.py", started=5.0))
    feed = opened(tmp_path / "run")
    feed.start()
    versions = []
    for i in range(300):
        recorder.put(step(i), layout(), (event(0, i),))
        versions.append(feed.moment("run").version)
        time.sleep(0.002)
    assert feed.runs()[0].state == "running"
    recorder.update_info(RunInfo(script="t.py", started=5.0, outcome=Outcome("raised", "ValueError")))
    recorder.close()
    last = soon(lambda: (m := feed.moment("run")).judged == 300 and m.record.info.outcome.kind == "raised" and m)
    assert versions == sorted(versions)
    assert len(set(versions)) > 5
    assert last.version > versions[-1]
    assert soon(lambda: feed.runs()[0].state == "raised")
    assert soon(lambda: feed.moment("run").diagnosis.to_json() == diagnose(read_run(tmp_path / "run")).to_json())


def test_a_run_before_its_first_step_is_not_judged(tmp_path, opened):
    recorder = Recorder(tmp_path / "run", RecordSettings(flush_s=0.05), RunInfo(script="t.py", started=5.0))
    feed = opened(tmp_path / "run")
    feed.start()
    assert soon(lambda: (m := feed.moment("run")) and m.diagnosis is not UNREAD and m).diagnosis is WAITS
    recorder.update_info(RunInfo(script="t.py", started=5.0, outcome=Outcome("completed")))
    recorder.close()
    assert soon(lambda: "No training step" in feed.moment("run").diagnosis.summary)


def test_a_run_that_is_about_to_begin(tmp_path, opened):
    feed = opened(tmp_path / "later" / "run", begins=True)
    feed.start()
    (entry,) = feed.runs()
    assert (entry.key, entry.state, entry.steps) == ("run", "running", 0)
    begin = time.monotonic()
    moment = soon(lambda: feed.moment("run"))
    feed.moment("run")
    assert time.monotonic() - begin < 2
    assert (moment.record.steps, moment.diagnosis) == (0, UNREAD)
    record(tmp_path / "later" / "run", 20)
    assert soon(lambda: feed.moment("run").judged == 20)
    with pytest.raises(RunNotFound, match="no such file or folder"):
        RunFeed(tmp_path / "nowhere")


def test_an_empty_folder_waits_for_its_first_run(tmp_path, opened):
    feed = opened(tmp_path)
    feed.start()
    assert feed.runs() == ()
    assert Desk(feed, DashboardSettings()).look("?tab=runs", "light") is None
    record(tmp_path / "first", 20)
    assert soon(lambda: [entry.key for entry in feed.runs()] == ["first"])
    assert soon(lambda: feed.moment("first").judged == 20)


def test_runs_of_a_folder_newest_first_with_their_ranks(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(module, "GLANCES_S", SOON_S)  # all are asked for before the feed reads on
    record(tmp_path / "old", started=1.0)
    record(tmp_path / "deep" / "new", started=3.0, outcome="raised")
    record(tmp_path / "mid", started=2.0, rank=0)
    record(tmp_path / "mid", 30, started=2.0, rank=1)
    (tmp_path / "old" / "diagnosis.json").write_text(json.dumps({"verdict": "suspect"}))
    (tmp_path / "mid" / "diagnosis.json").write_text(json.dumps({"verdict": "<img src=x>"}))
    feed = opened(tmp_path)
    entries = {entry.key: entry for entry in feed.runs()}
    assert [entry.key for entry in feed.runs()] == ["deep/new", "mid", "mid/rank1.ndbg", "old"]
    assert entries["mid/rank1.ndbg"].label == "mid rank 1"
    assert (entries["mid/rank1.ndbg"].steps, entries["mid"].steps) == (30, 50)
    assert (entries["old"].verdict, entries["mid"].verdict) == ("suspect", "")
    assert entries["deep/new"].state == "raised"
    feed.start()
    assert soon(lambda: feed.moment("mid/rank1.ndbg").judged == 30)
    record(tmp_path / "newest", started=9.0)
    assert soon(lambda: feed.runs()[0].key == "newest")


def test_a_file_alone_is_shown_by_its_name(tmp_path, opened):
    record(tmp_path / "run")
    (tmp_path / "run" / "rank0.ndbg").rename(tmp_path / "copy of it.ndbg")
    feed = opened(tmp_path / "copy of it.ndbg")
    feed.start()
    assert soon(lambda: feed.moment("copy of it.ndbg").judged == 50)


def test_only_a_few_runs_are_followed(tmp_path, opened):
    for i in range(8):
        record(tmp_path / f"r{i}", 20 + i, started=float(i))
    feed = opened(tmp_path)
    feed.start()
    for _ in range(2):
        for i in range(8):
            assert soon(lambda i=i: feed.moment(f"r{i}").judged == 20 + i)
    assert feed.following == module.FOLLOWED
    assert [entry.steps for entry in feed.runs()] == [27, 26, 25, 24, 23, 22, 21, 20]


def test_unknown_keys_open_nothing(tmp_path, opened):
    record(tmp_path / "runs" / "a")
    record(tmp_path / "other")
    feed = opened(tmp_path / "runs")
    feed.start()
    for key in ("../other", "other", "/etc/passwd", str(tmp_path / "other"), "", ".", "a/../../other", "a\x00"):
        with pytest.raises(KeyError):
            feed.moment(key)


def test_links_that_lead_out_are_refused_and_said(tmp_path, opened):
    outside = record(tmp_path / "outside" / "secret", 40)
    (outside / "diagnosis.json").write_text(json.dumps({"verdict": "failing"}))
    runs = tmp_path / "runs"
    record(runs / "real", started=7.0)
    (runs / "linked").symlink_to(outside)
    (runs / "file").mkdir()
    (runs / "file" / "rank0.ndbg").symlink_to(outside / "rank0.ndbg")
    (runs / "inside").symlink_to(runs / "real")
    (runs / "dead").mkdir()
    (runs / "dead" / "rank0.ndbg").symlink_to("nowhere")
    (runs / "round").mkdir()
    (runs / "round" / "rank0.ndbg").symlink_to("rank0.ndbg")
    (runs / "verdict").mkdir()
    record(runs / "verdict", started=8.0)
    (runs / "verdict" / "diagnosis.json").symlink_to(outside / "diagnosis.json")
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "rank0.ndbg")
    feed = opened(runs)
    feed.start()
    entries = {entry.key: entry for entry in feed.runs()}
    assert set(entries) == {"real", "linked", "file", "inside", "dead", "round", "verdict", "pipe"}
    for key in ("linked", "file"):
        assert "leads out of the folder" in entries[key].problem
    for key in ("dead", "round"):
        assert "leads nowhere" in entries[key].problem
    assert entries["pipe"].problem == "It is no file."
    for key in ("linked", "file", "dead", "round", "pipe"):
        assert (entries[key].state, entries[key].steps, entries[key].verdict) == ("unreadable", 0, "")
        assert feed.moment(key).record.steps == 0
    assert entries["verdict"].verdict in {"", "healthy"}  # its own, if it has been judged by now; not that of the link
    assert soon(lambda: feed.moment("inside").judged == 50)
    # A named link is the user's own: what it leads to is the folder that was named.
    (tmp_path / "latest").symlink_to(runs / "real")
    named = opened(tmp_path / "latest")
    named.start()
    assert soon(lambda: named.moment("real").judged == 50)


def test_a_link_put_in_the_place_of_a_run_is_not_followed(tmp_path, opened):
    secret = record(tmp_path / "outside", 40)
    record(tmp_path / "runs" / "a")
    feed = opened(tmp_path / "runs")
    feed.start()
    assert soon(lambda: feed.moment("a").judged == 50)
    file = tmp_path / "runs" / "a" / "rank0.ndbg"
    file.unlink()
    file.symlink_to(secret / "rank0.ndbg")
    assert soon(lambda: feed.runs()[0].problem)
    time.sleep(0.2)
    assert feed.moment("a").record.steps == 50


@pytest.mark.parametrize("reads", ["poll", "scalars"])
def test_a_link_put_there_between_the_look_and_the_reading_is_not_shown(tmp_path, opened, monkeypatch, reads):
    secret = record(tmp_path / "outside", 40)
    file = record(tmp_path / "runs" / "a") / "rank0.ndbg"
    place = (module.Follower, "poll") if reads == "poll" else (module, "read_scalars")
    read = getattr(*place)

    def swapped(what):
        if not file.is_symlink():
            file.unlink()
            file.symlink_to(secret / "rank0.ndbg")
        return read(what)

    if reads == "scalars":  # the first of them is while the feed is made
        monkeypatch.setattr(*place, swapped)
    feed = opened(tmp_path / "runs")
    monkeypatch.setattr(*place, swapped)
    feed.start()
    assert soon(lambda: feed.runs()[0].problem)
    assert file.is_symlink()
    assert "leads out of the folder" in feed.runs()[0].problem
    time.sleep(0.2)
    assert feed.runs()[0].steps != 40
    assert feed.moment("a").record.steps != 40


def test_what_was_read_through_a_link_is_not_shown_when_the_link_is_gone(tmp_path, opened, monkeypatch):
    secret = record(tmp_path / "outside", 40)
    file = record(tmp_path / "runs" / "a") / "rank0.ndbg"
    feed = opened(tmp_path / "runs")
    poll, taken = module.Follower.poll, []

    def swapped(follower):
        if not taken:
            file.unlink()
            file.symlink_to(secret / "rank0.ndbg")
        news = poll(follower)
        taken.append(follower.record.steps)
        return news

    monkeypatch.setattr(module.Follower, "poll", swapped)
    feed.start()
    assert soon(lambda: "leads out of the folder" in feed.runs()[0].problem)
    assert taken == [40]
    file.unlink()
    file.write_bytes(b"\0" * 16)
    assert soon(lambda: len(taken) > 1 and feed.runs()[0].problem and "leads out" not in feed.runs()[0].problem)
    time.sleep(0.2)
    assert feed.runs()[0].steps != 40
    assert feed.moment("a").record.steps != 40


def test_what_cannot_be_read_is_a_state(tmp_path, opened):
    record(tmp_path / "good", started=4.0)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rank0.ndbg").write_bytes(b"loss,step\n")
    name = os.fsdecode(b"odd\xff<img src=x onerror=alert(1)>")
    record(tmp_path / name, started=5.0)
    feed = opened(tmp_path)
    feed.start()
    odd, good, bad = feed.runs()
    assert odd.label == odd.key == "odd\\xff<img src=x onerror=alert(1)>"
    assert json.dumps(odd.key).encode()
    assert soon(lambda: feed.moment(odd.key).judged == 50)
    assert good.problem == ""
    assert bad.state == "unreadable"
    assert "is no NeuralDBG run file" in bad.problem
    assert feed.moment("bad").diagnosis is UNREAD
    assert soon(lambda: {entry.key: entry for entry in feed.runs()}["bad"].problem)
    (tmp_path / "good" / "rank0.ndbg").unlink()
    feed.moment("good")
    assert soon(lambda: "was deleted" in {entry.key: entry for entry in feed.runs()}["good"].problem)


def rewritten(folder, **change):
    """Put other values into what a run file says of the run; its checksums stay right."""
    db = sqlite3.connect(folder / "rank0.ndbg")
    ((said,),) = db.execute("SELECT value FROM meta WHERE key = 'info'").fetchall()
    db.execute("UPDATE meta SET value = ? WHERE key = 'info'", (json.dumps({**json.loads(said), **change}),))
    db.commit()
    db.close()


STRANGE = {
    "text": {"started": "abc"},
    "huge": {"started": 1e300},
    "kind": {"outcome": {"kind": ["x"]}},
    "script": {"script": 5},
    "coverage": {"coverage": 5},
    "models": {"models": 5},
}


def test_a_run_that_somebody_made_up_takes_no_other_down(tmp_path, opened):
    record(tmp_path / "good", started=4.0)
    for name, change in STRANGE.items():
        rewritten(record(tmp_path / name), **change)
    feed = opened(tmp_path)
    feed.start()
    assert {entry.key for entry in feed.runs()} == {"good", *STRANGE}
    for name in STRANGE:
        assert feed.moment(name).diagnosis is UNREAD
    assert soon(lambda: feed.moment("good").judged == 50)
    for entry in feed.runs():
        assert (entry.state, "is damaged" in entry.problem) == (
            ("completed", False) if entry.key == "good" else ("unreadable", True)
        )
        look = Desk(feed, DashboardSettings()).look(f"?run={entry.key}&tab=runs", "light")
        assert not draw(look.scene, look.tab.panes[0]).empty
        assert shell.status(look.scene)
        assert shell.run_name(look.scene)


def test_an_error_of_our_own_is_of_one_run_and_passes(tmp_path, opened, monkeypatch):
    for name in ("good", "bad"):
        record(tmp_path / name)
    broken = threading.Event()
    broken.set()
    read, poll = module.read_scalars, Follower.poll

    def failing(ask, file):
        if broken.is_set() and file.parent.name == "bad":
            raise ZeroDivisionError("of our own")
        return ask()

    monkeypatch.setattr(module, "read_scalars", lambda file: failing(lambda: read(file), file))
    monkeypatch.setattr(Follower, "poll", lambda self: failing(lambda: poll(self), self.file))

    def entry(key):
        return {entry.key: entry for entry in feed.runs()}[key]

    feed = opened(tmp_path)
    assert "internal error of NeuralDBG (ZeroDivisionError: of our own)" in entry("bad").problem, "at a glance"
    feed.start()
    assert feed.moment("bad").diagnosis is UNREAD
    assert soon(lambda: feed.moment("good").judged == 50)
    assert (entry("bad").state, entry("good").problem) == ("unreadable", "")
    assert "internal error of NeuralDBG (ZeroDivisionError: of our own)" in entry("bad").problem, "while it is followed"
    broken.clear()
    assert soon(lambda: feed.moment("bad").judged == 50)
    assert (entry("bad").state, entry("bad").problem) == ("completed", "")


def test_a_folder_that_cannot_be_searched_for_a_while(tmp_path, opened, monkeypatch):
    record(tmp_path / "one", started=1.0)
    feed = opened(tmp_path)
    failures = []

    def fails(path):
        failures.append(path)
        raise RecursionError("of our own")

    monkeypatch.setattr(module, "SCAN_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_folders", fails)
        feed.start()
        assert soon(lambda: len(failures) > 2)
        assert soon(lambda: feed.moment("one").judged == 50)
    record(tmp_path / "two", started=2.0)
    assert soon(lambda: [entry.key for entry in feed.runs()] == ["two", "one"])


def test_a_run_without_an_end_that_nobody_writes_was_killed(tmp_path, opened, monkeypatch):
    recorder = Recorder(tmp_path / "live", RecordSettings(), INFO)
    record(tmp_path / "dead", outcome="running")
    monkeypatch.setattr(follow, "SILENT_S", 0.05)
    recorder.put(step(0), layout())
    recorder.flush()
    time.sleep(0.1)
    states = {entry.key: entry.state for entry in opened(tmp_path).runs()}
    recorder.close()
    assert states["dead"] == "killed"
    assert states["live"] == INFO.outcome.kind


def test_a_run_of_the_list_says_cause_final_loss_and_duration_without_being_followed(tmp_path, opened):
    doomed = trained(tmp_path / "doomed", lr=100.0)
    trained(tmp_path / "nan", lr=float("nan"))
    first = doomed.diagnose().hypotheses[0]
    entries = {entry.key: entry for entry in opened(tmp_path).runs()}
    entry = entries["doomed"]
    assert (entry.cause, entry.confidence) == (first.cause, pytest.approx(first.confidence))
    losses = doomed.scalar("loss").values
    assert entry.losses == (pytest.approx(np.median(losses[-len(losses) // 10 :])),)
    assert entry.duration_s == doomed.history.time[-1] > 0
    ((name, curve),) = entry.curves
    assert (name, curve.steps.tolist()) == ("loss", list(range(40)))
    np.testing.assert_array_equal(curve.values, losses)
    assert np.isnan(entries["nan"].losses[0]), "it ended there"
    assert entries["nan"].verdict == "failing"


def test_a_killed_run_is_judged_once_without_being_opened(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(follow, "SILENT_S", 0.05)
    record(tmp_path / "open", started=2.0)
    record(tmp_path / "dead", outcome="running")
    read = []
    monkeypatch.setattr(module, "read_file", lambda file: read.append(file) or read_run(file))
    feed = opened(tmp_path)
    feed.start()
    dead = soon(lambda: (e := next(e for e in feed.runs() if e.key == "dead")).verdict and e)
    said = diagnose(read_run(tmp_path / "dead"))
    assert (dead.state, dead.verdict) == ("killed", said.verdict)
    assert dead.cause == (said.hypotheses[0].cause if said.hypotheses else "")
    time.sleep(0.2)
    assert len(read) == 1


def test_what_a_strangers_diagnosis_says_is_checked(tmp_path, opened):
    record(tmp_path / "run")
    for said in ([], {"verdict": []}, {"verdict": "failing", "hypotheses": 5}, {"verdict": "failing", "hypotheses": []},
                 {"verdict": "failing", "hypotheses": [{"cause": 5, "confidence": 1}]},
                 {"verdict": "failing", "hypotheses": [{"cause": "x", "confidence": 1e9}]}):  # fmt: skip
        (tmp_path / "run" / "diagnosis.json").write_text(json.dumps(said))
        (entry,) = opened(tmp_path).runs()
        assert entry.verdict == ("failing" if isinstance(said, dict) and said["verdict"] else "")
        assert (entry.cause, entry.confidence) == ("", 0.0)


def test_a_long_curve_is_shortened_to_means_of_what_is_finite():
    series = Series(np.arange(10) * 2, np.array([1, 3, np.nan, 5, np.inf, np.nan, 7, 9, 2, 4.0]), np.full(10, 2))
    short = shortened(series, 5)
    assert short.steps.tolist() == [0, 4, 8, 12, 16]
    assert short.width.tolist() == [4] * 5
    np.testing.assert_array_equal(short.values, [2, 5, np.nan, 8, 3])
    assert shortened(series, 10) is series
    weighted = shortened(Series(np.array([0, 1]), np.array([1.0, 4.0]), np.array([1, 3])), 1)
    assert weighted.values.tolist() == [13 / 4]


def test_judging_rests_longer_than_it_works(tmp_path, opened, monkeypatch):
    spans = []

    def slow(run):
        begin = time.monotonic()
        time.sleep(0.1)
        spans.append((begin, time.monotonic()))
        return diagnose(run)

    monkeypatch.setattr(module, "diagnose", slow)
    recorder = Recorder(tmp_path / "run", RecordSettings(flush_s=0.05), RunInfo(script="t.py"))
    feed = opened(tmp_path / "run")
    feed.start()
    feed.moment("run")
    for i in range(200):
        recorder.put(step(i), layout())
        time.sleep(0.01)
    recorder.close()
    soon(lambda: feed.moment("run").judged == 200)
    assert len(spans) > 2
    for (_, end), (begin, _) in itertools.pairwise(spans):
        assert begin - end >= 0.45


def test_closing_ends_its_threads(tmp_path):
    record(tmp_path / "run")
    feed = RunFeed(tmp_path / "run")
    feed.start()
    feed.close()
    assert not [thread for thread in threading.enumerate() if thread.name in {"neuraldbg-reads", "neuraldbg-judges"}]
    RunFeed(tmp_path / "run").close()  # never started


def compared(feed, *keys):
    return soon(lambda: feed.compare(*keys))


def test_two_runs_are_compared_as_the_command_line_does(tmp_path, opened):
    record(tmp_path / "one", started=2.0)
    record(tmp_path / "other", 30, outcome="raised")
    feed = opened(tmp_path)
    feed.start()
    found = compared(feed, "one", "other")
    one, other = read_run(tmp_path / "one"), read_run(tmp_path / "other")
    assert found.to_json() == compare(one, other, (diagnose(one), diagnose(other)), names=("one", "other")).to_json()
    assert feed.compare("one", "other") is found, "nothing new, nothing made anew"
    assert compared(feed, "other", "one").compared.steps == (30, 50)
    for keys in (("one", "nobody"), ("../one", "other"), ("nobody", "nobody")):
        with pytest.raises(KeyError):
            feed.compare(*keys)


def test_a_run_that_cannot_be_read_is_not_compared_and_said(tmp_path, opened):
    record(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rank0.ndbg").write_bytes(b"loss,step\n")
    feed = opened(tmp_path)
    feed.start()
    said = compared(feed, "good", "bad")
    assert said.verdict == "incomparable"
    assert said.summary.startswith("bad cannot be read: ")
    assert "is no NeuralDBG run file" in said.summary


def test_a_growing_run_is_compared_anew_in_the_judging_thread_while_it_is_asked_for(tmp_path, opened, monkeypatch):
    spans = []

    def slow(*runs, **names):
        begin = time.monotonic()
        time.sleep(0.1)
        spans.append((begin, time.monotonic(), threading.current_thread().name))
        return compare(*runs, **names)

    monkeypatch.setattr(run_pairs, "compare", slow)
    record(tmp_path / "done", 200)
    recorder = Recorder(tmp_path / "run", RecordSettings(flush_s=0.05), RunInfo(script="t.py"))
    recorder.put(step(0), layout())
    recorder.flush()
    feed = opened(tmp_path)
    feed.start()
    compared(feed, "run", "done")
    for i in range(1, 200):
        recorder.put(step(i), layout())
        if i < 150:
            feed.compare("run", "done")
        time.sleep(0.01)
    recorder.close()
    assert soon(lambda: feed.moment("run").judged == 200)
    asked_for = len(spans)
    time.sleep(0.7)
    assert len(spans) == asked_for, "nobody asked"
    assert soon(lambda: feed.compare("run", "done").compared.steps == (200, 200))
    assert {name for *_, name in spans} == {"neuraldbg-judges"}
    assert len(spans) > 2
    for (_, end, _), (begin, *_) in itertools.pairwise(spans):
        assert begin - end >= 0.45
