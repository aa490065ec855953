"""``neuraldbg doctor``: what this installation has, and whether it can do its work here."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from neuraldbg.cli.command import FAILED, OK, Command, Result, examples
from neuraldbg.cli.run import RUNS
from neuraldbg.cli.timed_run import clocked
from neuraldbg.runner.script import resolve

EXTRAS = {
    "plot": ("matplotlib", "jinja2"),
    "dashboard": ("dash", "plotly", "dash_cytoscape", "yaml"),
    "export": ("pyarrow", "tensorboard"),
    "neural": ("lark", "yaml"),
}
"""The modules that each extra of pyproject.toml brings."""


@examples(
    ("doctor", "is everything there?"),
    ("doctor --train train.py", "where the time of watching goes"),
)
@click.command(
    "doctor",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Check the installation, or what watching a script costs.",
)
@click.option("--train", is_flag=True, help="Run SCRIPT, and say where the time of watching it went.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT [ARGS]...]")
def COMMAND(train: bool, command: tuple[str, ...]) -> Result:  # noqa: N802 (the name is the contract)
    """Show versions, the statistics implementation in use, the extras installed, and whether runs can be saved here.

    The exit status is 1 if something that `neuraldbg run` needs is missing. With --train SCRIPT it runs the script
    under the debugger, saves nothing, and prints a breakdown of what watching took.
    """
    if train != bool(command):
        raise click.UsageError("give --train with a script, and a script with --train")
    if train:
        program = resolve(command[0], tuple(command[1:]), module=False)
        return lambda: clocked(program)
    rows = [("python", f"{platform.python_version()} ({sys.executable})")]
    rows += [(name, _version(name)) for name in ("neuraldbg", "numpy")]
    torch_ok, torch_rows = _torch()
    rows += torch_rows
    rows += [(f"extra {name}", _extra(name, modules)) for name, modules in EXTRAS.items()]
    folder_ok, folder = _folder(Path.cwd())
    rows.append(("run folder", folder))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")
    return OK if torch_ok and folder_ok else FAILED


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (the list of commands needs none of it)

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _torch() -> tuple[bool, list[tuple[str, str]]]:
    try:
        import torch  # noqa: PLC0415 (this command alone asks for it)
    except Exception as error:  # noqa: BLE001 (a broken installation fails in many ways; which one is the answer)
        return False, [("torch", f"cannot be imported: {type(error).__name__}: {error}")]
    table = f"CUDA: {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else "CPU only"
    return True, [("torch", f"{torch.__version__} ({table})"), ("statistics", _statistics())]


def _statistics() -> str:
    try:
        from neuraldbg.capture.guest import native  # noqa: PLC0415
    except Exception as error:  # noqa: BLE001 (as above)
        return f"not available: {type(error).__name__}: {error}"
    # It is written with the vectors of GCC and clang: a compiler would be of no use on Windows.
    why = "was not built (no C compiler)" if os.name == "posix" else "is for Linux and macOS"
    missing = "" if native.native is not None else f"; slower: the native kernel {why}"
    return f"on the CPU {native.backend()}{missing}; {_device_statistics()}"


def _device_statistics() -> str:
    import torch  # noqa: PLC0415

    from neuraldbg.capture.statistics.device import table  # noqa: PLC0415

    if not torch.cuda.is_available():
        return "no CUDA device"
    here = torch.device("cuda", torch.cuda.current_device())
    why = table.why_torch(here)
    return f"on CUDA torch operators ({why})" if why else "on CUDA Triton"


def _extra(name: str, modules: tuple[str, ...]) -> str:
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return "installed"
    return f"missing {', '.join(missing)}: in your clone of NeuralDBG, pip install '.[{name}]'"


def _folder(here: Path) -> tuple[bool, str]:
    runs = here / RUNS
    writable = os.access(runs if runs.exists() else here, os.W_OK | os.X_OK)
    return writable, f"{runs} ({'writable' if writable else 'not writable: give `neuraldbg run -o DIR`'})"
