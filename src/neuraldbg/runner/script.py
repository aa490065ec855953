"""The execution of a user's program in this process, exactly as by ``python script.py args``.

A ``Program`` in, an ``Ending`` out. The program finds its own ``__main__`` (pickling of its classes and
``multiprocessing`` with ``spawn`` work), ``sys.argv``, ``sys.path[0]`` and working directory. None of this is restored
afterwards, as python does not: exit handlers and threads of the program may still use it.
"""

from __future__ import annotations

import ctypes
import difflib
import importlib.util
import os
import sys
import zipfile
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal

from neuraldbg.errors import NeuralDbgError
from neuraldbg.runner.ending import Ending, without_our_frames


class ScriptNotFound(NeuralDbgError):
    """Raised if there is no such script or module; the message names the nearest one."""


@dataclass(frozen=True)
class Program:
    """A program that python can run: a file, a folder or archive, or a module."""

    target: str
    """Path, or dotted name of a module, as the user typed it."""
    args: tuple[str, ...] = ()
    kind: Literal["file", "folder", "module"] = "file"
    """``folder`` is a folder or a zip archive with a ``__main__.py``."""

    @property
    def stem(self) -> str:
        """Name for the run: ``train`` for ``src/train.py``, ``pkg.train`` for a module."""
        return self.target if self.kind == "module" else Path(self.target).absolute().stem

    @property
    def argv(self) -> tuple[str, ...]:
        """Target and arguments, as the user typed them."""
        return (self.target, *self.args)


def resolve(target: str, args: tuple[str, ...] = (), *, module: bool = False) -> Program:
    """Find a program without running any of it. Raises ScriptNotFound, which names the nearest script."""
    if module:
        top = target.split(".", maxsplit=1)[0]
        if not top or _find_top(top) is None:
            raise ScriptNotFound(f"there is no module {target!r} here or among the installed packages")
        return Program(target, args, "module")
    path = Path(target)
    if not path.exists():
        raise ScriptNotFound(f"there is no script {target!r}.{_nearest(path)}")
    if path.is_dir() or (path.suffix != ".py" and path.is_file() and zipfile.is_zipfile(path)):
        if PathFinder.find_spec("__main__", [target]) is None:
            raise ScriptNotFound(f"{target!r} is a folder without a __main__.py: give the script itself{_inside(path)}")
        return Program(target, args, "folder")
    if not os.access(path, os.R_OK):
        raise ScriptNotFound(f"no permission to read {target!r}")
    return Program(target, args)


def execute(program: Program) -> Ending:
    """Run a program to its end, and return the ending. Raises ScriptNotFound if a module turns out not to exist."""
    try:
        code, namespace = _load(program)
        main = ModuleType("__main__")
        main.__dict__.update(namespace, __builtins__=sys.modules["builtins"])
        sys.modules["__main__"] = main
        with _AtTheBottom():
            exec(code, main.__dict__)  # noqa: S102 (running the user's program is the task)
    except ScriptNotFound:
        raise
    except BaseException as error:  # noqa: BLE001 (every way to end is an ending)
        return Ending(without_our_frames(error))
    return Ending()


class _AtTheBottom:
    """A context in which a program can nest its calls as deeply as without our calls below it.

    A module nested 248 times runs under Python's default limit of 1,000 calls, and did not with our six below. From
    Python 3.12 on the count of a thread's Python calls cannot be changed. The functions are looked up at the beginning,
    since an audit hook of the program's may refuse that later. This is a class and no generator: contextlib would set
    the traceback of the program's exception, which may be frozen.
    """

    def __init__(self) -> None:
        self._calls = 0
        counted = ctypes.pythonapi
        self._leave, self._enter = counted.Py_LeaveRecursiveCall, counted.Py_EnterRecursiveCall

    def __enter__(self) -> None:
        frame: FrameType | None = sys._getframe(1) if sys.version_info < (3, 12) else None  # noqa: SLF001
        while frame is not None:  # ``exec``, in which the program runs, counts too, as does that of ``python -m``
            self._calls += 1 + (frame.f_code.co_name in ("execute", "_run_code"))
            frame = frame.f_back
        for _ in range(self._calls):
            self._leave()

    def __exit__(self, *raised: object) -> None:
        for _ in range(self._calls):
            self._enter(b"")


