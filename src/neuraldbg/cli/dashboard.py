"""``neuraldbg dashboard``: the page of a run or of a folder of runs, live while they go on."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuraldbg.cli.command import OK, Command, Result, examples
from neuraldbg.cli.tunnel_options import tunnel_options, wanted_tunnel
from neuraldbg.dashboard import CHARTS, HOST, PORT
from neuraldbg.errors import MissingExtra, RunFileError

if TYPE_CHECKING:
    from neuraldbg.dashboard.guard import Proxy
    from neuraldbg.dashboard.tunnel import Wanted

NEEDED = ("dash", "plotly", "dash_cytoscape", "yaml")

port_option = click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help=f"The port of the dashboard; 0: any that is free [default: {PORT}, or the next free one].",
)
theme_option = click.option(
    "--theme",
    type=click.Choice(("auto", "dark", "light")),
    help="The colours of the page [default: what neural_config.yaml says, or those of the system].",
)
tab_option = click.option(
    "--tab", type=click.Choice(CHARTS), help="The tab that the page opens at [default: the first one]."
)


@dataclass(frozen=True)
class Request:
    """The path, address and options that the command line gave."""

    path: Path
    port: int | None = None
    host: str = HOST
    expose: bool = False
    config: str | None = None
    browser: bool = True
    theme: str | None = None
    tab: str | None = None
    tunnel: Wanted | None = None


@examples(
    ("dashboard neuraldbg-runs", "all runs, those that go on too"),
    ("dashboard runs/one --port 8060 --no-browser", "over ssh -L 8060:127.0.0.1:8060"),
    ("dashboard neuraldbg-runs --tunnel", "print the ssh command to type on another machine"),
    ("dashboard neuraldbg-runs --tunnel cloudflared --tunnel-ttl 30m", "open an address on the internet for a while"),
)
@click.command("dashboard", cls=Command, short_help="Show runs in the browser, live while they go on.")
@click.argument("run", metavar="RUN")
@port_option
@click.option("--host", default=HOST, show_default=True, help="The address to listen on.")
@click.option("--expose", is_flag=True, help="Allow a --host that other machines can reach.")
@click.option(
    "--config", metavar="FILE", help="A YAML file with a section `dashboard` [default: neural_config.yaml, if there]."
)
@theme_option
@tab_option
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@tunnel_options
def COMMAND(  # noqa: N802 (the name is the contract)
    run: str,
    port: int | None,
    host: str,
    expose: bool,
    config: str | None,
    theme: str | None,
    tab: str | None,
    no_browser: bool,
    tunnel: str | None,
    tunnel_ttl: float | None,
) -> Result:
    """Serve a page that shows RUN: its diagnosis, and every layer at every step.

    RUN is a run folder, a folder of runs, or a .ndbg file; runs may still go on. Only this machine can open the page,
    and only with the address that is printed: it carries a token. Ctrl-C ends it.
    """
    need()
    through = wanted_tunnel(tunnel, tunnel_ttl)
    request = Request(Path(run), port, host, expose, config, not no_browser, theme, tab, through)
    return lambda: serve(request)


def need() -> None:
    """Raise MissingExtra unless what the dashboard needs is installed; imports none of it."""
    if not all(find_spec(name) for name in NEEDED):
        raise MissingExtra("the dashboard", "dashboard")


def serve(request: Request) -> int:
    """Show what is there until Ctrl-C."""
    from neuraldbg.dashboard.port import at_tab, listen  # noqa: PLC0415
    from neuraldbg.dashboard.run_feed import RunFeed  # noqa: PLC0415 (see command.py)
    from neuraldbg.dashboard.server import page_server  # noqa: PLC0415
    from neuraldbg.dashboard.settings import load_settings  # noqa: PLC0415

    settings = load_settings(request.config, theme=request.theme)
    feed = RunFeed(request.path, pace_s=settings.refresh_rate / 2)
    entries = feed.runs()
    if entries and all(entry.state == "unreadable" for entry in entries):  # a page could show nothing but this
        raise RunFileError(entries[0].problem)
    listening, said = listen(request.host, request.port, expose=request.expose)
    server = page_server(feed, settings, listening, host=request.host, expose=request.expose, proxy=_proxy())
    for sentence in said:
        click.echo(f"neuraldbg: {sentence}", err=True)
    click.echo(f"Dashboard of {request.path}: {at_tab(server.url, request.tab)}\nCtrl-C ends it.")
    if not entries:
        click.echo(
            f"There is no run in {request.path} or in folders just below it yet: the first is shown when it begins."
        )
    if request.tunnel is not None and request.tunnel.kind == "ssh":
        from neuraldbg.dashboard.tunnel import ssh_sentence  # noqa: PLC0415

        told = ssh_sentence(server.port, request.host)
        click.echo(f"{told[:1].upper()}{told[1:]}.")
    if request.browser and sys.stdout.isatty() and _has_screen():
        import webbrowser  # noqa: PLC0415 (only here)

        webbrowser.open(at_tab(server.ticket(), request.tab))
    feed.start()
    tunnel = None
    if request.tunnel is not None and request.tunnel.kind != "ssh":
        tunnel = server.tunnel(request.tunnel, lambda said: click.echo(f"neuraldbg: {said}", err=True))
        tunnel.start()
    try:
        server.serve()
    finally:
        if tunnel is not None:
            tunnel.close()
        feed.close()
    return OK


def _proxy() -> Proxy | None:
    """Return the proxy that has started this process (see ``integrations/jupyter_server.py``), None if none has. Its
    secret is taken out of the environment.
    """
    from neuraldbg.dashboard.guard import Proxy  # noqa: PLC0415

    path, secret = os.environ.pop("NEURALDBG_PROXY_PATH", ""), os.environ.pop("NEURALDBG_PROXY_SECRET", "")
    return Proxy(f"/{path.strip('/')}/" if path.strip("/") else "/", secret) if secret else None


def _has_screen() -> bool:
    """Return True if a browser would have a window: one in the terminal would take that away."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
