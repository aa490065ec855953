"""What holds for every test: internal errors raise, and the process is left as it was found.

We are a guest in the user's process, so each test is followed by a search for what a guest may forget: hooks, patched
functions, modes, threads, signal handlers. What is found in torch is put right and reported as that test's failure:
one leak is one failure. Rooms that are free of torch stay so: torch is looked at only where a test has imported it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

# What these assert is told with its values, too.
pytest.register_assert_rewrite("tests.browser", "tests.dashboard.served_page")

from tests.browser import browser  # noqa: E402, F401 (a fixture)

from neuraldbg.unlisted_thread import unlisted  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Here and not in a fixture, so that programs started by tests inherit it too.
os.environ["NEURALDBG_STRICT"] = "1"
os.environ.setdefault("MPLBACKEND", "Agg")

# The same examples on every machine; two busy cores say nothing about a property's deadline.
settings.register_profile("neuraldbg", deadline=None, derandomize=True)
settings.load_profile("neuraldbg")

ABSENT = object()
GRACE_S = 2.0
"""A background thread that was told to stop may take this long."""


@pytest.fixture(autouse=True, scope="module")
def earlier_objects() -> None:
    """Set aside what earlier modules have left: Python's collector would search millions of objects again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def good_guest() -> Iterator[None]:
    """Fail a test that leaves anything behind."""
    process = process_state()
    modes = torch_modes()
    namespaces = torch_namespaces()
    yield
    leaks = left_threads()
    leaks += changed(process, process_state())
    leaks += left_in_namespaces(namespaces)
    leaks += left_modes(modes)
    if leaks:
        pytest.fail("left behind by this test: " + "; ".join(leaks), pytrace=False)


@pytest.fixture(autouse=True)
def unhurried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every session an allowance that no test can spend, so that what is read does not depend on how busy the
    machine is; tests of the budget say so with the mark `budget`, and get more credit for what looks suspicious.
    """
    pace = sys.modules.get("neuraldbg.capture.steps.step_accounting")
    if pace is None:
        return
    if request.node.get_closest_marker("budget") is not None:
        monkeypatch.setattr(sys.modules["neuraldbg.capture.steps.overhead_budget"], "DEBT_S", 60.0)
        return
    experiments = sys.modules.get("neuraldbg.capture.readers.experiment_runner")
    if experiments is not None:
        monkeypatch.setattr(experiments, "SECONDS", 30.0)
    made = pace.Governor
    monkeypatch.setattr(pace, "Governor", lambda overhead, allowance: made(overhead, max(allowance, 3600.0)))


# ---------------------------------------------------------------- the process


def process_state() -> dict[str, Any]:
    """Return what belongs to the process and a runner of scripts changes for a while."""
    return {
        "sys.argv": list(sys.argv),
        "sys.excepthook": sys.excepthook,
        "threading.excepthook": threading.excepthook,
        "the working directory": os.getcwd(),  # noqa: PTH109 (compared as a string)
        "the module __main__": sys.modules.get("__main__"),
        "the SIGINT handler": signal.getsignal(signal.SIGINT),
        "the SIGTERM handler": signal.getsignal(signal.SIGTERM),
        "sys.gettrace": sys.gettrace(),
        "sys.getprofile": sys.getprofile(),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Name what differs."""
    return [f"{name} is {after[name]!r}, was {old!r}" for name, old in before.items() if after[name] != old]


def left_threads() -> list[str]:
    """Name our threads that are still alive."""
    deadline = time.monotonic() + GRACE_S
    while True:
        listed = [thread.name for thread in threading.enumerate() if thread.name.startswith("neuraldbg")]
        alive = [*listed, *unlisted()]
        if not alive or time.monotonic() > deadline:
            return [f"thread {name}" for name in alive]
        time.sleep(0.01)


# ---------------------------------------------------------------- torch


