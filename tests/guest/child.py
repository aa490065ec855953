"""Turns a forked child into the process that a user would have started: ``python SCRIPT`` or ``neuraldbg run SCRIPT``.

torch lies ready but has not been imported, as far as the program can see: the program's own ``import torch`` puts it
there, and whoever listens for that import is told.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import importlib
import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.guest import digest, inject

SEED = 20261125
TYPICAL = """
import atexit, sys, torch
atexit.register(lambda: print(*sorted(set(sys.modules) - {"__main__", "__mp_main__"})))
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(8, 3)).pow(2).mean().backward()
    optimizer.step()
"""
"""A short training, run once to learn what is imported under us, at its end, too."""
OPTIONS = {"full": ["--overhead", "full"], "profile": ["--profile"]}
"""What is said on the command line, by mode."""
_HOME = list(sys.path)


def preload(*modules: str, watched: bool) -> None:
    """Import what every program needs, and what a watched program needs, without doing anything with it."""
    import gc

    import torch
    import torch._dynamo
    import torch._subclasses.schema_check_mode
    import torch.distributed

    for name in modules:
        importlib.import_module(name)
    torch.set_num_threads(1)
    if watched:
        for name in _modules_of_a_watched_run():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        inject.index()
    digest.prepare()
    gc.collect()
    gc.freeze()


def _modules_of_a_watched_run() -> list[str]:
    """Return the names of the modules that a short training under us imports: found by running one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "typical.py").write_text(TYPICAL)
        command = [sys.executable, "-m", "neuraldbg", "run", "--overhead", "full", "-o", "run", "typical.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.split()


def become(request: dict[str, Any]) -> int:
    """Run the program as asked and return its exit status; an interrupted one raises KeyboardInterrupt, as python."""
    import random

    import numpy as np
    import torch

    folder = Path(request["folder"])
    _redirect(folder)
    os.chdir(folder / "cwd")
    random.seed(SEED)  # what each process draws from the system at its start
    np.random.seed(SEED)  # noqa: NPY002
    torch.default_generator.manual_seed(SEED)
    program = request["program"]
    if request.get("trace"):
        faulthandler.enable((folder / "trace").open("w"), all_threads=True)
    _hide_torch()
    digest.begin(folder, request.get("leave", ""))
    if request.get("prepare"):
        module, function, *arguments = request["prepare"]
        getattr(importlib.import_module(module), function)(*arguments)
    if request.get("allowance") is not None:
        _allow(request["allowance"])
    if request["mode"] == "bare":
        return _bare(program)
    from neuraldbg.cli import main

    sys.path[:] = [str(Path(sys.executable).parent), *_HOME[1:]]
    options = OPTIONS.get(request["mode"], [])
    arguments = ["run", *request.get("options", ()), *options, "-o", str(folder / "run"), program]
    sys.argv[:] = ["neuraldbg", *arguments]
    return main(arguments)


def _allow(seconds: float) -> None:
    """Have a session begin with less time than it is given."""
    from neuraldbg.capture.steps import step_accounting

    made = step_accounting.Governor
    step_accounting.Governor = lambda overhead, _allowance: made(overhead, seconds)


def _redirect(folder: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(folder / name, flags, 0o600)
        os.dup2(file, number)
        os.close(file)


# ---------------------------------------------------------------- torch, there and not yet imported


def _hide_torch() -> None:
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"}
    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, _Hidden(hidden))


class _Hidden(MetaPathFinder, Loader):
    """Finds torch where it was put away."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.modules = modules
        self.spec = modules["torch"].__spec__

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for torch that makes it by taking it out."""
        if fullname != "torch":
            return None
        spec = importlib.util.spec_from_loader("torch", self, origin=self.spec.origin, is_package=True)
        assert spec is not None
        spec.submodule_search_locations = self.spec.submodule_search_locations
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return torch as it is."""
        return self.modules["torch"]

    def exec_module(self, module: ModuleType) -> None:
        """Put torch and all its modules where imported modules are."""
        module.__spec__ = self.spec
        sys.modules.update(self.modules)
        if self in sys.meta_path:
            sys.meta_path.remove(self)


# ---------------------------------------------------------------- as python would run it


def _bare(program: str) -> int:
    """Run a script, or a folder with a ``__main__.py``, and tell of its end as python would."""
    folder = Path(program).is_dir()
    path = os.path.join(program, "__main__.py") if folder else program
    sys.argv[:] = [program]
    sys.path[:] = [program if folder else os.path.dirname(os.path.realpath(program)), *_HOME[1:]]
    main = ModuleType("__main__")
    spec = importlib.machinery.PathFinder.find_spec("__main__", [program]) if folder else None
    vars(main).update(
        __file__=path,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __builtins__=sys.modules["builtins"],
        __annotations__={},
        __package__=spec.parent if spec is not None else None,
        __spec__=spec,
        __cached__=spec.cached if spec is not None else None,
    )
    sys.modules["__main__"] = main
    raised: BaseException | None = None
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(main))
    except BaseException as error:
        raised = error
    if raised is None:
        return 0
    return _status_of(raised) if isinstance(raised, SystemExit) else _as_python_tells(raised)


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    if sys.stderr is not None:
        for text in (error.code, "\n"):  # as python: what cannot be written is left out
            with contextlib.suppress(Exception):
                sys.stderr.write(str(text))
    return 1


_GROUP = getattr(builtins, "BaseExceptionGroup", ())


def _as_python_tells(error: BaseException) -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        _lift_our_frames(one)
        parts = one.exceptions if isinstance(one, _GROUP) else ()
        waiting += [link for link in (one.__cause__, one.__context__, *parts) if link is not None]
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    broken: BaseException | None = None
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return _status_of(leaving)
    except BaseException as its_own:
        broken = its_own
    if broken is not None:
        sys.stderr.write("Error in sys.excepthook:\n")
        _lift_our_frames(broken)
        sys.__excepthook__(type(broken), broken, broken.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return _interrupted() if type(error) is KeyboardInterrupt else 1


def _interrupted() -> int:
    """Have the process end by SIGINT behind its exit handlers, as the interpreter does after it has told of it."""
    from neuraldbg.runner import _signals

    _signals.at_exit(signal.SIGINT)
    return 130


def _lift_our_frames(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    with contextlib.suppress(Exception):  # it may be frozen: the suite leaves our frames out of what is shown
        error.__traceback__ = trace


assert threading.current_thread() is threading.main_thread()
