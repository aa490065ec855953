"""Runs programs bare and watched, and says what differs.

What enters is a ``Program``, what leaves is a ``Verdict``: its differences, each a sentence, and what is not the same
twice without us, which is left out of the comparison.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import itertools
import json
import marshal
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = HERE / "programs"
MODES = ("bare", "default", "full")
QUICK = "all"
"""How a run of the part that is fast leaves: see ``digest.begin``."""
TIMEOUT_S = 60.0
"""Programs take about two seconds; on a machine with nine other processes ten times as much."""

_LAST = r"See it with: neuraldbg report [^\n]*|Saved in [^\n]* shows the rest"
_BANNER = re.compile(rf"\n\S (?:HEALTHY|FAILING|SUSPECT|INCONCLUSIVE) \S+\n.*?(?:\n(?:{_LAST})\n|\Z)", re.DOTALL)
_PROFILE = re.compile(r"\nPROFILE .*\Z", re.DOTALL)
"""What is printed below it after a run with ``--profile``."""
_UNWATCHED = "without importing torch: nothing was watched"
"""Said of a program that has not imported torch."""
_SAID = re.compile(r"^neuraldbg: .*\n", re.MULTILINE)
_STARTERS = (
    r"tests/guest/(?:server|child)\.py|neuraldbg/(?:(?:cli|runner)/[^\"]*|__main__\.py)|torch/nn/modules/module\.py"
)
_FRAME = re.compile(
    rf'^ *File "(?:[^"]*/(?:{_STARTERS})|<frozen runpy>)", line \d+, in .*\n(?:    .*\n)?(?: *[\^~]+ *\n)?',
    re.MULTILINE,
)
"""A frame of what has started the program, where all of the stack is shown (anomaly mode, faulthandler), and those of
``Module.__call__``, which takes another way where there are hooks."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_CLOCK = re.compile(
    r"^(?:\[?[IWEF]\d{4} [\d:.]+ (?:\d+ (?=\S*:\d+\]))?|USDT:\d{4}-\d\d-\d\d [\d:]+ [\d:]+ )", re.MULTILINE
)
"""Time and process before each line of torch's loggers, in Python ("W1125 03:52:46.811000 30651 ") and in C++."""


_PARSING = threading.Lock()
"""Python 3.11 counts the depth of its trees for all threads together, and raises SystemError where two make one."""


@dataclass(frozen=True)
class Program:
    """A script, or a folder with a ``__main__.py``. Lines of its docstring say what is special about it."""

    path: Path

    @property
    def name(self) -> str:
        """Topic and name."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def docstring(self) -> str:
        """The docstring, also of a script that python cannot compile."""
        text = (self.path / "__main__.py" if self.path.is_dir() else self.path).read_bytes().decode("utf-8", "replace")
        try:
            with _PARSING:
                return ast.get_docstring(ast.parse(text)) or ""
        except (SyntaxError, ValueError):
            found = re.search(r'"""(.*?)"""', text, re.DOTALL)
            return found[1] if found else ""

    @property
    def without_torch(self) -> bool:
        """True if the program cannot come to import torch: it does not name it, or Python cannot compile it."""
        if self.path.is_dir():
            return False
        source = self.path.read_bytes()
        try:
            with _PARSING:
                compile(source, str(self.path), "exec")
        except (SyntaxError, ValueError):
            return True
        return "torch" not in source.decode("utf-8", "replace").replace(self.docstring, "")

    def says(self, line: str) -> bool:
        """Return True if a line of the docstring is just this."""
        return line in {one.strip() for one in self.docstring.splitlines()}


def fast_mode(program: Program) -> str:
    """Return the one mode in which the part that is fast watches a program: half of them in each."""
    return MODES[1 + zlib.crc32(program.name.encode()) % 2]


def fast_leave(program: Program) -> str:
    """Return how it leaves there: see ``digest.begin``."""
    return "" if program.says("to the very end") else QUICK


def slow_mode(program: Program) -> str:
    """Return the other mode, in which the slow part watches it."""
    return next(mode for mode in MODES[1:] if mode != fast_mode(program))


def programs(*names: str) -> list[Program]:
    """Return all programs, or those whose topic/name contains one of the words."""
    found = [
        Program(path)
        for path in sorted(PROGRAMS.glob("*/*"))
        if not path.name.startswith(("_", ".")) and (path.suffix == ".py" or (path / "__main__.py").is_file())
    ]
    return [one for one in found if not names or any(word in one.name for word in names)]


@dataclass(frozen=True)
class Outcome:
    """What is known of one run from outside."""

    mode: str
    status: str
    stdout: str
    stderr: str
    """Less what we have said."""
    said: list[str]
    """Sentences of ours that are not the diagnosis."""
    left: dict[str, str]
    """Its digest; empty if it did not come so far."""
    files: dict[str, str]
    errors: int | None
    """Internal errors according to the saved run; None if nothing was saved."""
    first_error: str = ""
    seconds: float = 0.0
    cpu: float = 0.0


@dataclass
class Verdict:
    """The comparison of all runs of one program."""

    program: Program
    runs: int = 0
    differences: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    """Keys that are not the same in two bare runs."""
    outcomes: list[Outcome] = field(default_factory=list)


class Server:
    """One process that forks, see ``server.py``; ``modules`` are imported before, beside what each program needs."""

    def __init__(self, mode: str, *modules: str) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("NEURALDBG_", "PYTEST_", "COV_"))}
        environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "COLUMNS": "100"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.guest.server", mode, *modules],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have one program run and wait for its end."""
        self._ready.wait()
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._answers[number] = answer
            self._process.stdin.write(json.dumps({**request, "id": number}).encode() + b"\n")
            self._process.stdin.flush()
        return answer.get()

    def _read(self) -> None:
        for line in self._process.stdout:
            reply = json.loads(line)
            if "ready" in reply:
                self._ready.set()
            else:
                self._answers.pop(reply["id"]).put(reply)
        self._ready.set()
        for answer in list(self._answers.values()):
            answer.put({"status": None, "seconds": 0.0, "cpu": 0.0, "gone": True})

    def close(self) -> None:
        """End it and what still runs under it."""
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()


