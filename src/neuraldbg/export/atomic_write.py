"""Atomic writes of files that appear whole or not at all, and replace nothing without permission.

The target path of a file or folder enters; a temporary path beside it leaves, which is renamed to the target when
everything has been written.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError, ExportFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD = 1024
_MARKS = (b'"neuraldbg.', b'"trigger_reason"')
"""Text in the first bytes of every file that is written here."""


@contextmanager
def replacing(target: Path, files: tuple[str, ...], *, force: bool) -> Iterator[Path]:
    """Yield a path to write to: a file, or a folder if ``files`` has the patterns of the files in it.

    A target that cannot be used raises ConfigError before anything is written, a failed write ExportFailed. In both
    cases everything is as it was.
    """
    _check(target, files, force=force)
    missing = [folder for folder in target.absolute().parents if not folder.exists()]
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    written = False
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        if files:
            partial.mkdir()
        yield partial
        _put(partial, target)
        written = True
    except OSError as error:
        raise ExportFailed(f"{target} could not be written: {error.strerror or error}.") from error
    finally:
        _remove(partial)
        for folder in () if written else missing:
            _remove_empty(folder)


def _check(target: Path, files: tuple[str, ...], *, force: bool) -> None:
    # Missing folders are made: the nearest one that exists must allow that.
    parent = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
    if not target.name:
        raise ConfigError(f"{str(target)!r} is not a name for a file: give one with -o")
    if not parent.is_dir():
        raise ConfigError(f"{target}: {parent} is not a folder")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{target}: no permission to write in {parent}")
    if not os.path.lexists(target):
        return
    # A run is never replaced by its own export.
    if target.suffix == ".ndbg":
        raise ConfigError(f"{target} is a run file: give another name")
    if files:
        _check_folder(target, files)
    elif not target.is_file() and not target.is_symlink():
        raise ConfigError(f"{target} is not a file: give the name of a file")
    if not force:
        raise ConfigError(f"{target} is already there: --force replaces it")
    if not files and not _exported(target):
        raise ConfigError(f"{target} was not written by an export: remove it, or give another name")


def _exported(target: Path) -> bool:
    """Return True if a file begins like an export of NeuralDBG, or is empty: a mistyped name may be a script's."""
    with target.open("rb") as opened:
        head = opened.read(_HEAD)
    return not head.strip() or (head.lstrip().startswith(b"{") and any(mark in head for mark in _MARKS))


def _check_folder(target: Path, files: tuple[str, ...]) -> None:
    """Refuse to replace files that no export has written: a mistyped folder may have years of work in it."""
    if target.is_symlink() or not target.is_dir():
        raise ConfigError(f"{target} is not a folder, and this format writes a folder: give another name")
    others = [one.name for one in target.iterdir() if not any(fnmatchcase(one.name, pattern) for pattern in files)]
    if others:
        raise ConfigError(f"{target} holds something else ({min(others)!a}): give a folder of its own")


def _put(partial: Path, target: Path) -> None:
    if not partial.is_dir() or not target.exists():
        partial.replace(target)
        return
    # A folder cannot be renamed onto one that is not empty.
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.replace(old)
    try:
        partial.replace(target)
    except OSError:
        old.replace(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        # Never made, or somebody else has put something into it meanwhile.
        return


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        return
    try:
        partial.unlink(missing_ok=True)
    except OSError:
        # Only reached after a failed write that is already being reported.
        return
