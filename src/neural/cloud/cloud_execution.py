"""Models in a notebook in the cloud: ``CloudExecutor``, with the names of the language's own tool.

    from neural.cloud.cloud_execution import CloudExecutor

    executor = CloudExecutor()
    info = executor.start_debug_dashboard(dsl_code, setup_tunnel=True)
    print(info["tunnel_url"])
    executor.cleanup()

Nothing is installed or downloaded. Files are written into a temporary folder of the executor, and a run into its
``neuraldbg-runs``; ``cleanup`` removes both.
"""

from __future__ import annotations

import importlib
import logging
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.cloud import child as children
from neural.cloud import machine
from neural.cloud.child import Child, last_words
from neural.errors import NeuralError

if TYPE_CHECKING:
    from types import TracebackType

    from neural.plan import Plan

PORT = 8050
START_S, TUNNEL_S = 120.0, 90.0
"""Seconds in which a dashboard must be there, and then its tunnel."""
_LOG = logging.getLogger("neural.cloud")
_TRIES = 100
_HERE = re.compile(r"the dashboard is at (http://\S+)")
_TUNNEL = re.compile(r"the tunnel is at (https?://\S+)|there is no tunnel: (.*)")


class CloudError(NeuralError, RuntimeError):
    """Raised if a command in the cloud cannot be done; the message says what to do instead."""


class CloudExecutor:
    """Compiles, runs, draws and debugs models from their text. Use it as a context, or call ``cleanup``."""

    def __init__(self, environment: str | None = None) -> None:
        """Find out where this is; ``environment`` is ``kaggle``, ``colab``, ``sagemaker``, or any other name."""
        self.environment = environment or machine.environment()
        """The cloud: ``kaggle``, ``colab``, ``sagemaker`` or ``unknown``, unless another name was given."""
        self.is_gpu_available = machine.has_gpu()
        self.temp_dir = Path(tempfile.mkdtemp(prefix="neural-cloud-"))
        """Folder of the files that are written here."""
        self._texts: dict[Path, Path] = {}
        """Files of models, by the files that were compiled from them."""
        self._sessions: dict[str, tuple[Child, dict[str, Any]]] = {}

    # ---------------------------------------------------------------- models

    def compile_model(self, dsl_code: str, backend: str = "pytorch", output_file: str | Path | None = None) -> str:
        """Write a model as a Python file, and return its path. Raises NeuralError for what is wrong with the text."""
        source = self._written(dsl_code)
        target = Path(output_file).absolute() if output_file else source.with_suffix(".py")
        done = _command("compile", str(source), "--backend", backend, "-o", str(target), folder=self.temp_dir)
        if done.returncode:
            raise CloudError(done.stderr.strip() or last_words(done.stdout))
        self._texts[target.resolve()] = source
        return str(target)

    def run_model(
        self,
        model_file: str | Path,
        dataset: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Any]:
        """Train a ``.neural`` file, or one that ``compile_model`` has written, and return ``success``, ``stdout``,
        ``stderr`` and, if it failed, ``error``. ``dataset`` is as for ``start_debug_dashboard``.
        """
        file = Path(model_file).resolve()
        text = self._texts.get(file, file)
        options = [("--dataset", dataset or _dataset(text)), ("--epochs", epochs), ("--batch-size", batch_size)]
        given = [word for name, value in options if value is not None for word in (name, str(value))]
        done = _command("run", str(text), *given, folder=self.temp_dir)
        result = {"success": done.returncode == 0, "stdout": done.stdout, "stderr": done.stderr}
        if done.returncode:
            result["error"] = last_words(done.stderr) or f"the training ended with status {done.returncode}"
        return result

    def visualize_model(self, dsl_code: str, output_format: str = "png", output_file: str | Path | None = None) -> str:
        """Draw the graph of a model into a file, and return its path."""
        try:
            visual = importlib.import_module("neural.visual")
        except ImportError as error:
            raise CloudError(f"models cannot be drawn here: {error}") from None
        drawn: str | bytes = visual.drawn(_plan(dsl_code), output_format)
        target = Path(output_file) if output_file else self.temp_dir / f"{uuid.uuid4().hex[:8]}.{output_format}"
        target.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)
        return str(target)

    # ---------------------------------------------------------------- the dashboard

    def start_debug_dashboard(
        self, dsl_code: str, backend: str = "pytorch", setup_tunnel: bool = True, *, dataset: str | None = None
    ) -> dict[str, Any]:
        """Train a model under NeuralDBG in a process of its own, and return ``session_id``, ``dashboard_url``,
        ``process_id`` and ``tunnel_url`` once the dashboard listens.

        ``dataset`` is that of ``--dataset``; without one it is a data set of scikit-learn if the model is made for its
        shapes, else made-up data, which every picture says. Both addresses carry a token. ``tunnel_url`` is None if no
        tunnel could be opened: the logger ``neural.cloud`` says why. Raises NeuralError if the text describes no model,
        or there is no dashboard.
        """
        _plan(dsl_code)  # its problems are better told here than by a process that ends
        session = uuid.uuid4().hex[:12]
        source = self._written(dsl_code)
        args = ["debug", str(source), "--port", str(_free_port()), "--dataset", dataset or _dataset(source)]
        args += ["--backend", backend]
        kind = _tunnel_kind() if setup_tunnel else None
        if kind is not None:
            args += ["--tunnel", kind]
        running = Child(args, self.temp_dir, self.temp_dir / f"{session}.log")
        try:
            info = {
                "session_id": session,
                "dashboard_url": _dashboard_of(running),
                "process_id": running.pid,
                "tunnel_url": _tunnel_of(running) if kind is not None else None,
            }
        except BaseException:
            running.end()
            raise
        self._sessions[session] = (running, info)
        return dict(info)

    def setup_ngrok_tunnel(self, port: int = PORT) -> str | None:
        """Return the tunnel's address of the dashboard on a port; None, with the reason in the log, if there is none.

        A tunnel is opened together with its dashboard, which alone can see that it lets nobody in without the token.
        """
        for running, info in self._sessions.values():
            if running.running and f":{port}/" in info["dashboard_url"] and info["tunnel_url"]:
                return str(info["tunnel_url"])
        _LOG.warning(
            "There is no tunnel to port %s: start_debug_dashboard(..., setup_tunnel=True) opens it with a dashboard.",
            port,
        )
        return None

    def start_nocode_interface(self, port: int = 8051, setup_tunnel: bool = True) -> dict[str, Any]:
        """Raise CloudError: there is no such interface."""
        del port, setup_tunnel
        raise CloudError("there is no no-code interface: write the model as text, and use start_debug_dashboard")

    def cleanup(self) -> None:
        """End all processes that were started here, and remove the temporary folder. It may be called again."""
        for running, _ in self._sessions.values():
            running.end()
        self._sessions.clear()
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    def __enter__(self) -> CloudExecutor:  # noqa: PYI034 (Python 3.10 has no Self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    def _written(self, dsl_code: str) -> Path:
        """Write the text of a model into a folder of its own."""
        if not self.temp_dir.is_dir():
            raise CloudError("this executor has been cleaned up: make another one")
        folder = Path(tempfile.mkdtemp(dir=self.temp_dir, prefix="model-"))
        file = folder / "model.neural"
        file.write_text(dsl_code, encoding="utf-8")
        return file


