"""The stand-in for a part of a session that its settings switch off: recording does nothing, asking says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


class SwitchedOff:
    """Stands for a part that is off. ``recording`` has the methods that do nothing, by name with what they return."""

    def __init__(self, part: str, setting: str, recording: Mapping[str, Any]) -> None:
        self._part, self._setting, self._recording = part, setting, recording

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._recording:
            returned = self._recording[name]
            return lambda *args, **named: returned  # noqa: ARG005
        raise ConfigError(f"{self._part} is off: leave out {self._setting}=False to use {name}")

    def __repr__(self) -> str:
        return f"<{self._part}: off, by {self._setting}=False>"
