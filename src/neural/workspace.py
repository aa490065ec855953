"""The folder `.neural`, which holds what the commands write, and the list of what they wrote elsewhere.

`neural clean` removes what stands in that list, and a file elsewhere only if it is still as it was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from neural.errors import FileUnreadable

FOLDER = ".neural"
_LIST, _IGNORE = "made.json", ".gitignore"


class Removal(NamedTuple):
    """Name what a cleaning removes."""

    gone: tuple[Path, ...]
    """Files and folders that we wrote; those outside of the folder only as they were written."""
    kept: tuple[Path, ...]
    """Files outside of the folder that were changed since we wrote them."""


@dataclass
class _Listed:
    """Hold what the list says."""

    inside: list[str] = field(default_factory=list)
    """Names in the folder that were handed out."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Paths of other files, with the SHA-256 of what was written."""


class Workspace:
    """Hand out places for files, and remember every file that was written."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(FOLDER if folder is None else folder)

    def path(self, name: str) -> Path:
        """Return the path of a file or folder in this one, which the caller writes. This folder is made if it is
        missing; FileUnreadable is raised if it cannot be.
        """
        listed = self._listed()
        if name not in listed.inside or not self.folder.is_dir():
            listed.inside = sorted({*listed.inside, name})
            self._write(listed)
        return self.folder / name

    def write(self, content: str | bytes, path: Path, *, named: bool) -> None:
        """Write a file: over any that the user has `named`, else only over one of ours, and remember it.

        FileUnreadable is raised if it cannot be written, or if another one is there.
        """
        if not named:
            self.check_free(path)
        try:
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        except OSError as error:
            raise FileUnreadable(f"{path} could not be written: {error.strerror or error}") from None
        if not named:  # a file whose name the user chose is the user's
            self.made(path)

    def made(self, path: str | Path) -> None:
        """Remember a file that was written outside of the folder, so that a cleaning may remove it."""
        path = Path(path).absolute()
        listed = self._listed()
        listed.elsewhere[str(path)] = _digest(path)
        self._write(listed)

    def check_free(self, path: str | Path) -> None:
        """Raise FileUnreadable if a file is there that we did not write, or that was changed since."""
        path = Path(path)
        if path.exists() and self._listed().elsewhere.get(str(path.absolute())) != _digest(path):
            raise FileUnreadable(
                f"{path} is there already, and is not as this command would have left it: name another file with -o"
            )

    def removable(self) -> Removal:
        """Return what `clean` would remove."""
        listed = self._listed()
        inside = [self.folder / name for name in listed.inside if Path(name).name == name]
        there = {Path(path): digest for path, digest in listed.elsewhere.items() if Path(path).is_file()}
        same = [path for path, digest in there.items() if _digest(path) == digest]
        return Removal(
            (*(path for path in inside if path.exists()), *same), tuple(path for path in there if path not in same)
        )

    def clean(self) -> Removal:
        """Remove what `removable` names, and this folder if nothing else is in it.

        FileUnreadable is raised for what cannot be removed.
        """
        removal = self.removable()
        try:
            for path in removal.gone:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        except OSError as error:
            message = f"{error.filename or self.folder} could not be removed: {error.strerror or error}"
            raise FileUnreadable(message) from None
        for name in (_LIST, _IGNORE):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # something of the user's is in it, or it is not there
            self.folder.rmdir()
        return removal

    def _listed(self) -> _Listed:
        try:
            told: Any = json.loads((self.folder / _LIST).read_text(encoding="utf-8"))
            return _Listed(
                [str(name) for name in told["inside"]], {str(k): str(v) for k, v in told["elsewhere"].items()}
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # nothing was written yet, or not by us
            return _Listed()

    def _write(self, listed: _Listed) -> None:
        """Write the list in one piece: two commands may run at the same time, and either may be killed."""
        beside = self.folder / f"{_LIST}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / _IGNORE
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            beside.write_text(json.dumps(vars(listed), indent=1, sort_keys=True) + "\n", encoding="utf-8")
            beside.replace(self.folder / _LIST)
        except OSError as error:
            message = f"the folder {self.folder} cannot be written: {error.strerror or error}; go to one that can"
            raise FileUnreadable(message) from None


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
