"""The options of alerts, halts and thresholds, which `run` and `debug` share: options in, keywords of a session out.

All of it is checked before the program begins. Without these options nothing of it is imported.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from neuraldbg.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from neuraldbg.ranks import Rank

_SHORT = {"vanishing_threshold": "vanishing_gradients.floor", "activation_threshold": "dead_units.share"}
"""Thresholds with an option of their own."""
_OPTIONS = (
    click.option(
        "--alert",
        "alert",
        multiple=True,
        metavar="RULE",
        help="Alert during the training: when an event begins (`loss_spike`, `gradient_health`, `any`), when a cause "
        "becomes credible (at least 50% sure), or when a condition holds ('loss > 5'). A severity may stand in front: "
        "'critical:loss > 5'. May be given several times.",
    ),
    click.option("--alert-on-nan", is_flag=True, help="Alert when a value is NaN or infinite: the rule `nan`."),
    click.option(
        "--alert-file",
        metavar="FILE",
        help="Append each alert to FILE, as one line of JSON. With this or one of the next two, and no rule, the rule "
        "is `any`.",
    ),
    click.option(
        "--alert-command",
        metavar="CMD",
        help="Run a command with each alert, as JSON on its standard input and in NEURALDBG_ALERT_... variables.",
    ),
    click.option("--alert-webhook", metavar="URL", help="Send each alert to an address, as JSON by POST."),
    click.option(
        "--alert-every",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Give at most one alert of a rule in so many seconds; 0 gives all [default: 60].",
    ),
    click.option(
        "--halt",
        is_flag=True,
        help="Stop the training before a bad step is applied: a loss or gradient that is not finite or far too large. "
        "The stop is an alert, too, if alerts are asked for.",
    ),
    click.option(
        "--threshold",
        multiple=True,
        metavar="DETECTOR.NAME=VALUE",
        help="Change a threshold of a detector, or of --halt (trigger.spike_factor=5). May be given several times.",
    ),
    click.option(
        "--vanishing-threshold",
        metavar="X",
        help="The RMS of a layer's gradient below which it has vanished: vanishing_gradients.floor [default: 1e-7].",
    ),
    click.option(
        "--activation-threshold",
        metavar="X",
        help="The share of a layer's units that may be dead: dead_units.share [default: 0.5].",
    ),
)
_WAYS = ("alert_file", "alert_command", "alert_webhook")
_NAMES = ("alert", "alert_on_nan", *_WAYS, "alert_every", "halt", "threshold", *_SHORT)
ALERTS = ("Alerts and halt", " ".join(_NAMES))
"""Title of these options in the help of a command, with the names of their parameters."""


def alert_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets what they say as ``asked``, for ``keywords_of``."""

    @functools.wraps(function)
    def called(**given: Any) -> Any:
        asked = {name: given.pop(name) for name in _NAMES}
        return function(**given, asked=asked)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def keywords_of(asked: Mapping[str, Any], rank: Rank, *, quiet: bool = False) -> dict[str, Any]:
    """Return the keywords of the session that the options mean; {} without any. Raises ConfigError and UsageError."""
    found: dict[str, Any] = {"halt": True} if asked["halt"] else {}
    alerts = _alerts(asked, terminal=not quiet and not rank.secondary)
    if alerts is not None:
        found["alerts"] = alerts
    groups = _thresholds(asked)
    if trigger := groups.pop("trigger", None):
        if not asked["halt"]:
            raise click.UsageError("--threshold trigger.… is for --halt: give --halt, too")
        found["settings"] = {"trigger": trigger}
    if groups:
        found["thresholds"] = groups
    if "thresholds" in found or "settings" in found:
        given = [name for name in ("threshold", *_SHORT) if asked[name] not in (None, ())]
        _check_thresholds(found, " or ".join(f"--{name.replace('_', '-')}" for name in given))
    return found


def with_line(keywords: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
    """Return the keywords with alerts that are printed by a function, such as that of the status line."""
    alerts = keywords.get("alerts")
    if alerts is None or not alerts.terminal:
        return keywords
    from dataclasses import replace  # noqa: PLC0415 (only with alerts)

    return {**keywords, "alerts": replace(alerts, say=say)}


def _alerts(asked: Mapping[str, Any], *, terminal: bool) -> Any:
    """Return the Alerts that the options mean; None if there are none."""
    rules = [*(["nan"] if asked["alert_on_nan"] else []), *asked["alert"]]
    ways = {name.removeprefix("alert_"): asked[name] for name in _WAYS}
    every = asked["alert_every"]
    if not rules and all(way is None for way in ways.values()):
        if every is not None:
            raise click.UsageError("--alert-every is for alerts: give --alert or --alert-on-nan, too")
        return None
    from neuraldbg.alerts import Alerts  # noqa: PLC0415 (a program without alerts needs none of it)
    from neuraldbg.alerts.asked_alerts import EVERY_S  # noqa: PLC0415

    _check_rules(rules)
    try:
        return Alerts(rules or None, every=EVERY_S if every is None else every, terminal=terminal, **ways)
    except ConfigError as error:
        raise ConfigError(f"--alert-{error}") from None


def _check_rules(rules: Iterable[str]) -> None:
    """Refuse a rule that names nothing, and a condition that cannot be parsed."""
    from neuraldbg.control.alert_rules import EVENTS, rule_of  # noqa: PLC0415 (imports numpy)
    from neuraldbg.explain import meaning  # noqa: PLC0415
    from neuraldbg.nouns import Layout  # noqa: PLC0415

    for text in rules:
        try:
            rule = rule_of(text)
            if rule.condition is None and rule.name.lower() != EVENTS:
                meaning(rule.name, Layout(()))
        except UnknownName as error:
            hint = "A condition reads like 'loss > 5'; 'any' is every event, and a layer's is 'layer.rms > 100'."
            raise click.UsageError(f"--alert: {error} {hint}") from None
        except ConfigError as error:
            raise click.UsageError(f"--alert: {error}") from None


def _thresholds(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the thresholds by detector."""
    given = [f"{target}={asked[name]}" for name, target in _SHORT.items() if asked[name] is not None]
    groups: dict[str, dict[str, Any]] = {}
    for text in (*given, *asked["threshold"]):
        place, equals, value = text.partition("=")
        detector, dot, name = place.strip().partition(".")
        if not (equals and dot and detector and name and value.strip()):
            message = f"--threshold {text}: write DETECTOR.NAME=VALUE, such as vanishing_gradients.floor=1e-5"
            raise click.UsageError(message)
        groups.setdefault(detector, {})[name] = _number(value.strip())
    if "share" in groups.get("dead_units", {}) and asked["activation_threshold"] is not None:
        share = groups["dead_units"]["share"]
        if isinstance(share, (int, float)) and "leave" not in groups["dead_units"]:
            groups["dead_units"]["leave"] = min(0.4, 0.8 * share)  # the episode ends below the share, as by default
    return groups


def _number(text: str) -> Any:
    """Return the value that a text means: a number, a truth value, None, or the text itself."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_thresholds(found: Mapping[str, Any], options: str) -> None:
    """Refuse a threshold that does not exist, with the nearest names, and a value out of range. ``options`` are those
    that were given.
    """
    from neuraldbg.config import settings_of  # noqa: PLC0415
    from neuraldbg.detect.watch import Watch  # noqa: PLC0415 (imports numpy)

    try:
        settings_of(found.get("settings"), None, 0.01, probes=True)
        Watch(found.get("thresholds"))
    except ConfigError as error:
        raise click.UsageError(f"{options}: {error}") from None
