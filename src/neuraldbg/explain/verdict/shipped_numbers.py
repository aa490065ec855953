"""Files of fitted or measured numbers that come with the package: each is read once, and validated."""

from __future__ import annotations

import importlib.resources
import json
from typing import TypeVar

from neuraldbg.checked_values import CheckedValues
from neuraldbg.errors import ConfigError

T = TypeVar("T", bound=CheckedValues)


def parsed(kind: type[T], text: str, file: str, schema: str) -> T:
    """Parse the text of a file as one of its kind. Raises ConfigError if it is damaged, or of another schema."""
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or values.pop("schema", None) != schema:
            message = f"it is no object with the schema {schema!r}"
            raise ValueError(message)  # noqa: TRY301 (one way to say what is wrong)
        return kind(values)
    except ValueError as error:
        message = f"{file} is damaged: {error}"
        raise ConfigError(message) from error


def text_of(file: str) -> str:
    """Return the text of a file of this package."""
    return importlib.resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
