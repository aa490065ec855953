"""The file `neural_config.yaml` of the working directory, whose sections give defaults of the options of commands.

Its section `dashboard` is the page's, and is read there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neural.errors import ConfigUnreadable, MissingPackage, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_FILE = "neural_config.yaml"
_PAGE = "dashboard"
_NUMBERS = ("STEP", "TIME", "X")
"""What the help calls values of options that are texts to click, and may be numbers of YAML."""
_MOST = 64 * 1024
"""Bytes of such a file at most, as for the dashboard."""


def defaults(group: click.Group, path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the defaults by command and parameter, {} without a file.

    ConfigUnreadable is raised with every key that no command has, and every value that its option does not take.
    """
    path = path or Path(CONFIG_FILE)
    if not path.is_file():
        return {}
    problems: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    for section, values in _sections(path).items():
        if section == _PAGE:
            continue
        command = group.commands.get(str(section))
        if command is None:
            near = _near(str(section), (*group.commands, _PAGE))
            problems.append(f"no command is called {str(section)!r}{near}")
        elif not isinstance(values, dict):
            problems.append(f"{section}: expected options with values, such as `{_example(command)}`")
        else:
            found[str(section)] = _options(command, values, problems)
    if problems:
        raise ConfigUnreadable("\n".join([f"{path} has wrong settings:", *(f"  {problem}" for problem in problems)]))
    return found


def _sections(path: Path) -> Mapping[Any, Any]:
    try:
        import yaml  # noqa: PLC0415 (of an extra)
    except ImportError:
        raise MissingPackage("pyyaml") from None
    try:
        content = path.read_bytes()
        if len(content) > _MOST:
            raise ConfigUnreadable(f"{path} has more than {_MOST // 1024} kB: that is no file of settings")
        told = yaml.safe_load(content.decode("utf-8"))
    except OSError as error:
        raise ConfigUnreadable(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigUnreadable(f"{path} is no text in UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ConfigUnreadable):
            raise
        raise ConfigUnreadable(f"{path} is no valid YAML: {error}") from None
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise ConfigUnreadable(f"{path}: expected sections such as `run:`, not a {type(told).__name__}")
    return told


def _options(command: click.Command, values: Mapping[Any, Any], problems: list[str]) -> dict[str, Any]:
    """Return the values of one section by the names of click's parameters."""
    options = {name: option for option in _settable(command) for name in _names(option)}
    found: dict[str, Any] = {}
    context = click.Context(command)
    for key, value in values.items():
        name = str(key).replace("_", "-")
        option = options.get(name)
        if option is None:
            problems.append(f"{command.name}: there is no option {str(key)!r}{_near(name, options)}")
            continue
        given = value if not option.multiple or isinstance(value, list) else [value]
        wanted = _wrong_type(option, given)
        if wanted:
            problems.append(f"{command.name}: {key}: expected {wanted}, not {_shown(value)}")
            continue
        try:
            option.type_cast_value(context, given)
        except (click.ClickException, TypeError, ValueError, AttributeError) as error:
            said = error.message if isinstance(error, click.ClickException) else str(error)
            problems.append(f"{command.name}: {key}: {said}")
            continue
        found[str(option.name)] = given
    return found


def _wrong_type(option: click.Option, given: Any) -> str:
    """Return words for what an option takes if a value is of another type, which click would convert; else ""."""
    if given is None:
        return ""
    if option.is_flag:
        return "" if isinstance(given, bool) else "true or false"
    types: tuple[type, ...]
    match option.type:
        case click.types.IntParamType():
            types, words = (int, str), "a whole number"
        case click.types.FloatParamType():
            types, words = (int, float, str), "a number"
        case _ if option.metavar in _NUMBERS:
            types, words = (int, float, str), "a number or a text"
        case _:
            types, words = (str,), 'a text in quotation marks, such as "name"'
    values = given if isinstance(given, list) and (option.multiple or option.nargs > 1) else [given]
    return "" if all(isinstance(each, types) and not isinstance(each, bool) for each in values) else words


def _shown(value: Any) -> str:
    """Return a value as YAML has it, shortened."""
    words = str(value).lower() if isinstance(value, bool) else repr(value)
    return words if len(words) <= 40 else words[:37] + "..."


def _settable(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.is_eager]


def _names(option: click.Option) -> list[str]:
    return [name.removeprefix("--") for name in option.opts if name.startswith("--")]


def _example(command: click.Command) -> str:
    names = [name for option in _settable(command) for name in _names(option)]
    return f"{names[0]}: ..." if names else "..."


def _near(name: str, known: Any) -> str:
    found = nearest(name, known)
    return f"; did you mean {found!r}?" if found else f"; there are: {', '.join(sorted(known))}"
