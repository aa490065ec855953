"""The life of a tunnel to a real server, through a stand-in for its program on the loopback."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.dashboard.test_server import SECRET, app
from tests.dashboard.tunnel_stand_in import HOST, StandIn

from neuraldbg.dashboard import tunnel
from neuraldbg.dashboard.guard import Hosts
from neuraldbg.dashboard.port import listen
from neuraldbg.dashboard.server import Server
from neuraldbg.dashboard.tunnel import Wanted, spelled, ssh_line
from neuraldbg.errors import ConfigError, MissingExtra

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in is a script")
SOON_S = 40
ADDRESS = re.compile(r"the tunnel is at (http://127\.1:(\d+)/\?token=([\w-]+))\n")


def soon(asked):
    until = time.monotonic() + SOON_S
    while not (answer := asked()):
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.02)
    return answer


def alive(pid):
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def status(port, path="/", host=HOST, **headers):
    """The status through a port, without following a redirection; 0 where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}", **headers})
        answer = connection.getresponse()
        answer.text = answer.read().decode()
    except OSError:
        return 0, None
    finally:
        connection.close()
    return answer.status, answer


class Life:
    """A server that serves, and what its tunnel has said."""

    def __init__(self, server, port):
        self.server, self.port, self.said = server, port, []
        self.tunnel = None

    def open(self, kind="cloudflared", ttl_s=600.0):
        self.tunnel = self.server.tunnel(Wanted(kind, ttl_s), self.said.append)
        self.tunnel.start()
        return self

    @property
    def text(self):
        return "\n".join([*self.said, ""])

    def address(self):
        match = soon(lambda: ADDRESS.search(self.text))
        return int(match[2]), match[3]


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    made = StandIn(tmp_path)
    for name, value in made.env(os.environ.get("PYTHONPATH", "")).items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def life(stand_in):
    listening, _ = listen(port=0)
    port = listening.getsockname()[1]
    server = Server(app(), listening)
    thread = threading.Thread(target=server.serve, name="server-under-test")
    thread.start()
    made = Life(server, port)
    try:
        yield made
    finally:
        if made.tunnel is not None:
            made.tunnel.close()
        server.stop()
        thread.join()
        assert stand_in.pid() is None or soon(lambda: not alive(stand_in.pid()))
        assert not [one for one in threading.enumerate() if one.name == "neuraldbg-tunnel"]


# ---------------------------------------------------------------- a good one


@pytest.mark.parametrize("kind", ["cloudflared", "ngrok"])
def test_a_tunnel_lets_in_who_has_the_token_while_it_is_open(life, stand_in, kind):
    stand_in.configure_ngrok()
    assert status(life.port)[0] == 403  # the host is not allowed before
    port, token = life.open(kind).address()
    assert str(life.port) in stand_in.args()
    # Without the token nothing, with it the page, through the tunnel and under its name.
    refused, answer = status(port)
    assert refused == 403
    assert "carries a token" in answer.text
    assert SECRET not in answer.text
    found, answer = status(port, f"/?token={token}")
    assert found == 303
    cookie = answer.headers["Set-Cookie"].split(";")[0]
    found, answer = status(port, "/_dash-layout", Cookie=cookie)
    assert (found, SECRET in answer.text) == (200, True)
    # The name exactly, and no other.
    for other in ("127.2", "x.127.1", "127.1.example.org", "example.org"):
        found, answer = status(life.port, f"/?token={token}", host=other)
        assert found == 403, other
    life.tunnel.close()
    assert status(port)[0] == 0
    found, answer = status(life.port, f"/?token={token}")
    assert (found, answer.text) == (403, "This dashboard is not served under this host name.\n")
    assert not alive(stand_in.pid())
    assert len(life.said) == 1  # nothing more is said of what was asked for


def test_it_closes_after_its_time_and_says_so_once(life, stand_in):
    port, token = life.open(ttl_s=2.0).address()
    assert "until the tunnel closes, in 2s." in life.text
    soon(lambda: len(life.said) == 2)
    assert life.said[1] == "the tunnel was closed after 2s; the dashboard goes on without it"
    assert not alive(stand_in.pid())
    assert status(port)[0] == 0
    assert status(life.port, f"/?token={token}")[0] == 403
    assert status(life.port, f"/?token={token}", host="127.0.0.1")[0] == 303


def test_one_that_dies_says_so_once(life, stand_in):
    _, token = life.open().address()
    stand_in.die()
    soon(lambda: len(life.said) == 2)
    ended = "the tunnel is closed: cloudflared ended with status 3: ERR lost; the dashboard goes on without it"
    assert life.said[1] == ended
    assert status(life.port, f"/?token={token}")[0] == 403
    assert status(life.port, f"/?token={token}", host="127.0.0.1")[0] == 303
    time.sleep(0.3)
    assert len(life.said) == 2


def test_one_that_ignores_the_polite_signal_is_killed(life, stand_in):
    stand_in.mode("stubborn")
    life.open().address()
    life.tunnel.close()
    assert not alive(stand_in.pid())


def test_a_killed_holder_takes_the_program_along(life, stand_in):
    life.open().address()
    os.kill(life.tunnel._process.pid, signal.SIGKILL)
    soon(lambda: len(life.said) == 2)
    assert "the process that held cloudflared ended" in life.said[1]
    soon(lambda: not alive(stand_in.pid()))


