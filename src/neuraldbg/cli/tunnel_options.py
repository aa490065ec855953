"""The options of a tunnel to the dashboard: ``--tunnel [KIND]`` and ``--tunnel-ttl``, from text to a Wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.tunnel import Wanted

KINDS = ("ssh", "ngrok", "cloudflared")
"""Kinds of tunnels; for ``ssh`` the command to type is printed, and nothing leaves the machine."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 30 * 86_400
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A time with its unit: ``45s``, ``30m``, ``2h``, ``1d``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        match = _TIME.fullmatch(str(value).strip().lower())
        seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
        if not 1 <= seconds <= _LONGEST_S:
            self.fail(f"{value!r} is no time from 1s to 30d: give a number and a unit: 45s, 30m, 2h, 1d", param, ctx)
        return seconds


class KindOption(click.Option):
    """An option whose value may be left out, also where another word follows: a word that is no kind stays what it is.

    click would take the next word, such as the script, as the value.
    """

    def written_out(self, args: list[str], params: list[click.Parameter], *, interspersed: bool) -> list[str]:
        """Return a command line in which the option has its value, up to the first argument unless arguments and
        options may alternate.
        """
        takes = {name for one in params if isinstance(one, click.Option) and not one.is_flag and not one.count
                 for name in one.opts}  # fmt: skip
        done, left = [], list(args)
        while left:
            word = left.pop(0)
            if word in self.opts:
                given = left.pop(0) if left and left[0].lower() in KINDS else KINDS[0]
                done.append(f"{word}={given}")
                continue
            done.append(word)
            if word == "--" or (not interspersed and (not word.startswith("-") or word == "-")):
                break
            if _wants_next(word, takes) and left:
                done.append(left.pop(0))
        return done + left


def _wants_next(word: str, takes: set[str]) -> bool:
    """Return True if the value of an option is the next word."""
    if word.startswith("--") or not word.startswith("-"):
        return word in takes
    for place, letter in enumerate(word[1:], 2):  # `-vo DIR`, `-oDIR`
        if f"-{letter}" in takes:
            return place == len(word)
    return False


_tunnel = click.option(
    "--tunnel",
    cls=KindOption,
    is_flag=False,
    flag_value="ssh",
    type=click.Choice(KINDS, case_sensitive=False),
    help="Reach the dashboard from another machine. Alone or with `ssh` it prints the ssh command to type there, and "
    "nothing leaves this machine. `ngrok` (by pyngrok) and `cloudflared` open an address on the internet: still only "
    "with the token, and closed at the end.",
)
_ttl = click.option(
    "--tunnel-ttl",
    type=Duration(),
    metavar="TIME",
    help="Close the tunnel of ngrok or cloudflared after this time, such as 30m or 2h [default: 8h].",
)


def tunnel_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--tunnel`` and ``--tunnel-ttl``."""
    return _tunnel(_ttl(command))


def wanted_tunnel(kind: str | None, ttl_s: float | None) -> Wanted | None:
    """Return the tunnel that is asked for; None for none. Raises UsageError, ConfigError and MissingExtra."""
    if ttl_s is not None and kind in {None, "ssh"}:
        raise click.UsageError("--tunnel-ttl is for --tunnel ngrok and --tunnel cloudflared")
    if kind is None:
        return None
    from neuraldbg.dashboard.tunnel import TTL_S, Wanted  # noqa: PLC0415 (see command.py)

    wanted = Wanted(kind, TTL_S if ttl_s is None else ttl_s)
    wanted.check()
    return wanted
