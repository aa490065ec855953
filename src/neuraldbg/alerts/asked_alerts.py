"""The alerts that a user asks for: rules by which they are raised, ways by which they are told, and the rate limit."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from neuraldbg.arguments import function, seconds, texts, writable
from neuraldbg.arguments import path as path_of
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from neuraldbg.alerts.sink import Sink

EVERY_S = 60.0
"""Seconds in which at most one alert of a rule and subject is told, by default."""
ANY = "any"
"""The rule for every event that is a symptom."""


@dataclass(frozen=True)
class Alerts:
    """The alerts of a session: rules, and where an alert goes beside the run file and Python's logging.

    ``rules`` are texts such as ``nan``, ``exploding_gradients``, ``loss > 5`` or ``critical:loss > 5``; without them,
    and with a file, command or webhook, ``any``: every event that is a symptom. ``file`` gets one line of JSON for each
    alert. ``command`` (text that is split as by a shell, but run without one, or a list) is run with each alert: as
    JSON on its standard input, and in variables ``NEURALDBG_ALERT_...`` of its environment. ``webhook`` is an address,
    http or https, that the JSON is posted to. ``every`` is the number of seconds in which one rule raises at most one
    alert for one subject; the next says how many were held back. ``terminal`` prints each alert on standard error, by
    default where no handler of Python's logging gets it. ``say`` is called with the line instead of printing it.

    Raises ConfigError for a file that cannot be written, a command that is not there, or a wrong address.

    >>> Alerts(["nan", "critical:loss > 5"], file="alerts.jsonl", every=10).every
    10.0
    """

    rules: Sequence[str] | None = None
    """Rules as texts; None for ``any`` if there is a file, command or webhook, else for none."""
    file: str | os.PathLike[str] | None = None
    """File that gets a line of JSON for each alert."""
    command: str | Sequence[str] | None = None
    """Command that is run with each alert."""
    webhook: str | None = None
    """Address that each alert is posted to."""
    every: float = EVERY_S
    """Seconds in which one rule raises at most one alert for one subject."""
    terminal: bool | None = None
    """Whether alerts are printed on standard error; None to print where no handler of Python's logging gets them."""
    say: Callable[[str], None] | None = None
    """Function that is called with the line instead of printing it."""

    def __post_init__(self) -> None:
        ways = (self.file, self.command, self.webhook)
        rules = self.rules
        if rules is None:
            rules = (ANY,) if any(way is not None for way in ways) else ()
        function(self.say, "say")
        checked = {
            "rules": texts(rules, "rules"),
            "file": None if self.file is None else writable(path_of(self.file, "file"), "file"),
            "command": None if self.command is None else _runnable(self.command),
            "webhook": None if self.webhook is None else _address(self.webhook),
            "every": seconds(self.every, "every"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def sinks(self) -> list[Sink]:
        """Return the sinks that take time, the file first."""
        found: list[Sink] = []
        # Imported only where it is asked for: the webhook alone takes longer than all the rest of this room.
        if self.file is not None:
            from neuraldbg.alerts.alert_file import AlertFile  # noqa: PLC0415

            found.append(AlertFile(Path(self.file)))
        if self.command is not None:
            from neuraldbg.alerts.alert_command import AlertCommand  # noqa: PLC0415

            found.append(AlertCommand(tuple(self.command)))
        if self.webhook is not None:
            from neuraldbg.alerts.webhook import Webhook  # noqa: PLC0415

            found.append(Webhook(self.webhook))
        return found


def _runnable(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return a command as arguments, the program by its absolute path."""
    if isinstance(command, str):
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise ConfigError(f"command {command!r}: {str(error).lower()}; check the quotes") from None
        if signs := [word for word in words if word in _OF_SHELLS]:
            message = f"command {command!r}: no shell reads it, and {signs[0]!r} is of a shell: write sh -c "
            raise ConfigError(message + shlex.quote(command))
    else:
        words = texts(command, "command")
    if not words or not words[0]:
        raise ConfigError("command: give a program and its arguments, such as 'notify-send training'")
    found = shutil.which(words[0])
    if found is None:
        there = Path(words[0]).is_file()
        reason = "it is not executable (chmod +x)" if there else "there is no such program"
        raise ConfigError(f"command {words[0]!r}: {reason}")
    return (str(Path(found).absolute()), *words[1:])


_OF_SHELLS = frozenset({"|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1"})


def _address(url: object) -> str:
    """Return the address of a webhook."""
    wanted = "give an address such as https://example.org/alerts"
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise ConfigError(f"webhook: {wanted}, not {url!r:.60}")
    try:
        parts = urlsplit(url)
        _ = parts.port  # is read out of the text only now
    except ValueError as error:
        raise ConfigError(f"webhook: {wanted} ({error})") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"webhook: {wanted}; {url!r:.60} is neither http nor https")
    if not parts.hostname:
        raise ConfigError(f"webhook: {wanted}; this one names no host")
    return url
