"""The dashboard's server under fire: requests that are none, clients that wait, vanish or come by the hundred.

Raw sockets against the real page of a real run file. Whatever is sent: an answer or a closed connection, nothing on the
terminal, and the next visitor finds the page.
"""

# ruff: noqa: E501, PT012, PTH208
from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.dashboard.served_page import MemoryFeed
from tests.record.known_steps import INFO, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.dashboard import bounded_server
from neuraldbg.dashboard.bounded_server import PLACES
from neuraldbg.dashboard.port import listen
from neuraldbg.dashboard.server import page_server
from neuraldbg.dashboard.settings import DashboardSettings
from neuraldbg.record import Recorder
from neuraldbg.saved import Run

UPDATE = "/_dash-update-component"


class Target:
    """A server, and what a visitor that it knows says to it."""

    def __init__(self, server):
        self.server = server
        place = urlsplit(server.url)
        self.port = place.port
        self.host = f"127.0.0.1:{self.port}"
        token = parse_qs(place.query)["token"][0]
        answer = self.ask(f"GET /?token={token} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        self.cookie = answer.split(b"Set-Cookie: ")[1].split(b";")[0].decode()
        self.page = self.get("/")

    def get(self, path, **headers):
        """Return a GET of somebody who is known."""
        named = {"Host": self.host, "Cookie": self.cookie, **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
        return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    def post(self, body, path=UPDATE, **headers):
        """Return a POST of the page itself; a header that is None is left out."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Host": self.host, "Cookie": self.cookie, "Origin": f"http://{self.host}",
                 "Content-Type": "application/json", "Content-Length": len(body)}  # fmt: skip
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value is not None)
        return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body

    def connected(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, request):
        """Send something and return all that comes back."""
        with self.connected() as opened:
            try:
                opened.sendall(request)
                opened.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before all of it was sent
            return received(opened)

    def works(self):
        return self.ask(self.page).startswith(b"HTTP/1.1 200 OK")

    def question(self):
        """Return the question that the page asks when it is opened, made as dash's own script makes it."""
        listed = json.loads(self.ask(self.get("/_dash-dependencies")).split(b"\r\n\r\n", 1)[1])
        (asked,) = [one for one in listed if one["clientside_function"] is None]
        given = {"address.search": "", "theme.data": "light", "tick.n_intervals": 0, "sight.data": []}
        outputs = []
        for name in asked["output"].strip(".").split("..."):
            which, _, what = name.rpartition(".")
            outputs.append([] if which.startswith("{") else {"id": which, "property": what.partition("@")[0]})
        return {
            "output": asked["output"],
            "outputs": outputs,
            "inputs": [{**one, "value": given.get(f"{one['id']}.{one['property']}")} for one in asked["inputs"]],
            "changedPropIds": ["theme.data"],
            "state": [{**one, "value": None} for one in asked["state"]],
        }


def received(opened):
    parts = []
    try:
        while part := opened.recv(1 << 16):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def status(answer):
    """Return the number in the first line, 0 for a connection that was closed without a word."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    recorder = Recorder(folder, RecordSettings(), INFO)
    for i in range(20):
        recorder.put(step(i), layout(), (event(i),) if i == 10 else ())
    recorder.close()
    listening, _ = listen(port=0)
    server = page_server(MemoryFeed(run=Run.load(folder)), DashboardSettings(), listening)
    thread = threading.Thread(target=server.serve, name="server-under-fire")
    thread.start()
    yield Target(server)
    server.stop()
    thread.join()


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd):
    yield
    assert capfd.readouterr() == ("", "")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def settled(count, least, seconds=10):
    """Wait until a count is down again; return it."""
    until = time.monotonic() + seconds
    while count() > least and time.monotonic() < until:
        time.sleep(0.02)
    return count()


# ---------------------------------------------------------------- requests that are none


ORIGINS = ["http://[", "http://]", "http://[::1", "http://127.0.0.1:99999999", "http://127.0.0.1:-1", "http://127.0.0.1:x",
           "http://a\x01b", "http://\x7f", "http://[x]:80"]  # fmt: skip
BODIES = [b"", b"abc", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
          b"9" * 100_000, b"{}", b'{"output": 5}', b'{"output": "no.such", "inputs": [], "changedPropIds": []}',
          b'{"output": {"a": 1}, "inputs": {}}', b'{"output": null}', b"{" + b'"a":1,' * 50_000, b"\x00" * 1000]  # fmt: skip


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_origin_that_is_none_is_a_bad_request(target, origin):
    assert status(target.ask(target.post({}, Origin=origin))) == 400
    assert target.works()


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_that_asks_nothing_is_a_bad_request(target, body):
    assert status(target.ask(target.post(body))) == 400
    assert target.works()


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "\xff",
                                  "application/jsonx"])  # fmt: skip
def test_a_body_of_another_type_is_a_bad_request(target, kind):
    assert status(target.ask(target.post(target.question(), Content_Type=kind))) == 400


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Content_Length": 500}, {400}),  # more is announced than comes
        ({"Content_Length": "1" * 5000}, {413}),
        ({"Content_Length": 2**63}, {413}),
        ({"Content_Length": -5}, {413}),
        ({"Content_Length": "\xb2"}, {413}),
        ({"Content_Length": None}, {400}),
        ({"Transfer_Encoding": "chunked"}, {413}),
        ({"Transfer_Encoding": "xchunked"}, {413}),
        ({"Host": "["}, {403}),
        ({"Host": "127.0.0.1:99999999"}, {200, 204, 400, 403}),
        ({"Host": None}, {403}),
        ({"Cookie": "=;\x01;;"}, {403}),
        ({"Cookie": "\xff" * 3000}, {403}),
        ({"Expect": "100-continue"}, {100}),
        ({"Upgrade": "websocket", "Connection": "Upgrade"}, {405}),
    ],
)
def test_odd_headers(target, headers, expected):
    assert status(target.ask(target.post(target.question(), **headers))) in expected
    assert target.works()


def lines(target):
    """Give heads that are none, and what may be said of them."""
    tail = f"Host: {target.host}\r\nCookie: {target.cookie}\r\n\r\n"
    return {
        b"": {0},
        b"\r\n\r\n": {0, 400},
        b"GET\r\n\r\n": {400},
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9 + b"\r\n\r\n": {400},  # a browser that tries https
        b"GET / HTTP/9.9\r\n\r\n": {505},
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n": {403, 400},
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n": {414, 0},
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n": {431},
        b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n": {431, 0},
        f"GET http://[/x HTTP/1.1\r\n{tail}".encode(): {400},
        f"GET //[/x HTTP/1.1\r\n{tail}".encode(): {200},
        f"GET /%00%0d%0aSet-Cookie:x HTTP/1.1\r\n{tail}".encode(): {200, 404},
        f"GET /?%ff%fe=&token=%00%ff&a=%ZZ HTTP/1.1\r\n{tail}".encode(): {403},
        f"GET /?{'a=1&' * 10_000}run=x HTTP/1.1\r\n{tail}".encode(): {200},
        f"GET /_dash-component-suites/nope/x.js HTTP/1.1\r\n{tail}".encode(): {404},
        f"GET /_dash-component-suites/dash/x.js?%00 HTTP/1.1\r\n{tail}".encode(): {404},
        f"GET /assets/%00.css HTTP/1.1\r\n{tail}".encode(): {404},
        f"POST / HTTP/1.1\r\n{tail}".encode(): {400, 403},
        f"BREW / HTTP/1.1\r\n{tail}".encode(): {405, 501},
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n": {403},
    }


def test_what_is_no_request_is_answered_in_a_line(target):
    for request, expected in lines(target).items():
        answer = target.ask(request)
        assert status(answer) in expected, (request[:60], answer[:200])
        if status(answer) not in {0, 200}:
            assert len(answer) < 2000
            assert b"Python" not in answer
            assert b"Werkzeug" not in answer
    assert target.works()


def test_one_connection_gets_one_answer(target):
    """What follows a request in its connection is never taken for another one."""
    for request in (target.page * 3, target.post({}) + target.page, target.post({}, Content_Length=0) + target.page,
                    target.post(b"0\r\n\r\n" + target.page, Content_Length=3, Transfer_Encoding="chunked")):  # fmt: skip
        answer = target.ask(request)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answer


# ---------------------------------------------------------------- the question of the page


def test_the_page_asks_and_is_answered(target):
    answer = target.ask(target.post(target.question()))
    assert status(answer) == 200
    assert b'"shown"' in answer


ODD = [None, 5, -1, 1.5, True, "x", "?run=%ff&step=99999999999999999999&tab=", [], ["x"], [[[]]], {}, {"a": {}}, {"rests": "x"},
       {"parts": [1]}, {"behind": {}}, {"head": 5}, {"shown": 1}, "\ud800", "a" * 100_000]  # fmt: skip


def test_a_question_with_odd_values_is_answered_or_a_bad_request(target):
    whole, counts = target.question(), {200: 0, 204: 0, 400: 0}
    for part in ("inputs", "state"):
        for place in range(len(whole[part])):
            for odd in ODD:
                asked = json.loads(json.dumps(whole))
                asked[part][place]["value"] = odd
                counts[status(target.ask(target.post(asked)))] += 1
    assert counts[200] > 50
    assert target.works()


def test_a_question_of_another_shape_is_a_bad_request(target):
    whole = target.question()
    for name in whole:
        for odd in (*ODD, "gone"):
            asked = {key: value for key, value in whole.items() if key != name}
            if odd != "gone":
                asked[name] = odd
            said = status(target.ask(target.post(asked)))
            assert said in ({200, 204, 400} if name in {"changedPropIds", "outputs"} else {400}), (name, odd)
    for part in ("inputs", "state", "outputs"):
        for odd in ODD:
            asked = {**whole, part: [odd, *whole[part][1:]]}
            assert status(target.ask(target.post(asked))) == 400 or (part == "outputs" and odd == []), (part, odd)
    assert target.works()


# ---------------------------------------------------------------- many, slow and gone


def test_two_hundred_requests_at_once_are_all_answered(target):
    found, gate = [], threading.Barrier(200)

    def visit():
        gate.wait()
        found.append(status(target.ask(target.page)))

    visitors = [threading.Thread(target=visit) for _ in range(200)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert found == [200] * 200


def test_connections_that_say_nothing_take_no_more_than_their_places(target):
    before, threads = descriptors(), threading.active_count()
    with ExitStack() as stack:
        for _ in range(5 * PLACES):
            stack.enter_context(target.connected())
        time.sleep(0.2)
        assert threading.active_count() - threads <= PLACES + 1
        assert descriptors() - before <= 5 * PLACES + PLACES + 8  # both ends of them are of this process
        assert target.works(), "who has said something comes first"
        assert threading.active_count() - threads <= PLACES + 1
    assert settled(threading.active_count, threads) <= threads
    assert settled(descriptors, before) <= before


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", None], ids=["nothing", "a head", "a body"]
)
def test_who_sends_a_byte_now_and_then_is_cut_off(target, monkeypatch, begin):
    monkeypatch.setattr(bounded_server, "REQUEST_S", 0.5)
    with target.connected() as slow:
        slow.sendall(target.post(b"{", Content_Length=1000) if begin is None else begin)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < began + 10:
                slow.sendall(b"a")
                time.sleep(0.02)
        assert time.monotonic() < began + 5
    assert target.works()


def test_who_does_not_take_the_answer_is_cut_off(target, monkeypatch):
    monkeypatch.setattr(bounded_server, "ANSWER_S", 0.5)
    threads = threading.active_count()
    script = "/_dash-component-suites/plotly/package_data/plotly.min.js"
    assert len(target.ask(target.get(script))) > 3_000_000
    with target.connected() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(target.get(script))
        assert settled(threading.active_count, threads) <= threads
    assert target.works()


def test_who_is_gone_before_the_answer_leaves_nothing(target):
    before, threads = descriptors(), threading.active_count()
    for number in range(100):
        opened = target.connected()
        opened.sendall(
            (target.page, target.post(target.page), target.page[:20], target.post(b"{}", Content_Length=90))[number % 4]
        )
        if number % 4 < 2:
            opened.recv(1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
        opened.close()
    assert target.works()
    assert settled(threading.active_count, threads) <= threads
    assert settled(descriptors, before) <= before


def test_no_thread_or_descriptor_left_is_no_end(target, monkeypatch):
    real, failing = threading.Thread.start, []

    def start(thread):
        if len(failing) < 3 and "process_request_thread" in thread.name:
            failing.append(thread)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(3):
        assert target.ask(target.page) == b""
    assert len(failing) == 3
    assert target.works()


def test_all_of_it_at_once_for_some_seconds(target):
    """Ten minutes of abuse in small: everything above, drawn by lot, from eight clients at once."""
    before, threads, until = descriptors(), threading.active_count(), time.monotonic() + 4
    heads, question, counts = list(lines(target)), target.question(), []

    def abuse(seed):
        draw, idle = random.Random(seed), []
        while time.monotonic() < until:
            request = draw.choice((*heads, target.page, target.post(draw.choice(BODIES)), target.post(question)))
            request = request[: draw.choice((len(request), draw.randrange(len(request) + 1)))]
            if draw.random() < 0.3:
                request = bytes(draw.choice((byte, byte, byte, draw.randrange(256))) for byte in request[:3000])
            opened = target.connected()
            try:
                opened.settimeout(0.05)
                opened.sendall(request)
                if draw.random() < 0.7:
                    opened.recv(draw.choice((1, 100_000)))
            except OSError:
                pass
            counts.append(seed)
            idle.append(opened)
            if len(idle) > 20 or draw.random() < 0.5:
                idle.pop(draw.randrange(len(idle))).close()
        for one in idle:
            one.close()

    clients = [threading.Thread(target=abuse, args=(seed,)) for seed in range(8)]
    for client in clients:
        client.start()
    while time.monotonic() < until:
        assert threading.active_count() - threads <= PLACES + len(clients) + 1
        time.sleep(0.05)
    for client in clients:
        client.join()
    assert len(counts) > 100
    assert target.works()
    assert settled(threading.active_count, threads) <= threads
    assert settled(descriptors, before) <= before
