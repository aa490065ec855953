"""The entry point of jupyter-server-proxy, started as that starts it and asked through a small proxy under a path."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.browser import visiting
from tests.dashboard.saved_runs import record

from neuraldbg.integrations.jupyter_server import proxied

SOURCE = Path(__file__).parents[2] / "src"
BASE = "/user/ada/"
SOON_S = 60


def soon(asked):
    until = time.monotonic() + SOON_S
    while not (answer := asked()):
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.05)
    return answer


def ask(port, path="/", method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        answer.text = answer.read().decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        connection.close()
    return answer


class Under(BaseHTTPRequestHandler):
    """Pass requests below a path on without it, with all their headers and those that are configured."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if not self.path.startswith(self.server.prefix):
            self.server.strays.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {**dict(self.headers.items()), **self.server.more}
        there = http.client.HTTPConnection("127.0.0.1", self.server.port_behind, timeout=30)
        there.request(self.command, self.path[len(self.server.prefix) - 1 :], body or None, headers)
        answer = there.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        there.close()

    do_POST = do_GET  # noqa: N815 (the name is the contract)

    def log_message(self, *_):
        pass


@pytest.fixture
def jupyter(tmp_path):
    """The dashboard as jupyter-server-proxy starts it, behind a proxy; gives the proxy and its settings."""
    record(tmp_path / "neuraldbg-runs" / "one")
    settings = proxied()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    filled = {"port": port, "base_url": BASE, "unix_socket": ""}
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        command = [part.format(**filled) for part in settings["command"]()]
    finally:
        os.chdir(before)
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    env |= {name: value.format(**filled) for name, value in settings["environment"].items()}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Under)
    server.prefix, server.port_behind, server.strays = f"{BASE}neuraldbg/", port, []
    server.more = {name: value.format(**filled) for name, value in settings["request_headers_override"].items()}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.command = command
    try:
        soon(lambda: ask(port))
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        process.terminate()
        process.communicate()


def test_the_settings_are_those_that_the_proxy_takes():
    """The keys are those of ``make_server_process`` in jupyter_server_proxy/config.py."""
    known = {"command", "environment", "timeout", "absolute_url", "port", "unix_socket", "mappath", "launcher_entry",
             "new_browser_tab", "request_headers_override", "rewrite_response"}  # fmt: skip
    settings = proxied()
    assert set(settings) <= known
    assert set(settings["launcher_entry"]) <= {"enabled", "icon_path", "title", "path_info", "category", "rank"}
    assert proxied()["request_headers_override"] != settings["request_headers_override"]  # a secret for each Jupyter
    (entry,) = [one for one in entry_points(group="jupyter_serverproxy_servers") if one.name == "neuraldbg"] or [None]
    if entry is not None:  # an old installation of this tree has no entry point
        assert entry.load() is proxied


def test_only_what_comes_through_the_proxy_needs_no_token(jupyter):
    behind, secret = jupyter.port_behind, jupyter.more["X-Neuraldbg-Proxy"]
    assert secret not in " ".join(jupyter.command)
    assert ask(jupyter.server_port, f"{BASE}neuraldbg/", Host="hub.example.org").status == 200
    assert ask(behind).status == 403
    assert ask(behind, Host="hub.example.org").status == 403
    assert ask(behind, X_Neuraldbg_Proxy="").status == 403
    assert ask(behind, X_Neuraldbg_Proxy=secret[:-1]).status == 403
    assert ask(behind, X_Neuraldbg_Proxy="é".encode().decode("latin-1")).status == 403
    post = {"method": "POST", "body": b"{}", "Content_Type": "application/json", "Host": "hub.example.org"}
    path = f"{BASE}neuraldbg/_dash-update-component"
    assert ask(jupyter.server_port, path, Origin="https://evil.example.org", **post).status == 403
    assert ask(jupyter.server_port, path, Origin="https://hub.example.org", **post).status == 400  # an empty question


def test_the_page_works_below_a_path(jupyter, browser):
    with visiting(browser) as visit:
        visit.page.goto(f"http://127.0.0.1:{jupyter.server_port}{BASE}neuraldbg/")
        visit.page.get_by_text("50 steps recorded").wait_for()
        visit.page.get_by_text("diagnosis up to date").wait_for()
        for name in ("Execution trace", "Runs"):
            visit.page.get_by_text(name, exact=True).first.click()
            visit.page.wait_for_load_state("networkidle")
        assert jupyter.strays in ([], ["/favicon.ico"])
        assert [error for error in visit.errors if "wheel sensitivity" not in error] == []


def test_no_address_of_a_script_is_written_without_its_path():
    """Scripts of the page ask below the path under which the page is."""
    assets = SOURCE / "neuraldbg" / "dashboard" / "page" / "assets"
    for file in assets.glob("*.js"):
        assert not re.search(r"""(fetch|Worker)\(["'`]/|src: *["'`]/""", file.read_text()), file.name


def test_the_folder_of_runs_may_be_named_and_have_braces(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURALDBG_RUNS", str(tmp_path / "{a}"))
    command = [part.format(port=1, base_url="/", unix_socket="") for part in proxied()["command"]()]
    assert command[4] == str(tmp_path / "{a}")
    assert (tmp_path / "{a}").is_dir()
    assert command[0] == sys.executable