class Guests:
    """The two servers, and threads that put programs through them."""

    def __init__(self, jobs: int = 2, *, keep: Path | None = None, trace: bool = False) -> None:
        self.folder = keep or Path(tempfile.mkdtemp(prefix="guests-"))
        self._keep = keep is not None
        self._trace = trace
        self.servers = {"bare": Server("bare"), "watched": Server("watched")}
        self._pool = ThreadPoolExecutor(jobs)
        self._numbers = itertools.count()

    def submit(self, program: Program, modes: Sequence[str] = MODES[1:], leave: str = "") -> Future[Verdict]:
        """Begin to run a program bare and in some modes; ``leave`` as in ``digest.begin``."""
        return self._pool.submit(self.judge, program, modes, leave)

    def judge(self, program: Program, modes: Sequence[str] = MODES[1:], leave: str = "") -> Verdict:
        """Run a program bare and in some modes, and compare."""
        verdict = Verdict(program)
        bare = self.outcome(program, "bare", leave=leave)
        verdict.outcomes.append(bare)
        if bare.status == "timed out":
            verdict.differences.append("[bare] timed out: not a program of this suite")
            return verdict
        watched = [self.outcome(program, mode, leave=leave) for mode in modes]
        verdict.outcomes += watched
        verdict.runs = 1 + len(watched)
        # a session that the program leaves open holds functions of torch, on top of ours
        left_open = program.says("stand-ins: left")
        found = [
            (one.mode, [d for d in differences(bare, one) if not (left_open and d[0].startswith("left torch: "))])
            for one in watched
        ]
        if any(each for _, each in found):
            verdict.unsteady = sorted({key for key, _ in differences(bare, self.outcome(program, "bare", leave=leave))})
            verdict.runs += 1
        for mode, each in found:
            verdict.differences += [f"[{mode}] {text}" for key, text in each if key not in verdict.unsteady]
        for one in watched:
            verdict.differences += [f"[{one.mode}] {text}" for text in own_faults(program, one)]
        return verdict

    def outcome(self, program: Program, mode: str, **more: Any) -> Outcome:
        """Run a program once."""
        folder = self.folder / f"{next(self._numbers)}-{program.path.stem}-{mode}"
        (folder / "cwd").mkdir(parents=True)
        target = str(program.path)
        server = self.servers["bare" if mode == "bare" else "watched"]
        timeout = next((float(x[8:]) for x in program.docstring.split("\n") if x.startswith("timeout:")), TIMEOUT_S)
        request = {"program": target, "mode": mode, "folder": str(folder), "timeout": timeout, "trace": self._trace}
        reply = server.run({**request, **more})
        try:
            return _outcome(mode, folder, reply)
        finally:
            if not self._keep:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the servers."""
        self._pool.shutdown(cancel_futures=True)
        for server in self.servers.values():
            server.close()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _outcome(mode: str, folder: Path, reply: dict[str, Any]) -> Outcome:
    def neutral(text: str) -> str:
        return _CLOCK.sub("", _ADDRESS.sub("0x", _FRAME.sub("", text.replace(str(folder), "<run>"))))

    stderr = neutral(_text(folder / "stderr"))
    if mode != "bare":
        stderr = _PROFILE.sub("", _BANNER.sub("", stderr))
    said = _SAID.findall(stderr) if mode != "bare" else []
    left = {k: neutral(v) for k, v in _digest(folder / "digest").items()}
    errors, first = _internal_errors(folder / "run") if mode != "bare" else (None, "")
    return Outcome(
        mode,
        _status(reply),
        neutral(_text(folder / "stdout")),
        _SAID.sub("", stderr) if mode != "bare" else stderr,
        said,
        left,
        dict(_files(folder / "cwd")),
        errors,
        first,
        reply["seconds"],
        reply["cpu"],
    )


def _digest(path: Path) -> dict[str, str]:
    """Read what a process has left; nothing if it did not come to write all of it."""
    try:
        found: dict[str, str] = marshal.loads(path.read_bytes())
    except (OSError, EOFError, ValueError, TypeError):
        return {}
    return found


def _text(path: Path) -> str:
    return path.read_bytes()[: 1 << 20].decode("utf-8", "backslashreplace") if path.is_file() else ""


def _status(reply: dict[str, Any]) -> str:
    status = reply["status"]
    if status is None:
        return "the server is gone" if reply.get("gone") else "timed out"
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.WEXITSTATUS(status)}"


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _internal_errors(run: Path) -> tuple[int | None, str]:
    from neuraldbg.errors import NeuralDbgError
    from neuraldbg.record import read_run

    try:
        coverage = read_run(run).info.coverage
    except (NeuralDbgError, OSError):
        return None, ""
    notes = coverage.get("notes", ())
    return int(coverage.get("errors", 0)), next((note for note in notes if "internal error" in note), "")


def differences(bare: Outcome, other: Outcome) -> Iterator[tuple[str, str]]:
    """Give everything in which two runs differ: a key, and a sentence."""
    if bare.status != other.status:
        end = f"\n{other.stderr[-1500:]}" if other.stderr != bare.stderr else ""
        yield "status", f"{other.status}, not {bare.status}{end}"
    for name in ("stdout", "stderr"):
        ours, theirs = getattr(other, name), getattr(bare, name)
        if ours != theirs:
            lines = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "bare", other.mode, lineterm="", n=1)
            yield name, f"{name} differs:\n" + "\n".join(itertools.islice(lines, 40))
    for kind in ("left", "files"):
        ours, theirs = getattr(other, kind), getattr(bare, kind)
        if kind == "left" and bool(ours) != bool(theirs):
            yield "left", "it did not come to its last exit handler" if theirs else "it came to its last exit handler"
            continue
        for key in sorted({*ours, *theirs}):
            if ours.get(key) != theirs.get(key):
                yield f"{kind} {key}", f"{key} is {ours.get(key, 'missing')}, not {theirs.get(key, 'missing')}"


def own_faults(program: Program, one: Outcome) -> Iterator[str]:
    """Give what is wrong with a watched run by itself."""
    if one.errors and not program.says("errors: allowed"):
        yield f"{one.errors} internal errors. {one.first_error}"
    if one.said and not program.says("problems: allowed") and not (program.without_torch and _UNWATCHED in one.said[0]):
        yield "said: " + " ".join(one.said)
    if len(one.said) > 1:
        yield "said more than one sentence: " + " ".join(one.said)


def count(verdicts: Sequence[Verdict]) -> str:
    """Return the line that ends a run of the suite."""
    runs = sum(one.runs for one in verdicts)
    differ = sum(bool(one.differences) for one in verdicts)
    unsteady = sum(bool(one.unsteady) for one in verdicts)
    return f"guest: {len(verdicts)} programs, {runs} runs, {differ} differ, {unsteady} not the same twice"
