"""Alerts on their way: files, commands and webhooks that work, fail and hang, and a training that never waits."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.alerts.loopback_server import served

from neuraldbg import Alerts
from neuraldbg.alerts.alert_command import AlertCommand
from neuraldbg.alerts.alert_file import AlertFile
from neuraldbg.alerts.delivery import QUEUE, Delivery
from neuraldbg.alerts.webhook import Webhook
from neuraldbg.nouns.alert import Alert
from neuraldbg.unlisted_thread import unlisted

PYTHON = sys.executable


def alert(step: int = 0, **more: object) -> Alert:
    return Alert(**{"severity": "critical", "rule": "nan", "text": f"at step {step}", "step": step, **more})


def until(done, seconds: float = 20.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


# -- the file -----------------------------------------------------------------------------------------------------


def test_each_alert_is_a_line_of_strict_json(tmp_path):
    file = tmp_path / "alerts.jsonl"
    delivery = Delivery([AlertFile(file)])
    for step in range(50):
        delivery.put(alert(step, value=float("nan"), layer="fc1", text='a "quoted"\nline\x00 with \u2028'))
    delivery.close()
    told = lines(file)
    assert [one["step"] for one in told] == list(range(50))
    assert set(told[0]) == {
        "schema", "time", "severity", "rule", "text", "step", "layer", "value", "subject", "held_back", "rank", "run",
        "script",
    }  # fmt: skip
    assert told[0]["schema"] == "neuraldbg.alert/1"
    assert told[0]["value"] == "NaN"
    assert told[0]["text"] == 'a "quoted"\nline\x00 with \u2028'
    assert delivery.notes == []


def test_a_torn_line_of_a_killed_process_is_ended_first(tmp_path):
    file = tmp_path / "alerts.jsonl"
    file.write_text('{"schema": "neural', encoding="utf-8")
    AlertFile(file).put(alert())
    first, second = file.read_text(encoding="utf-8").splitlines()
    assert first == '{"schema": "neural'
    assert json.loads(second)["step"] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_once_and_counted(tmp_path):
    file = tmp_path / "alerts.jsonl"
    file.symlink_to("/dev/full")
    delivery = Delivery([AlertFile(file)])
    delivery.put(alert(0))
    until(lambda: delivery.news)
    assert delivery.take_news() == [f"an alert did not reach the file {file}: No space left on device"]
    delivery.put(alert(1))
    delivery.close()
    assert not delivery.news
    assert delivery.notes == [f"2 alerts did not reach the file {file}: No space left on device"]


# -- the command --------------------------------------------------------------------------------------------------


def command(code: str) -> AlertCommand:
    return AlertCommand((PYTHON, "-c", code))


def test_a_command_gets_json_and_variables_and_no_shell_reads_them(tmp_path):
    out = tmp_path / "out.json"
    code = (
        "import json, os, sys\n"
        f"told = {{n: v for n, v in os.environ.items() if n.startswith('NEURALDBG_ALERT_')}}\n"
        f"json.dump([json.load(sys.stdin), told], open({str(out)!r}, 'w'))"
    )
    delivery = Delivery([command(code)])
    evil = f"$(touch {tmp_path}/evil); `touch {tmp_path}/evil`"
    delivery.put(alert(7, layer=evil, value=2.5, text="x" * 5_000))
    delivery.close(30.0)
    said, variables = json.loads(out.read_text(encoding="utf-8"))
    assert (said["layer"], said["step"], said["value"], len(said["text"])) == (evil, 7, 2.5, 5_000)
    assert variables["NEURALDBG_ALERT_LAYER"] == evil
    assert variables["NEURALDBG_ALERT_STEP"] == "7"
    assert variables["NEURALDBG_ALERT_SEVERITY"] == "critical"
    assert variables["NEURALDBG_ALERT_RUN"] == ""
    assert not (tmp_path / "evil").exists()


def test_a_command_that_fails_is_told_with_its_last_words():
    delivery = Delivery([command("import sys; print('out'); sys.exit('no such room')")])
    delivery.put(alert())
    until(lambda: delivery.news)
    name = f"the command {Path(PYTHON).name!r}"
    assert delivery.take_news() == [f"an alert did not reach {name}: it ended with status 1: no such room"]
    delivery.close()


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path):
    file = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(file)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(600)"
    )
    sink = AlertCommand((PYTHON, "-c", code), limit_s=2.0)
    delivery = Delivery([sink])
    delivery.put(alert())
    until(lambda: delivery.news)
    assert "did not end within 2 s and was killed" in delivery.take_news()[0]
    delivery.close()
    pids = [int(pid) for pid in file.read_text(encoding="utf-8").split()]
    assert len(pids) == 2
    until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    """Return True for a process that runs, and is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not hasattr(os, "posix_spawn"), reason="signal masks")