def _plan(dsl_code: str) -> Plan:
    from neural.check.checker import checked  # noqa: PLC0415 (needs lark)
    from neural.language.reader import parse  # noqa: PLC0415

    return checked(parse(dsl_code))


def _dataset(file: Path) -> str:
    """Return the data set that a model is trained on if nobody names one."""
    from neural.data.opening import SYNTHETIC  # noqa: PLC0415 (needs lark)
    from neural.preparing import bundled_for  # noqa: PLC0415

    try:
        return bundled_for(_plan(file.read_text(encoding="utf-8"))) or SYNTHETIC
    except (OSError, ValueError):  # the command itself says what is wrong with the file
        return SYNTHETIC


def _command(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 (our own command)
        [*children.COMMAND, *args],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _free_port() -> int:
    """Return the usual port, or the next one that nobody listens on."""
    for port in range(PORT, PORT + _TRIES):
        with socket.socket() as tried:
            if sys.platform != "win32":
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    return 0


def _tunnel_kind() -> str | None:
    """Return the kind of tunnel that can be opened here; None, with the reason in the log, if there is none."""
    from neuraldbg.dashboard.tunnel import Wanted  # noqa: PLC0415 (only where it is asked for)
    from neuraldbg.errors import NeuralDbgError  # noqa: PLC0415

    reasons = []
    for kind in ("ngrok", "cloudflared"):
        try:
            Wanted(kind).check()
        except NeuralDbgError as error:
            reasons.append(str(error))
        else:
            return kind
    _LOG.warning("No tunnel was opened: %s", "; ".join(reasons))
    return None


def _dashboard_of(running: Child) -> str:
    """Return the dashboard's address once it listens. Raises CloudError if the command ends before."""
    here = running.wait_for(_HERE, START_S)
    if here is None or not _listens(here[1]):
        raise CloudError(f"there is no dashboard; the command said:\n{last_words(running.said())}")
    return here[1]


def _tunnel_of(running: Child) -> str | None:
    match = running.wait_for(_TUNNEL, TUNNEL_S)
    if match is not None and match[1]:
        return match[1]
    reason = match[2] if match is not None else f"the command did not say within {TUNNEL_S:g} s that it is open"
    _LOG.warning("No tunnel was opened: %s", reason)
    return None


def _listens(url: str) -> bool:
    """Return True if somebody listens at an address."""
    match = re.match(r"http://([\w.-]+):(\d+)/", url)
    if match is None:
        return False
    try:
        socket.create_connection((match[1], int(match[2])), 5).close()
    except OSError:
        return False
    return True
