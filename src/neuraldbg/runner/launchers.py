"""The launchers of several workers, and how the tool is handed on to these.

``neuraldbg run -m torch.distributed.run --nproc-per-node 2 train.py`` becomes ``python -m torch.distributed.run
--nproc-per-node 2 -m neuraldbg run train.py``: the launcher itself trains nothing. Its own parser says which of its
arguments is the script.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

_MODULE_FLAGS = frozenset({"-m", "--module"})
_FLAGS = re.compile("-[mqv]*m[mqv]*")
"""Flags of ``neuraldbg run`` without a value, ``-m`` among them."""
_PATH_FLAGS = frozenset({"--run-path", "--run_path"})


def _torchrun() -> argparse.ArgumentParser:
    from torch.distributed.run import get_args_parser  # noqa: PLC0415 (it imports torch, as the launcher does)

    parser: argparse.ArgumentParser = get_args_parser()
    return parser


def _launch() -> argparse.ArgumentParser:
    parser = _torchrun()
    parser.add_argument("--use-env", "--use_env", action="store_true")
    return parser


def _accelerate() -> argparse.ArgumentParser:
    from accelerate.commands.launch import launch_command_parser  # noqa: PLC0415 (as above)

    parser: argparse.ArgumentParser = launch_command_parser()
    return parser


LAUNCHERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "accelerate.commands.launch": _accelerate,
    "torch.distributed.launch": _launch,
    "torch.distributed.run": _torchrun,
}
"""Modules that start workers, each with its parser."""
_COMMANDS = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}
"""Commands that are the same as a module."""


def launcher_of(command: Sequence[str], *, module: bool) -> tuple[str, tuple[str, ...]] | None:
    """Return the launcher that a command line names, as a module, and its arguments; None if it names a program.

    ``accelerate`` has other commands beside ``launch``, which start nothing.
    """
    name, args = command[0], tuple(command[1:])
    if module:
        if name == "accelerate.commands.accelerate_cli":
            name = "accelerate"
        elif name not in LAUNCHERS:
            return None
    elif PurePath(name).name not in _COMMANDS:
        return None
    name = _COMMANDS.get(PurePath(name).name, name)
    if name == "accelerate.commands.launch" and command[0] != name:
        if args[:1] != ("launch",):
            return None
        args = args[1:]
    return name, args


def handed_on(launcher: str, args: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the command line that starts the launcher with workers under ``neuraldbg run`` and its ``options``.

    The launcher's own parser ends the process for arguments that it refuses, as it would have without us. Raises
    ConfigError for a program that is no Python script, or a launcher that is not installed.
    """
    try:
        parser = LAUNCHERS[launcher]()
    except ImportError as error:
        raise ConfigError(f"{launcher.partition('.')[0]} is not installed here ({error}): install it first") from error
    known: Any = parser.parse_args(list(args))
    script_args = list(known.training_script_args)
    end = len(args) - len(script_args)
    own, script = list(args[: end - 1]), args[end - 1]
    if getattr(known, "no_python", False):
        raise ConfigError(
            f"with --no-python the workers run {script}, which neuraldbg cannot enter: put it before their script, as "
            "in `torchrun --no-python neuraldbg run train.py`"
        )
    drop = _PATH_FLAGS | (_MODULE_FLAGS if known.module else frozenset())
    own = [word for word in own if word not in drop]
    inner = [script] if not known.module else ["-m", script]
    return [
        *(sys.executable, "-m", launcher, *own),
        *("-m", "neuraldbg", "run", *options, *inner, *script_args),
    ]


def become(command: list[str]) -> int:
    """Become the launcher, whose workers run under the tool."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execv(command[0], command)  # noqa: S606 (it is what the user asked for)


def own_options(command: Sequence[str]) -> list[str]:
    """Return the options that ``neuraldbg run`` was given itself, without its ``-m``: what stands before the program
    on the command line of this process.
    """
    words = sys.argv[1:]
    if not words or tuple(words[-len(command) :]) != tuple(command):
        return []
    before = words[: -len(command)]
    before = before[before.index("run") + 1 :] if "run" in before else before
    # ``-m`` may stand among other flags: ``-qm``.
    others = (word.replace("m", "") if _FLAGS.fullmatch(word) else word for word in before if word not in ("-m", "--"))
    return list(others)