# ---------------------------------------------------------------- those that are refused


def test_one_that_adds_the_token_is_closed_and_its_address_is_not_said(life, stand_in):
    stand_in.mode("inject")
    (stand_in.home / "token").write_text(urlsplit(life.server.url).query.split("=")[1])
    life.open()
    soon(lambda: life.said)
    assert re.fullmatch(r"there is no tunnel: a request without the token was answered through http://127\.1:\d+ "
                        r"\(status 303\); it was closed", life.said[0])  # fmt: skip
    assert "token=" not in life.text
    soon(lambda: not alive(stand_in.pid()))
    assert status(life.port)[1].text == "This dashboard is not served under this host name.\n"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("silent", "cloudflared printed no address within 1.5 s"),
        ("garbage", "cloudflared printed no address within 1.5 s"),
        ("nowhere", "http://127.1:1 does not lead to the dashboard after 1.5 s (ConnectionRefusedError: {refused})"),
        ("open", "http://example.org is not encrypted"),
        ("ends", "cloudflared ended with status 7: ERR failed to request quick Tunnel: refused[31m"),
    ],
)
def test_what_gives_no_address_is_one_sentence(life, stand_in, monkeypatch, mode, said):
    monkeypatch.setattr(tunnel, "OPEN_S", 1.5)
    stand_in.mode(mode)
    life.open()
    soon(lambda: life.said)
    closed = "; it was closed" if mode == "nowhere" else ""
    assert life.said == [f"there is no tunnel: {said.format(refused='[Errno 111] Connection refused')}{closed}"]
    soon(lambda: not alive(stand_in.pid()))
    assert status(life.port, host="127.0.0.1")[0] == 403
    assert len(life.said) == 1


def test_ngrok_is_never_downloaded(life, stand_in):
    script = stand_in.home / "bin" / "ngrok"  # as pyngrok installs it: it would download the program
    script.write_text("#!/bin/sh\ntouch downloaded\n")
    script.chmod(0o755)
    life.open("ngrok")
    soon(lambda: life.said)
    assert life.said[0].startswith("there is no tunnel: the program ngrok is not installed, and nothing is downloaded")
    assert stand_in.pid() is None
    # A real program on PATH is used.
    script.write_bytes(b"\x7fELF")
    life.said.clear()
    life.open("ngrok").address()
    assert str(script) in stand_in.args()


# ---------------------------------------------------------------- the words


def test_what_is_missing_is_said_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no program cloudflared on PATH"):
        Wanted("cloudflared").check()
    monkeypatch.setattr(tunnel, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[tunnel\]'"):
        Wanted("ngrok").check()
    Wanted("ssh").check()


def test_the_ssh_line_names_user_and_machine(monkeypatch):
    monkeypatch.setattr(tunnel.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(tunnel.socket, "gethostname", lambda: "node7")
    assert ssh_line(8060) == "ssh -L 8060:127.0.0.1:8060 ada@node7"
    assert ssh_line(8060, "::1") == "ssh -L 8060:[::1]:8060 ada@node7"

    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(tunnel.getpass, "getuser", nobody)
    monkeypatch.setattr(tunnel.socket, "gethostname", lambda: "")
    assert ssh_line(8060) == "ssh -L 8060:127.0.0.1:8060 USER@THIS_MACHINE"


@pytest.mark.parametrize(
    ("seconds", "words"), [(28_800, "8h"), (1800, "30m"), (5400, "90m"), (45, "45s"), (1.5, "1.5s")]
)
def test_times_are_written_as_they_are_given(seconds, words):
    assert spelled(seconds) == words


def test_a_host_is_allowed_within_the_context_alone():
    hosts = Hosts("127.0.0.1", exposed=False)
    with suppress(RuntimeError), hosts.also("a.example.org"):
        assert "a.example.org:443" in hosts
        assert "b.example.org" not in hosts
        with hosts.also("a.example.org"):
            pass
        assert "a.example.org" in hosts
        raise RuntimeError
    assert "a.example.org" not in hosts
    with hosts.also("localhost"):
        pass
    assert "localhost" in hosts


# ---------------------------------------------------------------- killed

DASHBOARD = """
import sys, threading
from tests.dashboard.test_server import app
from neuraldbg.dashboard.port import listen
from neuraldbg.dashboard.server import Server
from neuraldbg.dashboard.tunnel import Wanted
server = Server(app(), listen(port=0)[0])
server.tunnel(Wanted("cloudflared"), lambda said: print(said, flush=True)).start()
server.serve()
"""


@contextmanager
def dashboard_process(tmp_path):
    out = (tmp_path / "said").open("w+")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root), os.environ["PYTHONPATH"]])}
    process = subprocess.Popen([sys.executable, "-c", DASHBOARD], stdout=out, stderr=out, env=env)
    try:
        yield process, (tmp_path / "said").read_text
    finally:
        process.kill()
        process.wait()
        out.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_program_does_not_outlive_a_dashboard_that_is_killed(stand_in, tmp_path, how):
    with dashboard_process(tmp_path) as (process, said):
        soon(lambda: ADDRESS.search(said()))
        pid = stand_in.pid()
        assert alive(pid)
        process.send_signal(how)
        process.wait(SOON_S)
        soon(lambda: not alive(pid))
