"""The dashboard's server over real sockets: who is let in, what is said to others, and what a browser may do there."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import dash
import pytest
from dash import dcc, html
from plotly import graph_objects as go
from tests.browser import visiting

from neuraldbg.dashboard import PORT
from neuraldbg.dashboard.guard import Hosts
from neuraldbg.dashboard.port import address, listen
from neuraldbg.dashboard.server import Server
from neuraldbg.errors import ConfigError

SECRET = "the loss of somebody"
JSON = {"Content-Type": "application/json"}


def app():
    made = dash.Dash("page", serve_locally=True, update_title=None)
    drawn = go.Figure(go.Heatmap(z=[[1, 2], [3, 4]]), layout={"title": {"text": "a picture"}})
    made.layout = html.Div([html.H1(SECRET), dcc.Location(id="at"), dcc.Graph(figure=drawn), html.P(id="echo")])
    # As dash does with functions given as text: an inline script, which the policy must allow by its hash.
    made.clientside_callback("function(s) { return 'state ' + s; }", dash.Output("echo", "children"),
                             dash.Input("at", "search"))  # fmt: skip
    return made


@contextmanager
def served(**options):
    listening, _ = listen(port=0)
    server = Server(app(), listening, **options)
    thread = threading.Thread(target=server.serve, name="server-under-test")
    thread.start()
    try:
        yield Client(server)
    finally:
        server.stop()
        thread.join()


class Client:
    """Asks as a browser would, and remembers no cookie by itself."""

    def __init__(self, server):
        self.server = server
        self.place = urlsplit(server.url)
        self.token = parse_qs(self.place.query)["token"][0]

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.place.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in named)
        if body is not None and "Content-Length" not in named:
            named["Content-Length"] = str(len(body))
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        answer.text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer

    @property
    def cookie(self):
        return self.ask(f"/?token={self.token}").headers["Set-Cookie"].split(";")[0]


@contextmanager
def stranger():
    """Serve an empty page that has no policy."""
    from werkzeug.serving import make_server
    from werkzeug.wrappers import Response

    server = make_server("127.0.0.1", 0, Response("<p>hello", mimetype="text/html"), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def client():
    with served() as made:
        yield made


# ---------------------------------------------------------------- the token


def test_the_token_becomes_a_cookie_and_goes_from_the_address(client):
    answer = client.ask(f"/?tab=memory&token={client.token}&layer=a%26b%2F%3Cimg%3E")
    assert answer.status == 303
    assert answer.headers["Location"] == "/?tab=memory&layer=a%26b%2F%3Cimg%3E"
    value, *flags = answer.headers["Set-Cookie"].split("; ")
    assert set(flags) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert client.token not in value
    page = client.ask("/", Cookie=value)
    assert page.status == 200
    assert "<title>" in page.text
    assert json.loads(client.ask("/_dash-layout", Cookie=value).text)


@pytest.mark.parametrize(
    "path",
    ["/", "/?token=", "/?token=wrong", "/?tab=memory", "/_dash-layout", "/_dash-dependencies", "/_favicon.ico",
     "/assets/style.css", "/_dash-component-suites/dash/dash-renderer/build/dash_renderer.min.js", "/nowhere"],
)  # fmt: skip
def test_without_it_nothing_is_told(client, path):
    for cookie in ("", "neuraldbg=1", client.cookie[:-1], client.cookie.split("=")[0] + "=", "=;\x01;;"):
        answer = client.ask(path, Cookie=cookie)
        assert answer.status == 403
        assert answer.text.count("\n") == 1
        assert "token" in answer.text
        assert "Set-Cookie" not in answer.headers
        assert SECRET not in answer.text


def test_a_post_without_it_is_refused_even_from_our_own_page(client):
    origin = f"http://127.0.0.1:{client.place.port}"
    assert client.ask("/_dash-update-component", "POST", b"{}", Origin=origin, **JSON).status == 403


def test_the_exchange_leads_nowhere_else(client):
    for path in (f"//example.org/?token={client.token}", f"/%2F%2Fexample.org/?token={client.token}",
                 f"/?token={client.token}&next=http://example.org/%0d%0aSet-Cookie:x=1"):  # fmt: skip
        answer = client.ask(path)
        assert answer.status == 303
        assert re.match(r"/(\?|$)", answer.headers["Location"])
        assert not answer.headers["Location"].startswith("//")
        assert len(answer.headers.get_all("Set-Cookie")) == 1


def test_a_ticket_opens_once(client):
    path = "/?" + urlsplit(client.server.ticket()).query
    assert client.ask(path).status == 303
    assert client.ask(path).status == 403
    assert client.ask(f"/?token={client.token}").status == 303


def test_two_dashboards_of_one_host_keep_their_cookies_apart(client):
    with served() as other:
        both = f"{client.cookie}; {other.cookie}"
        assert client.cookie.split("=")[0] != other.cookie.split("=")[0]
        assert client.ask("/", Cookie=both).status == other.ask("/", Cookie=both).status == 200
        assert other.ask("/", Cookie=client.cookie).status == 403


# ---------------------------------------------------------------- host, origin, methods


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:{port}", "127.0.0.1.example.org", "localhost.example.org", "",
             "10.0.0.7:{port}", "user@example.org", "[::1", "127.0.0.1@example.org", "127.0.0.1,example.org",
             "0.0.0.0:{port}"]
)  # fmt: skip
def test_an_unknown_host_is_refused_before_anything_else(client, host):
    answer = client.ask(f"/?token={client.token}", Host=host.format(port=client.place.port), Cookie=client.cookie)
    assert (answer.status, answer.text) == (403, "This dashboard is not served under this host name.\n")
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:{port}", "LocalHost", "[::1]:{port}", "localhost:9000"])
def test_the_names_of_this_machine_are_known_also_through_a_tunnel(client, host):
    assert client.ask("/", Host=host.format(port=client.place.port), Cookie=client.cookie).status == 200


def test_an_exposed_server_is_known_by_its_addresses_and_its_own_name():
    exposed = Hosts("0.0.0.0", exposed=True)
    for host in ("10.0.0.7:8050", "[2001:db8::1]:8050", f"{socket.gethostname()}:8050", "localhost"):
        assert host in exposed
    for host in ("example.org", "10.0.0.7.example.org", "", None):
        assert host not in exposed
    assert "10.0.0.7" not in Hosts("127.0.0.1", exposed=False)


def test_a_post_comes_from_the_page_itself(client):
    own = f"http://127.0.0.1:{client.place.port}"
    wanted = {"output": "no.such", "inputs": [], "changedPropIds": []}
    for origin in (None, "null", "", "http://example.org", f"http://localhost:{client.place.port}", own[:-1],
                   f"ftp://127.0.0.1:{client.place.port}"):  # fmt: skip
        headers = {**JSON, "Cookie": client.cookie, **({} if origin is None else {"Origin": origin})}
        answer = client.ask("/_dash-update-component", "POST", json.dumps(wanted).encode(), **headers)
        assert (answer.status, answer.text) == (403, "This request comes from another page.\n"), origin
    answer = client.ask("/_dash-update-component", "POST", b"{}", Origin=own, Cookie=client.cookie, **JSON)
    assert answer.status not in {403, 405}, "the page's own requests reach the app"


def test_other_methods_and_large_requests_are_refused(client):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert client.ask("/", method, Cookie=client.cookie).status == 405
    own = {"Origin": f"http://127.0.0.1:{client.place.port}", "Cookie": client.cookie}
    for length in (str(5 << 20), "-1", "1e3"):
        answer = client.ask("/_dash-update-component", "POST", None, Content_Length=length, **own)
        assert answer.status == 413
    assert client.ask("/_dash-update-component", "POST", None, Transfer_Encoding="chunked", **own).status == 413


@pytest.mark.parametrize(
    "path",
    ["/assets/../../../../../../etc/passwd", "/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/assets//etc/passwd",
     "/_dash-component-suites/dash/../../../../../../etc/passwd", "/_dash-component-suites/dash/..%2f..%2fetc%2fpasswd",
     "/..%00/etc/passwd", "/_dash-component-suites/os/../etc/passwd", ("/file:" "///etc/passwd")],
)  # fmt: skip
def test_no_path_leads_to_other_files(client, path):
    answer = client.ask(path, Cookie=client.cookie)
    assert "root:" not in answer.text
    assert answer.status != 200 or "<title>" in answer.text, "unknown paths are the page"


# ---------------------------------------------------------------- what every answer says


def test_every_answer_carries_the_policy(client):
    asked = [client.ask("/"), client.ask("/", Host="example.org"), client.ask(f"/?token={client.token}"),
             client.ask("/", Cookie=client.cookie), client.ask("/_dash-layout", Cookie=client.cookie),
             client.ask("/", "PUT")]  # fmt: skip
    for answer in asked:
        rules = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
        assert rules["default-src"] == "'self'"
        assert rules["frame-ancestors"] == rules["object-src"] == rules["base-uri"] == "'none'"
        assert "unsafe" not in rules["script-src"]
        assert all(re.fullmatch(r"'self'|'sha256-[\w+/]+=*'", source) for source in rules["script-src"].split())
        assert not any("http" in rule or "*" in rule for rule in rules.values())
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Server"] == "neuraldbg"
        assert len(answer.headers.get_all("Content-Security-Policy")) == 1


def test_only_libraries_without_data_may_be_kept_by_the_browser(client):
    page = client.ask("/", Cookie=client.cookie).text
    scripts = re.findall(r'src="(/_dash-component-suites/[^"]+)"', page)
    assert scripts
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page), "nothing from the net"
    answer = client.ask(scripts[0], Cookie=client.cookie)
    assert answer.status == 200
    assert "no-store" not in answer.headers["Cache-Control"]


def test_nothing_is_logged(capfd):
    with served() as client:
        client.ask(f"/?token={client.token}")
        client.ask("/", Host="example.org")
        with socket.create_connection(("127.0.0.1", client.place.port)) as raw:
            raw.sendall(b"GET /?token=" + client.token.encode() + b" nonsense\r\n\r\n")
            raw.recv(4096)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- in a browser


def test_a_real_page_works_under_the_policy(client, browser):
    with visiting(browser) as visit:
        visit.page.goto(f"{client.server.url}&tab=memory")
        visit.page.wait_for_selector("#echo:text-is('state ?tab=memory')")
        visit.page.wait_for_selector(".js-plotly-plot .gtitle")
        assert visit.page.locator(".gtitle").text_content() == "a picture"
        assert "token" not in visit.page.url
        assert visit.page.evaluate("document.cookie") == ""
        visit.page.reload()
        visit.page.wait_for_selector(".js-plotly-plot .gtitle")
        assert visit.errors == []
        assert {urlsplit(address).netloc for address in visit.requests} == {client.place.netloc}


def test_what_gets_into_the_page_cannot_run(client, browser):
    with visiting(browser) as visit:
        visit.page.goto(client.server.url)
        visit.page.wait_for_selector("h1")
        visit.page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.ran = 1';
                document.body.append(script);
                setTimeout('window.ran = 2', 0);
                document.querySelector('h1').innerHTML = '<img src="/nowhere" onerror="window.ran = 3">';
            }"""
        )
        for _ in range(100):  # ten seconds for what a browser does in some milliseconds
            visit.page.wait_for_timeout(100)
            told = [error for error in visit.errors if "Content Security Policy" in error]
            if len(told) >= 3:
                break
        assert len(told) == 3, visit.errors
        assert visit.page.evaluate("window.ran === undefined")


