"""The native parts, which need a compiler. Everything else about the package stands in pyproject.toml.

They are optional. Without the kernel the package reads with torch's operators; without ``_signals``, SIGTERM ends a run
at once.
"""

from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/neuraldbg/capture/kernel")
LIMITED = "0x030A0000"  # the stable ABI as of Python 3.10: one build for all later ones

setup(
    ext_modules=[
        Extension(
            "neuraldbg.capture._kernel",
            [str(KERNEL / "module.c")],
            depends=sorted(map(str, KERNEL.glob("*.h"))),
            define_macros=[("Py_LIMITED_API", LIMITED)],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "neuraldbg.runner._signals",
            ["src/neuraldbg/runner/_signals.c"],
            define_macros=[("Py_LIMITED_API", LIMITED)],
            py_limited_api=True,
            optional=True,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