def test_a_command_has_no_blocked_signals(tmp_path):
    out = tmp_path / "mask"
    code = f"import signal; open({str(out)!r}, 'w').write(str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))))"
    delivery = Delivery([command(code)])
    delivery.put(alert())
    delivery.close(30.0)
    assert out.read_text(encoding="utf-8") == "[]"


# -- the webhook --------------------------------------------------------------------------------------------------


def posted(*answers: int | str, timeout_s: float = 5.0, pauses_s: tuple[float, ...] = (0.05, 0.05)):
    """Post two alerts to a server that answers so; return the server and the delivery."""
    with served(*answers) as hook:
        delivery = Delivery([Webhook(hook.url, timeout_s, pauses_s)])
        delivery.put(alert(1))
        until(lambda: hook.got or delivery.news)
        delivery.put(alert(2))
        until(lambda: len(hook.got) == 2 or delivery.notes)
        delivery.close(10.0)
        return hook, delivery


def test_a_webhook_gets_the_json():
    hook, delivery = posted()
    assert [one["step"] for one in hook.got] == [1, 2]
    method, path, headers = hook.requests[0]
    assert (method, path, headers["Content-Type"]) == ("POST", "/alerts", "application/json")
    assert delivery.notes == []


def test_a_server_that_fails_for_a_moment_is_asked_again():
    hook, delivery = posted(503, "drop", 200)
    assert [one["step"] for one in hook.got] == [1, 2]
    assert len(hook.requests) == 4
    assert delivery.notes == []


def test_a_server_that_always_fails_is_asked_three_times_and_then_once():
    hook, delivery = posted(500)
    assert len(hook.requests) == 3 + 1
    assert delivery.notes == [f"2 alerts did not reach the webhook at {root(hook.url)}: it answered with status 500"]


def test_a_refusal_is_not_repeated():
    hook, delivery = posted(404)
    assert len(hook.requests) == 2
    assert "status 404" in delivery.notes[0]


def test_a_server_that_hangs_has_a_time_limit():
    hook, delivery = posted("hang", timeout_s=0.3)
    assert "it did not answer within 0.3 s" in delivery.notes[0]
    assert hook.got == []


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    delivery = Delivery([Webhook(f"http://user:secret@127.0.0.1:{port}/T00/secret", pauses_s=(0.01, 0.01))])
    delivery.put(alert())
    until(lambda: delivery.news)
    told = delivery.take_news()
    delivery.close()
    assert told == [f"an alert did not reach the webhook at http://127.0.0.1:{port}: Connection refused"]


