"""The port of the dashboard: a host and a port in, a listening socket and the page's address out.

It imports only the standard library: ``neuraldbg run`` binds the port before the program that it watches begins.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from neuraldbg.dashboard import HOST, PORT
from neuraldbg.errors import ConfigError

TOKEN = "token"  # noqa: S105 (the name of the parameter)
_TRIES = 100
_BACKLOG = 256
"""Connections that may wait to be accepted: a new page requests a dozen files at once."""


def listen(host: str = HOST, port: int | None = None, *, expose: bool = False) -> tuple[socket.socket, list[str]]:
    """Return a listening socket, and sentences about it for the user.

    Without ``port`` it is 8050 or the next free port. Raises ConfigError if ``port`` is not available, and for a host
    that other machines can reach, unless ``expose`` is True.
    """
    family, place = _resolved(host)
    said = []
    # Traffic is unencrypted, so a host that other machines can reach needs ``expose``, too.
    if not ipaddress.ip_address(place).is_loopback:
        if not expose:
            raise ConfigError(
                f"--host {host} would open the dashboard to other machines: whoever gets its address could read the "
                "run, unencrypted. Add --expose if that is wanted; safer is a tunnel: "
                f"ssh -L {port or PORT}:{HOST}:{port or PORT} THIS_MACHINE"
            )
        said.append(
            f"the dashboard listens on {host}: whoever can reach this machine and has the address with its token can "
            "read the run, and what is read travels unencrypted"
        )
    if port is not None:
        return _bound(family, place, port), said
    # Only the default port may be replaced by another one.
    for number in range(PORT, PORT + _TRIES):
        try:
            found = _bound(family, place, number)
        except _Taken:
            continue
        if number != PORT:
            said.append(f"port {PORT} is taken: the dashboard uses {number}")
        return found, said
    raise ConfigError(f"the ports {PORT} to {PORT + _TRIES - 1} are all taken: choose one with --port")


def address(listening: socket.socket, host: str) -> str:
    """Return the page's URL without a token."""
    port = listening.getsockname()[1]
    name = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 (recognised, not chosen)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def opening(root: str, token: str) -> str:
    """Return the page's URL with the token."""
    return f"{root}?{TOKEN}={token}"


def at_tab(url: str, tab: str | None) -> str:
    """Return the URL with a token of a page that opens at a tab, None for the first one."""
    return f"{url}&tab={tab}" if tab is not None else url


class _Taken(ConfigError):
    """Raised if another program listens on a port."""


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ConfigError(f"--host {host}: no such host; give an address of this machine") from None
    return family, str(place[0])


def _bound(family: socket.AddressFamily, place: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would share the port with a program that already listens there
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((place, port))
        made.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise _Taken(
                f"port {port} is taken by another program: end it, or choose another port (0: any that is free)"
            ) from None
        if number == errno.EADDRNOTAVAIL:
            raise ConfigError(f"--host {place} is no address of this machine") from None
        raise ConfigError(f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}") from None
    return made
