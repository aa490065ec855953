"""The machine that a notebook runs on: environment variables and devices in, the name of the cloud out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

VARIABLES = {"kaggle": "KAGGLE_KERNEL_RUN_TYPE", "colab": "COLAB_GPU", "sagemaker": "SM_MODEL_DIR"}
"""Environments, each with a variable that only it sets."""
UNKNOWN = "unknown"
DRIVER = Path("/proc/driver/nvidia/gpus")
_PATIENCE_S = 10


def environment() -> str:
    """Return ``kaggle``, ``colab``, ``sagemaker`` or ``unknown``."""
    return next((name for name, variable in VARIABLES.items() if variable in os.environ), UNKNOWN)


def has_gpu() -> bool:
    """Return True if the driver of NVIDIA lists a GPU; torch is not loaded for this."""
    try:
        if any(DRIVER.iterdir()):
            return True
    except OSError:
        pass
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603 (the driver's own program)
            [program, "-L"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and "GPU " in done.stdout