def test_a_name_and_a_password_in_the_address_are_sent_as_such():
    with served() as hook:
        delivery = Delivery([Webhook(hook.url.replace("http://", "http://me:p%40ss@"))])
        delivery.put(alert())
        delivery.close(30.0)
        assert len(hook.got) == 1
        assert hook.requests[0][2]["Authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"


def root(url: str) -> str:
    return url.removesuffix("/alerts")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_within_the_host_is_followed_as_a_post(status):
    hook, delivery = posted(f"{status} /elsewhere", 200)
    assert [one["step"] for one in hook.got] == [1, 2]
    assert [request[:2] for request in hook.requests[:2]] == [("POST", "/alerts"), ("POST", "/elsewhere")]
    assert delivery.notes == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(status):
    with served() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        hook, delivery = posted(f"{status} {elsewhere}")
        assert other.requests == []
    assert hook.got == []
    assert "is not followed" in delivery.notes[0]


# -- the queue and the thread -------------------------------------------------------------------------------------


def test_a_dead_webhook_delays_nobody_and_what_is_dropped_is_counted(tmp_path):
    file = tmp_path / "alerts.jsonl"
    with served("hang") as hook:
        delivery = Delivery([AlertFile(file), Webhook(hook.url, timeout_s=60.0)])
        slowest = 0.0
        for step in range(QUEUE + 50):
            began = time.perf_counter()
            delivery.put(alert(step))
            slowest = max(slowest, time.perf_counter() - began)
            if step == 0:
                until(lambda: hook.requests)  # it has begun to wait for the answer
        assert slowest < 5.0, "the server would have answered after 60 s"
        delivery.close(0.2)
    until(lambda: not unlisted())  # on a busy machine the thread ends, and counts the last, after close() returned
    assert any("50 alerts" in note or "49 alerts" in note for note in delivery.notes), delivery.notes
    assert any(note.startswith(f"{QUEUE + 1} alerts did not reach the webhook") for note in delivery.notes)


def test_what_waits_at_the_end_is_delivered_and_no_thread_is_left(tmp_path):
    file = tmp_path / "alerts.jsonl"
    with served() as hook:
        delivery = Delivery([AlertFile(file), Webhook(hook.url)])
        assert unlisted() == [], "no thread before the first alert"
        for step in range(20):
            delivery.put(alert(step))
        assert threading.active_count() == len(threading.enumerate())
        assert not [thread for thread in threading.enumerate() if "neuraldbg" in thread.name]
        delivery.close(30.0)
        assert [one["step"] for one in hook.got] == list(range(20))
    assert len(lines(file)) == 20
    assert unlisted() == []
    delivery.put(alert())
    assert unlisted() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_delivers_nothing(tmp_path):
    file = tmp_path / "alerts.jsonl"
    delivery = Delivery([AlertFile(file)])
    delivery.put(alert(1))
    until(lambda: lines(file))
    child = os.fork()
    if not child:
        delivery.put(alert(2))
        delivery.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    delivery.close()
    assert [one["step"] for one in lines(file)] == [1]


# -- what is asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"file": "/nowhere/alerts.jsonl"}, "there is no folder /nowhere; create it first"),
        ({"file": "/"}, "this is a folder"),
        ({"file": 3}, "file: give a path"),
        ({"command": "no-such-program-at-all --x"}, "'no-such-program-at-all': there is no such program"),
        ({"command": "cat | tee"}, "no shell reads it, and '|' is of a shell: write sh -c 'cat | tee'"),
        ({"command": "cat 'x"}, "check the quotes"),
        ({"command": " "}, "give a program"),
        ({"command": []}, "give a program"),
        ({"webhook": "example.org"}, "neither http nor https"),
        ({"webhook": "ftp://example.org"}, "'ftp://example.org' is neither http nor https"),
        ({"webhook": "http://"}, "names no host"),
        ({"webhook": "http://a b"}, "give an address"),
        ({"webhook": "http://host:port/"}, "give an address"),
        ({"webhook": 3}, "give an address"),
        ({"every": -1}, "every: give seconds"),
        ({"every": float("nan")}, "every: give seconds"),
        ({"rules": "nan"}, "rules: give a list of text"),
        ({"say": 3}, "say: give a function"),
    ],
)
def test_wrong_wishes_are_refused_where_they_are_made(given, words):
    from neuraldbg.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        Alerts(**given)
    assert words in str(caught.value)


def test_a_way_without_rules_means_every_symptom(tmp_path):
    assert Alerts().rules == ()
    assert Alerts(file=tmp_path / "a").rules == ("any",)
    assert Alerts([], file=tmp_path / "a").rules == ()
    assert Alerts(["nan"]).rules == ("nan",)
