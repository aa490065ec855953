"""The native parts, which need a compiler. Everything else about the package stands in pyproject.toml.

They are optional. Without the kernel the package reads with torch's operators; without ``_signals``, SIGTERM ends a run
at once. The variable NEURALDBG_KERNEL decides what a build does about them:

    (unset)     build them if there is a compiler, as for ``pip install`` on somebody's machine
    required    fail if they cannot be built, as for wheels that are given to others
    none        leave them out: the wheel is ``py3-none-any`` and runs on every system
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.errors import SetupError

KERNEL = Path("src/neuraldbg/capture/kernel")
LIMITED = "0x030A0000"  # the stable ABI as of Python 3.10: one build for all later ones
CHOICES = ("", "required", "none")
CHOICE = os.environ.get("NEURALDBG_KERNEL", "")
if CHOICE not in CHOICES:
    raise SetupError(f"NEURALDBG_KERNEL={CHOICE!r}: it may be 'required', 'none', or unset")
if CHOICE == "required" and os.name != "posix":
    raise SetupError("NEURALDBG_KERNEL=required: the native parts can be built on Linux and macOS only")


def native(name: str, source: str, *headers: str) -> Extension:
    """Return one native module. Without debug information it is a third as large."""
    return Extension(
        name,
        [source],
        depends=list(headers),
        define_macros=[("Py_LIMITED_API", LIMITED)],
        extra_compile_args=["-g0"],
        extra_link_args=["-Wl,-s"] if sys.platform == "linux" else [],
        py_limited_api=True,
        optional=CHOICE != "required",
    )


# Windows has no signals as POSIX has them, and its compiler has no vectors as GCC and clang have them.
EXTENSIONS = [
    native("neuraldbg.capture._kernel", str(KERNEL / "module.c"), *sorted(map(str, KERNEL.glob("*.h")))),
    native("neuraldbg.runner._signals", "src/neuraldbg/runner/_signals.c"),
]

setup(
    ext_modules=EXTENSIONS if os.name == "posix" and CHOICE != "none" else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
