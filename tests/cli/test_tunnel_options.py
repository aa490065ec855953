"""``--tunnel`` on the command line: where its value may be left out, and a run whose dashboard has one."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from tests.cli.test_dashboard import NOISY, SOON_S, address, alive, children, soon, started, status
from tests.dashboard.saved_runs import record
from tests.dashboard.tunnel_stand_in import StandIn
from tests.runner.both_ways import SOURCE, Place

from neuraldbg.cli import dashboard, debug, main, run
from neuraldbg.cli.tunnel_options import KindOption

LATE_S = 240
"""Seconds until a tunnel must be there: the process of the dashboard yields to everything else on the machine."""
TUNNEL = re.compile(r"neuraldbg: the tunnel is at (http://127\.1:\d+/\?token=[\w-]+)\n")
posix = pytest.mark.skipif(os.name != "posix", reason="the stand-in is a script")


def tunnel_of(process):
    until = time.monotonic() + LATE_S
    while not (match := TUNNEL.search(process.said())):
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.05)
    return match[1]


class Through(Place):
    """A folder whose programs find the stand-in."""

    def env(self, **more):
        return super().env(**{**StandIn.env(self.stand_in, str(SOURCE)), **more})

    @property
    def stand_in(self):
        made = object.__new__(StandIn)
        made.home = self.path / "stand-in"
        return made


@pytest.fixture
def through(tmp_path):
    StandIn(tmp_path)
    return Through(tmp_path)


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["--tunnel", "train.py"], ["--tunnel=ssh", "train.py"]),
        (["--tunnel", "ngrok", "train.py"], ["--tunnel=ngrok", "train.py"]),
        (["--tunnel", "NGROK", "train.py"], ["--tunnel=NGROK", "train.py"]),
        (["--tunnel=cloudflared", "train.py"], ["--tunnel=cloudflared", "train.py"]),
        (["--tunnel", "--dashboard", "train.py"], ["--tunnel=ssh", "--dashboard", "train.py"]),
        (["train.py", "--tunnel", "x"], ["train.py", "--tunnel", "x"]),  # the script's own
        (["--", "train.py", "--tunnel"], ["--", "train.py", "--tunnel"]),
        (["-o", "--tunnel", "--tunnel", "train.py"], ["-o", "--tunnel", "--tunnel=ssh", "train.py"]),
        (["-vo", "ngrok", "--tunnel", "t.py"], ["-vo", "ngrok", "--tunnel=ssh", "t.py"]),
        (["-oout", "--tunnel", "t.py", "ssh"], ["-oout", "--tunnel=ssh", "t.py", "ssh"]),
        (["--tunnel"], ["--tunnel=ssh"]),
    ],
)
def test_a_value_that_is_left_out_is_ssh(args, wanted):
    for module in (run, debug):
        params = module.COMMAND.params
        (option,) = [one for one in params if isinstance(one, KindOption)]
        assert option.written_out(args, params, interspersed=False) == wanted


def test_it_may_stand_on_both_sides_of_a_run():
    params = dashboard.COMMAND.params
    (option,) = [one for one in params if isinstance(one, KindOption)]
    for args in (["--tunnel", "runs"], ["runs", "--tunnel"], ["runs", "--tunnel", "--port", "0"]):
        assert "--tunnel=ssh" in option.written_out(args, params, interspersed=True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "--tunnel", "train.py"], "--tunnel is the dashboard's: give --dashboard, too"),
        (["debug", "--tunnel", "ngrok", "train.py"], "--tunnel is the dashboard's: give --dashboard, too"),
        (["run", "--tunnel-ttl", "2h", "train.py"], "--tunnel-ttl is the dashboard's: give --dashboard, too"),
        (["run", "--dashboard", "--tunnel-ttl", "2h", "train.py"], "--tunnel-ttl is for --tunnel ngrok and"),
        (["dashboard", "runs", "--tunnel", "--tunnel-ttl", "2h"], "--tunnel-ttl is for --tunnel ngrok and"),
        (["dashboard", "runs", "--tunnel=telnet"], "'telnet' is not one of"),
        (["dashboard", "runs", "--tunnel", "ngrok", "--tunnel-ttl", "soon"], "'soon' is no time from 1s to 30d"),
        (["dashboard", "runs", "--tunnel", "ngrok", "--tunnel-ttl", "0h"], "'0h' is no time from 1s to 30d"),
        (["dashboard", "runs", "--tunnel", "ngrok", "--tunnel-ttl", "9999999d"], "is no time from 1s to 30d"),
        (["dashboard", "runs", "--tunnel", "cloudflared"], "there is no program cloudflared on PATH"),
        (["run", "--dashboard", "--tunnel", "cloudflared", "train.py"], "there is no program cloudflared on PATH"),
    ],
)
def test_wrong_use_is_status_2_in_one_sentence(args, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    Path("train.py").write_text("raise SystemExit('was run')")
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


@posix
def test_alone_it_prints_the_command_to_type(place):
    record(place.path / "run")
    with started(place, "dashboard", "--tunnel", "run", "--port", "0", driver=None) as process:
        port = address(process).split(":")[2].split("/")[0]
        soon(lambda: "open the address above" in process.said())
        assert f"From another machine, type there: ssh -L {port}:127.0.0.1:{port} " in process.said()
        assert children(process.pid) == []


@posix
def test_a_dashboard_with_a_tunnel_until_ctrl_c(through):
    record(through.path / "run")
    args = ("dashboard", "run", "--port", "0", "--tunnel", "cloudflared", "--tunnel-ttl", "30m")
    with started(through, *args, driver=None) as process:
        url = tunnel_of(process)
        assert "until the tunnel closes, in 30m." in process.said()
        assert status(url) == 200
        pid = through.stand_in.pid()
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON_S) == 0
        assert not alive(pid)
        assert status(url) == 0
        assert "Traceback" not in process.said()


@posix
def test_a_run_with_a_tunnel_whose_program_is_the_dashboards_and_ends_with_the_run(through):
    through.write("train.py", NOISY)
    args = ("run", "--dashboard", "--port", "0", "--tunnel", "cloudflared", "-o", "out", "train.py")
    with started(through, *args) as process:
        url = tunnel_of(process)
        assert url.partition("=")[2] == address(process).partition("=")[2]
        assert len(children(process.pid)) == 1  # the dashboard: the tunnel is no child of the training's process
        pid = through.stand_in.pid()
        (through.path / "stop").touch()
        assert process.wait(SOON_S) == 0
        soon(lambda: not alive(pid))
        assert process.said().index("bye") < process.said().index("HEALTHY")


@posix
def test_a_run_that_is_killed_leaves_no_tunnel_and_one_that_dies_no_harm(through):
    through.write("train.py", NOISY)
    args = ("run", "--dashboard", "--port", "0", "--tunnel", "cloudflared", "-o", "out", "train.py")
    with started(through, *args) as process:
        tunnel_of(process)
        pid = through.stand_in.pid()
        process.kill()
        process.wait()
        soon(lambda: not alive(pid))
    with started(through, *args) as process:
        tunnel_of(process)
        through.stand_in.die()
        soon(lambda: "the tunnel is closed" in process.said())
        (through.path / "stop").touch()
        assert process.wait(SOON_S) == 0
        assert process.said().count("the tunnel is closed: cloudflared ended with status 3") == 1
        assert "bye" in process.said()
