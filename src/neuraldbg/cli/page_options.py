"""The options about a dashboard beside a training, which `run` and `debug` share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from neuraldbg.cli.dashboard import need, port_option, tab_option, theme_option
from neuraldbg.cli.tunnel_options import tunnel_options, wanted_tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.tunnel import Wanted

_NAMES = ("port", "theme", "tab", "tunnel", "tunnel_ttl")
PAGE = ("Dashboard", f"dashboard {' '.join(_NAMES)}")
"""Title of these options in the help of a command, with the names of their parameters."""


@dataclass(frozen=True)
class PageOptions:
    """The options of the page that the command line gave."""

    port: int | None = None
    """None is the usual one."""
    theme: str | None = None
    """Colours; None are those that the page has by itself."""
    tab: str | None = None
    """The tab that it opens at; None is the first one."""
    tunnel: Wanted | None = None
    """The way to it from other machines; None for none."""


def page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets what they say as ``page``, None without a dashboard.

    Raises MissingExtra and UsageError before the command begins.
    """

    @functools.wraps(function)
    def called(*, dashboard: bool, **given: Any) -> Any:
        asked = {name: given.pop(name) for name in _NAMES}
        if dashboard:
            need()
        else:
            for name, value in asked.items():
                if value is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} is the dashboard's: give --dashboard, too")
            return function(**given, page=None)
        through = wanted_tunnel(asked.pop("tunnel"), asked.pop("tunnel_ttl"))
        return function(**given, page=PageOptions(**asked, tunnel=through))

    shown = click.option(
        "--dashboard", is_flag=True, help="Show the run in the browser while it trains; it can be stopped there."
    )
    return shown(port_option(theme_option(tab_option(tunnel_options(called)))))