def folder_of(program: Program) -> str | None:
    """Return the folder or archive that Python puts first on the path for a program; None if it puts none."""
    if getattr(sys.flags, "safe_path", sys.flags.isolated):  # with -P or -I Python puts none there
        return None
    if program.kind == "module":
        return _working_folder()
    if program.kind == "folder":
        return _from_here(program.target)
    return os.path.dirname(os.path.realpath(program.target))  # noqa: PTH120


def _load(program: Program) -> tuple[CodeType, dict[str, Any]]:
    if program.kind == "module":
        sys.argv = ["-m", *program.args]  # as python sets it while it imports the parent packages
        _first_on_path(program)
        spec = _module_spec(program.target)
        sys.argv[0] = spec.origin or program.target
        return _from_spec(spec)
    sys.argv = [program.target, *program.args]
    if program.kind == "folder":
        _first_on_path(program)
        spec_of_main = PathFinder.find_spec("__main__", [_from_here(program.target)])
        assert spec_of_main is not None
        return _from_spec(spec_of_main)
    _first_on_path(program)
    return _from_file(_from_here(program.target))


def _from_file(path: str) -> tuple[CodeType, dict[str, Any]]:
    loader: SourceFileLoader | SourcelessFileLoader
    code: CodeType | None
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", path)
        code = compile(loader.get_data(path), path, "exec", dont_inherit=True)  # python caches no main script
    assert code is not None
    return code, _namespace(path, loader, package=None, spec=None, cached=None)


def _from_spec(spec: ModuleSpec) -> tuple[CodeType, dict[str, Any]]:
    loader = spec.loader
    get_code = getattr(loader, "get_code", None)
    code = get_code(spec.name) if get_code is not None else None
    if not isinstance(code, CodeType):
        raise ScriptNotFound(f"{spec.name!r} cannot be run: it has no python code")
    return code, _namespace(spec.origin, loader, package=spec.parent, spec=spec, cached=spec.cached)


def _namespace(path: str | None, loader: object, **names: Any) -> dict[str, Any]:
    return {
        "__name__": "__main__",
        "__doc__": None,
        "__file__": path,
        "__loader__": loader,
        "__annotations__": {},
        **{f"__{name}__": value for name, value in names.items()},
    }


def _module_spec(name: str) -> ModuleSpec:
    """Find a module as ``python -m`` does: its parents are imported, and a package means its ``__main__``."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            spec = None
        else:  # a parent package fails to import something: that is the program's error
            raise
    if spec is None:
        raise ScriptNotFound(f"there is no module {name!r}")
    if spec.submodule_search_locations is None:
        return spec
    if name.endswith(".__main__"):
        raise ScriptNotFound(f"{name!r} is a package and cannot be run")
    try:
        return _module_spec(f"{name}.__main__")
    except ScriptNotFound:
        raise ScriptNotFound(f"{name!r} is a package without a __main__.py: name the module in it") from None


def working_folder() -> Path | None:
    """Return the working folder; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _working_folder() -> str | None:
    """Return the working folder as the string that python puts into its path."""
    here = working_folder()
    return str(here) if here is not None else None


def _from_here(target: str) -> str:
    """Return the path of a program as python shows it: only that of the working folder itself is normalised."""
    here = _working_folder() or ""
    return here if target == "." and here else os.path.join(here, target)  # noqa: PTH118


def _first_on_path(program: Program) -> None:
    """Put the program's folder first on ``sys.path``, in place of that of our own command."""
    folder = folder_of(program)
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0:1] = [folder] if folder is not None else []


def _find_top(name: str) -> ModuleSpec | None:
    folder = _working_folder()
    try:
        return PathFinder.find_spec(name, [folder] if folder is not None else []) or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f" There is no folder {str(folder)!r} either."
    names = [entry.name for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()]
    near = difflib.get_close_matches(path.name, names, n=1) or difflib.get_close_matches(f"{path.name}.py", names, n=1)
    return f" Did you mean {str(folder / near[0])!r}?" if near else ""


def _inside(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.glob("*.py"))[:3] if folder.is_dir() else []
    return f", such as {', '.join(repr(str(folder / name)) for name in names)}" if names else ""
