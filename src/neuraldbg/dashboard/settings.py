"""The appearance of the dashboard: the section ``dashboard`` of a ``neural_config.yaml`` in, a DashboardSettings out.

    dashboard:
      theme: dark          # or light, auto
      refresh_rate: 1.0    # seconds
      max_history: 1000    # points of a line
      lease: 10            # seconds
      charts: [execution_trace, gradient_flow, memory_profile]

Other sections of the file belong to other tools, and are not constructed. YAML's merge keys and aliases are refused in
this section: a few lines of them can expand to a value of any size.
"""

from __future__ import annotations

import difflib
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neuraldbg.checked_values import CheckedValues, Field, InvalidValues
from neuraldbg.dashboard import CHARTS
from neuraldbg.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml.nodes import Node

CONFIG_FILE = "neural_config.yaml"
SECTION = "dashboard"
ALIASES = {"gradient_flow": "gradients", "memory_profile": "memory"}
"""Other names of tabs, which files of the Neural DSL use."""
MOST = 64 * 1024
"""Bytes of a configuration file at most."""
_MERGE = "tag:yaml.org,2002:merge"
_SHORT = reprlib.Repr()
_SHORT.maxlevel = _SHORT.maxlist = _SHORT.maxdict = 2


class DashboardSettings(CheckedValues):
    """The settings for the appearance of the dashboard's page."""

    theme: Literal["auto", "dark", "light"] = Field("auto", description="`auto` follows the system.")
    refresh_rate: float = Field(1.0, ge=0.1, le=3600, description="Seconds after which the page asks for new steps.")
    max_history: int = Field(1000, ge=10, le=100_000, description="Points that a line is drawn with, at most.")
    lease: float = Field(
        10.0, ge=1, le=3600, description="Seconds after which a stopped training goes on if no page is open any more."
    )
    charts: tuple[str, ...] = Field(CHARTS, min_length=1, description="The tabs to show, in this order.")

    @classmethod
    def completed(cls, name: str, value: Any) -> Any:
        """Replace aliases by the ids of tabs, and remove duplicates. Raises ValueError for unknown names."""
        if name != "charts":
            return value
        unknown = [f"no chart is called {one!r}{_nearest(one, (*CHARTS, *ALIASES))}" for one in value
                   if one not in CHARTS and one not in ALIASES]  # fmt: skip
        if unknown:
            raise ValueError("; ".join(unknown))
        return tuple(dict.fromkeys(ALIASES.get(one, one) for one in value))


def load_settings(path: str | Path | None = None, *, theme: str | None = None) -> DashboardSettings:
    """Read a configuration file; without a path, ``neural_config.yaml`` of the working directory if it exists. A theme
    goes before the file's.

    Raises ConfigError, which names all wrong keys and values of the section with the valid ones, and MissingExtra
    without PyYAML.
    """
    file = Path(CONFIG_FILE) if path is None else Path(path)
    if path is None and not file.is_file():
        return DashboardSettings({} if theme is None else {"theme": theme})
    section = {**_section(file), **({} if theme is None else {"theme": theme})}
    try:
        return DashboardSettings(section)
    except InvalidValues as error:
        wrong = [f"  {line}" for line in _lines(error)]
        raise ConfigError("\n".join([f"{file}: the section {SECTION!r} has wrong settings:", *wrong])) from None


def _section(file: Path) -> dict[Any, Any]:
    try:
        import yaml  # noqa: PLC0415 (of an extra)
    except ImportError:
        raise MissingExtra("reading a configuration file", "dashboard") from None
    text = _text(file)
    try:
        return _built(text, file)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a date that does not exist is a ValueError
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is no valid YAML: {error}") from None


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST + 1)
        if len(content) > MOST:
            raise ConfigError(f"{file} has more than {MOST // 1024} kB: that is no file of settings")
        return content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text in UTF-8") from None


def _built(text: str, file: Path) -> dict[Any, Any]:
    """Construct the section, and no other part of the file."""
    import yaml  # noqa: PLC0415 (of an extra)

    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None or root.tag == "tag:yaml.org,2002:null":
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{file}: expected sections such as `{SECTION}:`, not a {root.id}")
        sections = {key.value: node for key, node in root.value if isinstance(key, yaml.ScalarNode)}
        if SECTION not in sections:
            meant = difflib.get_close_matches(SECTION, list(sections), n=1)
            if meant:
                raise ConfigError(f"{file}: unknown section {meant[0]!r}. Did you mean {SECTION!r}?")
            return {}
        _check_plain(sections[SECTION], file)
        section = loader.construct_document(sections[SECTION])
    finally:
        loader.dispose()
    if section is not None and not isinstance(section, dict):
        raise ConfigError(f"{file}: the section {SECTION!r} holds settings by name, not {_SHORT.repr(section)}")
    return section or {}


def _check_plain(section: Node, file: Path) -> None:
    """Raise ConfigError for merge keys and aliases, before the section is constructed."""
    seen: set[int] = set()
    waiting = [section]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or node.tag == _MERGE:
            raise ConfigError(
                f"{file}: the section {SECTION!r} uses an alias (*name) or a merge key (<<): write the settings out"
            )
        seen.add(id(node))
        if isinstance(node.value, list):  # of nodes, or of pairs of nodes
            waiting += [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]


def _lines(error: InvalidValues) -> Iterator[str]:
    """Yield a sentence for each problem, with the valid names or values."""
    for problem in error.problems:
        if problem.known:
            yield f"unknown setting {problem.name!r}{_nearest(problem.name, problem.known)}"
        else:
            yield f"{problem.name}: {problem}"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(known)})"
