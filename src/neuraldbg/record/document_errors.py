"""The errors of reading a JSON document, each turned into one of ours that says what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from neuraldbg.errors import RunDamaged, RunFileError, RunNotFound
from neuraldbg.record import validation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def explained(path: Path, *, missing: str, damaged: str) -> Iterator[None]:
    """Turn what the block raises into RunNotFound, RunDamaged or RunFileError; those that it raises itself pass.

    ``missing`` names the document that is not there, and ``damaged`` is the sentence on one that is no whole document,
    with "{why}" where the reason belongs.
    """
    try:
        yield
    except FileNotFoundError:
        raise RunNotFound(f"there is no {missing} at {path}: no such file or folder.") from None
    except UnicodeDecodeError:
        raise RunDamaged(f"{path} is no JSON: it is not text in UTF-8.") from None
    except RunFileError:
        raise
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        why = validation.cut(f"{type(error).__name__}: {error}")
        raise RunDamaged(f"{path} {damaged.replace('{why}', why)}") from error