def torch_namespaces() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the places of torch where a function can be replaced or a hook registered, as they are now."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    places = {
        "torch.autograd": torch.autograd,
        "torch.autograd.graph.Node": torch.autograd.graph.Node,
        "torch.Tensor": torch.Tensor,
        "torch.nn.Module": torch.nn.Module,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.utils": torch.nn.utils,
        "torch.nn.utils.clip_grad": torch.nn.utils.clip_grad,
        "torch.nn.modules.module": torch.nn.modules.module,
        "torch.optim.Optimizer": torch.optim.Optimizer,
        "torch.optim.optimizer": sys.modules["torch.optim.optimizer"],
        "torch.optim.lr_scheduler.LRScheduler": torch.optim.lr_scheduler.LRScheduler,
        "torch.optim.lr_scheduler.ReduceLROnPlateau": torch.optim.lr_scheduler.ReduceLROnPlateau,
        "torch.utils.data.DataLoader": torch.utils.data.DataLoader,
        "torch.amp.GradScaler": torch.amp.GradScaler,
        "torch.utils.checkpoint": sys.modules.get("torch.utils.checkpoint", torch.utils),
    }
    return {name: (place, frozen(place)) for name, place in places.items()}


def frozen(place: Any) -> dict[str, Any]:
    """Return the functions and the hook dictionaries (copied) of a module or class."""
    found: dict[str, Any] = {}
    for name, value in vars(place).items():
        if name.startswith("_global_") and isinstance(value, dict):
            found[name] = dict(value)
        elif callable(value) or isinstance(value, (staticmethod, classmethod, property)):
            found[name] = value
    return found


def left_in_namespaces(before: dict[str, tuple[Any, dict[str, Any]]]) -> list[str]:
    """Name hooks and functions that were not there before, and put back what was."""
    leaks = []
    for where, (place, now) in torch_namespaces().items():
        old = before[where][1] if before else {}
        for name, value in now.items():
            if isinstance(value, dict):
                if value != old.get(name, {}):
                    leaks.append(f"hooks in {where}.{name}: {list(value.values())}")
                    live = vars(place)[name]
                    live.clear()
                    live.update(old.get(name, {}))
            elif name in old and value is not old[name] and not written_in("torch", value):
                leaks.append(f"{where}.{name} is replaced by {value!r}")
                setattr(place, name, old[name])
            elif name not in old and written_in("neuraldbg", value):
                leaks.append(f"{where}.{name} is ours: {value!r}")
    return leaks


def written_in(package: str, value: Any) -> bool:
    """Whether a function stands in a package's files, whatever module ``functools.wraps`` says.

    torch replaces functions of its own: the first compiled call wraps ``Module.__init__`` for good.
    """
    code = getattr(value, "__code__", None)
    file = getattr(sys.modules.get(package), "__file__", None)
    return code is not None and file is not None and Path(file).parent in Path(code.co_filename).parents


def torch_modes() -> dict[str, tuple[Any, Callable[[Any], Any] | None]]:
    """Return torch's modes as they are now, each with the function that sets it (None where nothing can)."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    dispatch = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    functions = torch.overrides._get_current_function_mode_stack()
    modes = {
        "default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "grad mode": (torch.is_grad_enabled(), torch._C._set_grad_enabled),
        "inference mode": (torch.is_inference_mode_enabled(), None),
        "deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.use_deterministic_algorithms,
        ),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.autograd.set_detect_anomaly),
        "CPU autocast": (torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
        "number of threads": (torch.get_num_threads(), torch.set_num_threads),
        "dispatch modes": (list(map(type, dispatch)), None),
        "function modes": (list(map(type, functions)), None),
    }
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        config = dynamo.config
        modes["torch._dynamo.config.skip_nnmodule_hook_guards"] = (
            config.skip_nnmodule_hook_guards,
            lambda on: setattr(config, "skip_nnmodule_hook_guards", on),
        )
    return modes


def left_modes(before: dict[str, tuple[Any, Callable[[Any], Any] | None]]) -> list[str]:
    """Name modes that differ, and set them back."""
    leaks = []
    after = torch_modes()
    for name, (old, restore) in before.items():
        new = after.get(name, (ABSENT, None))[0]
        if new != old:
            leaks.append(f"{name} is {new!r}, was {old!r}")
            if restore is not None:
                restore(old)
    return leaks


@pytest.fixture
def fresh_compiler():
    """No graph of torch.compile from before, none left behind, and what Dynamo counts at zero."""
    import torch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