def test_another_page_of_the_same_host_reaches_nothing(client, browser):
    """Of the same host, but another port: the browser sends it our cookie, too."""
    target = f"http://127.0.0.1:{client.place.port}"
    with stranger() as url, visiting(browser) as visit:
        visit.page.goto(client.server.url)
        visit.page.wait_for_selector("h1")
        visit.page.goto(url)
        read = "u => fetch(u, {credentials: 'include'}).then(r => r.text(), () => 'refused')"
        assert visit.page.evaluate(read, f"{target}/_dash-layout") == "refused"
        visit.page.evaluate(f"() => {{ document.body.innerHTML = '<iframe src=\"{target}/\"></iframe>' }}")
        visit.page.wait_for_timeout(500)
        framed = next(frame for frame in visit.page.frames if frame != visit.page.main_frame)
        assert framed.url.startswith("chrome-error:")


# ---------------------------------------------------------------- ports


def test_the_next_free_port_is_taken_and_said():
    first, _ = listen()
    with first:
        taken = first.getsockname()[1]
        second, said = listen()
        with second:
            number = second.getsockname()[1]
            assert PORT <= taken < number
            assert said == [f"port {PORT} is taken: the dashboard uses {number}"]
        with pytest.raises(ConfigError, match=rf"port {taken} is taken by another program.*choose another port"):
            listen(port=taken)


def test_another_host_needs_to_be_asked_for():
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0 would open.*--expose.*ssh -L 8050:127\.0\.0\.1:8050"):
        listen("0.0.0.0", 0)
    listening, said = listen("0.0.0.0", 0, expose=True)
    with listening:
        assert "whoever can reach this machine" in said[0]
        assert address(listening, "0.0.0.0").startswith(f"http://{socket.gethostname()}:")
    for host in ("127.0.0.1", "localhost"):
        listening, said = listen(host, 0)
        with listening:
            assert said == []
            assert address(listening, host) == f"http://{host}:{listening.getsockname()[1]}/"


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [("no.such.host.invalid", 0, "no such host"), ("127.0.0.1", 70_000, "cannot be used"),
     ("192.0.2.1", 0, "is no address of this machine")],
)  # fmt: skip
def test_a_place_that_cannot_be_had_is_told(host, port, words):
    with pytest.raises(ConfigError, match=words):
        listen(host, port, expose=True)
