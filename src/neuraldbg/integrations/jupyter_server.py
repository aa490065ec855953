"""The dashboard in a Jupyter server: the entry point ``neuraldbg`` of jupyter-server-proxy.

Jupyter starts the dashboard when somebody opens it from the launcher, serves it below its own address, and lets only
its own users through. So the page asks them for no token; requests that do not come through Jupyter still need it.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

NAME = "neuraldbg"
"""Last part of the address in Jupyter, and name of the entry point."""
RUNS = "neuraldbg-runs"
"""Folder that is shown, in Jupyter's working folder, unless the variable NEURALDBG_RUNS names another."""
START_S = 60


def proxied() -> dict[str, Any]:
    """Return the settings of the server process, as jupyter-server-proxy asks for them when Jupyter starts."""
    secret = secrets.token_urlsafe(32)
    return {
        "command": _command,
        # Not in the command line, which other users can see.
        "environment": {"NEURALDBG_PROXY_PATH": f"{{base_url}}{NAME}/", "NEURALDBG_PROXY_SECRET": secret},
        "request_headers_override": {"X-Neuraldbg-Proxy": secret},
        "absolute_url": False,
        "timeout": START_S,
        "new_browser_tab": True,
        "launcher_entry": {"title": "NeuralDBG", "path_info": f"{NAME}/"},
    }


def _command() -> list[str]:
    """Return the command, with the folder of runs, which is made if it is missing: the first run appears in it."""
    folder = Path(os.environ.get("NEURALDBG_RUNS") or RUNS)
    if not folder.exists():
        folder.mkdir(parents=True)
    given = str(folder.resolve()).replace("{", "{{").replace("}", "}}")  # the command is a template
    return [sys.executable, "-m", "neuraldbg", "dashboard", given, "--port", "{port}", "--no-browser"]
