"""How the dashboard looks: the section ``dashboard`` of a ``neural_config.yaml`` to a DashboardSettings.

    dashboard:
      theme: dark          # or light, auto
      refresh_rate: 1.0    # seconds
      max_history: 1000    # points of a line
      charts: [execution_trace, gradient_flow, memory_profile]

Other sections of the file are other tools' and are left alone.
"""

from __future__ import annotations

import difflib
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator

from neuraldbg.config import Thresholds
from neuraldbg.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG_FILE = "neural_config.yaml"
SECTION = "dashboard"
CHARTS = ("diagnosis", "execution_trace", "gradients", "activations", "memory", "anomalies", "compare", "runs")
"""The tabs, in their order."""
ALIASES = {"gradient_flow": "gradients", "memory_profile": "memory"}
"""Other names of tabs, as the files of the Neural DSL have them."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel = _SHORT.maxlist = _SHORT.maxdict = 2  # a few lines of YAML can stand for a value without end


class DashboardSettings(Thresholds):
    """The appearance of the page."""

    theme: Literal["auto", "dark", "light"] = Field("auto", description="`auto` follows the system.")
    refresh_rate: float = Field(1.0, ge=0.1, le=3600, description="Seconds after which the page asks for new steps.")
    max_history: int = Field(1000, ge=10, le=100_000, description="Points that a line is drawn with, at most.")
    charts: tuple[str, ...] = Field(CHARTS, min_length=1, description="The tabs to show, in this order.")

    @field_validator("charts")
    @classmethod
    def _named(cls, charts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tabs' own names, each once."""
        unknown = [f"no chart is called {name!r}{_nearest(name, (*CHARTS, *ALIASES))}" for name in charts
                   if name not in CHARTS and name not in ALIASES]  # fmt: skip
        if unknown:
            raise ValueError("; ".join(unknown))
        return tuple(dict.fromkeys(ALIASES.get(name, name) for name in charts))


def load_settings(path: str | Path | None = None) -> DashboardSettings:
    """Read a configuration file; without one, ``neural_config.yaml`` of the working directory if it is there.

    ConfigError names every wrong key and value of the section at once, each with what it may be.
    """
    file = Path(CONFIG_FILE) if path is None else Path(path)
    if path is None and not file.is_file():
        return DashboardSettings()
    section = _section(file)
    try:
        return DashboardSettings.model_validate(section)
    except ValidationError as error:
        wrong = [f"  {line}" for line in _lines(error)]
        raise ConfigError("\n".join([f"{file}: the section {SECTION!r} has wrong settings:", *wrong])) from None


def _section(file: Path) -> dict[Any, Any]:
    try:
        import yaml  # noqa: PLC0415 (of an extra)
    except ImportError:
        raise MissingExtra("reading a configuration file", "dashboard") from None
    try:
        whole = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text in UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a date that does not exist is a ValueError
        raise ConfigError(f"{file} is no valid YAML: {error}") from None
    if whole is None:
        return {}
    if not isinstance(whole, dict):
        raise ConfigError(f"{file}: expected sections such as `{SECTION}:`, not {_SHORT.repr(whole)}")
    if SECTION not in whole:
        meant = difflib.get_close_matches(SECTION, [str(key) for key in whole], n=1)
        if meant:
            raise ConfigError(f"{file}: unknown section {meant[0]!r}. Did you mean {SECTION!r}?")
        return {}
    section = whole[SECTION]
    if section is not None and not isinstance(section, dict):
        raise ConfigError(f"{file}: the section {SECTION!r} holds settings by name, not {_SHORT.repr(section)}")
    return section or {}


def _lines(error: ValidationError) -> Iterator[str]:
    """Say each problem, and what would be right."""
    known = tuple(DashboardSettings.model_fields)
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0])
        if problem["type"] in {"extra_forbidden", "invalid_key"}:
            yield f"unknown setting {name!r}{_nearest(name, known)}"
            continue
        where = f"{name}[{problem['loc'][1]}]" if len(problem["loc"]) > 1 else name
        yield f"{where}: {problem['msg'].removeprefix('Value error, ')}, not {_SHORT.repr(problem['input'])}"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(known)})"
