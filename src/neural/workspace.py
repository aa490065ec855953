"""The folder `.neural`, which holds what the commands write, and the list of what they wrote elsewhere.

`neural clean` removes what stands in that list, and a file elsewhere only if it is still as it was written. The list
may come from anybody: nothing above the folder's own directory is ever removed by it, and no link is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from neural.errors import FileUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ".neural"
_LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""Locks of files, which Windows has not."""
_LIST, _IGNORE, _IGNORED = "made.json", ".gitignore", "*\n"


class Removal(NamedTuple):
    """Name what a cleaning removes."""

    gone: tuple[Path, ...]
    """Files and folders that we wrote; those outside of the folder only as they were written."""
    kept: tuple[Path, ...]
    """What is listed and stays: `Workspace.why_kept` says why."""


@dataclass
class _Listed:
    """Hold what the list says."""

    inside: list[str] = field(default_factory=list)
    """Names in the folder that were handed out."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Paths of other files, with the SHA-256 of what was written."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears whole or stays as it was: beside it, then renamed, with the mode that it had.

    Of a link the file that it names is replaced. FileUnreadable is raised if the file cannot be written.
    """
    # A name that is not UTF-8 may stand in the text, and never decides about the file.
    data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    try:
        _write_whole(path, data)
    except OSError as error:
        raise FileUnreadable(f"{path} could not be written: {error.strerror or error}") from None


def _write_whole(path: Path, data: bytes) -> None:
    before = path.stat() if path.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        path.write_bytes(data)  # a terminal or a pipe; of a folder this is the error
        return
    if before is None and path.is_symlink():
        raise FileNotFoundError(0, "it is a link to a file that is not there")
    target = path.resolve()
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(0, "it may only be read")
    beside = target.with_name(f".neural-{secrets.token_hex(6)}.part")
    try:
        with beside.open("xb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())  # a full disk may tell only now
        if before is not None:
            with suppress(OSError, AttributeError):  # of another user's file, or on Windows
                shutil.chown(beside, before.st_uid, before.st_gid)
            beside.chmod(stat.S_IMODE(before.st_mode))
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


class Workspace:
    """Hand out places for files, and remember every file that was written."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(FOLDER if folder is None else folder)

    def path(self, name: str) -> Path:
        """Return the path of a file or folder in this one, which the caller writes. This folder is made if it is
        missing; FileUnreadable is raised if it cannot be, or if something is there that we did not make.
        """
        there = os.path.lexists(self.folder / name)  # before the list is read: another command lists, then writes
        with self._locked():
            listed = self._listed()
            if there and (name not in listed.inside or (self.folder / name).is_symlink()):
                raise FileUnreadable(f"{self.folder / name} is not from these commands: move it to another folder")
            if name not in listed.inside:
                listed.inside = sorted({*listed.inside, name})
                self._write(listed)
        return self.folder / name

    def write(self, content: str | bytes, path: Path, *, named: bool) -> None:
        """Write a file: over any that the user has `named`, else only over one of ours, and remember it.

        FileUnreadable is raised if it cannot be written, or if another one is there.
        """
        if not named:
            self.check_free(path)
        write_whole(path, content)
        if not named:  # a file whose name the user chose is the user's
            self.made(path)

    def made(self, path: str | Path) -> None:
        """Remember a file that was written outside of the folder, so that a cleaning may remove it."""
        path = Path(path).absolute()
        with self._locked():
            listed = self._listed()
            listed.elsewhere[str(path)] = _digest(path)
            self._write(listed)

    def check_free(self, path: str | Path) -> None:
        """Raise FileUnreadable if a file is there that we did not write, or that was changed since."""
        path = Path(path)
        if not os.path.lexists(path):
            return
        if path.is_symlink() or self._listed().elsewhere.get(str(path.absolute())) != _digest(path):
            raise FileUnreadable(
                f"{path} is there already, and is not as this command would have left it: name another file with -o"
            )

    def removable(self) -> Removal:
        """Return what `clean` would remove."""
        if self.folder.is_symlink():  # we make no such link, so it is not for us to say what is behind it
            return Removal((), ())
        listed = self._listed()
        inside = [self.folder / name for name in listed.inside if _is_child(name)]
        there = [Path(path) for path in listed.elsewhere if os.path.isfile(path)]  # noqa: PTH113 (no name is too odd)
        kept = tuple(path for path in there if self.why_kept(path))
        gone = (*(path for path in inside if os.path.lexists(path)), *(path for path in there if path not in kept))
        return Removal(gone, kept)

    def why_kept(self, path: Path) -> str:
        """Return why a listed file outside of the folder is not removed, "" if it is."""
        if not path.parent.resolve().is_relative_to(self.folder.absolute().parent.resolve()):
            return "is outside of this directory"
        if path.is_symlink() or self._listed().elsewhere.get(str(path)) != _digest(path):
            return "was changed since it was written"
        return ""

    def clean(self) -> Removal:
        """Remove what `removable` names, and this folder if nothing else is in it.

        FileUnreadable is raised for what cannot be removed.
        """
        removal = self.removable()
        if self.folder.is_symlink() or not (self.folder / _LIST).is_file():
            return removal
        ignore = self.folder / _IGNORE
        try:
            for path in removal.gone:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            (self.folder / _LIST).unlink()
            if ignore.is_file() and ignore.read_bytes() == _IGNORED.encode():
                ignore.unlink()
        except OSError as error:
            message = f"{error.filename or self.folder} could not be removed: {error.strerror or error}"
            raise FileUnreadable(message) from None
        with suppress(OSError):  # something of the user's is in it
            self.folder.rmdir()
        return removal

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Make the folder if it is missing, and keep others from changing the list: two commands may run at a time."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(self.folder, os.O_RDONLY) if _LOCKS else None
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            if opened is not None:
                with suppress(OSError):  # a file system without locks
                    _LOCKS.flock(opened, _LOCKS.LOCK_EX)
            yield
        finally:
            if opened is not None:
                os.close(opened)

    def _unwritable(self, error: OSError) -> FileUnreadable:
        message = f"the folder {self.folder} cannot be written: {error.strerror or error}; go to one that can"
        return FileUnreadable(message)

    def _listed(self) -> _Listed:
        path = self.folder / _LIST
        if not path.is_file():  # nothing was written yet; a pipe would never end
            return _Listed()
        try:
            told: Any = json.loads(path.read_text(encoding="utf-8"))
            return _Listed(
                [str(name) for name in told["inside"]], {str(k): str(v) for k, v in told["elsewhere"].items()}
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # not by us
            return _Listed()

    def _write(self, listed: _Listed) -> None:
        """Write the list in one piece: two commands may run at the same time, and either may be killed."""
        beside = self.folder / f"{_LIST}.{os.getpid()}"
        try:
            ignore = self.folder / _IGNORE
            if not os.path.lexists(ignore):
                ignore.write_text(_IGNORED, encoding="utf-8")
            beside.write_text(json.dumps(vars(listed), indent=1, sort_keys=True) + "\n", encoding="utf-8")
            beside.replace(self.folder / _LIST)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            with suppress(OSError):  # only there after a failure, which is what is said
                beside.unlink(missing_ok=True)


def _is_child(name: str) -> bool:
    """Return True for the name of something directly in a folder: none that leads out of it, or is the folder."""
    return name not in {"", ".", ".."} and not set(name) & {"/", "\\", "\0"} and Path(name).name == name


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
