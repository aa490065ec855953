"""What a program leaves behind in its process, as text that can be compared: key -> value.

Its global variables (tensors, modules with weights and gradients, optimizers, schedules, numbers, lists of these), the
states of all random generators, and everything that a guest may forget to put back: hooks, patched functions, modes,
handlers, filters, descriptors, threads. Written by the last of all exit handlers of the process.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import hashlib
import locale
import logging
import marshal
import math
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time
import types
import warnings
import weakref
from array import array
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEEPEST = 6
LONGEST = 20_000
"""Elements of a list that are looked at."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")

_where: dict[str, Any] = {}
# The program may replace what stands in these modules.
_open, _write, _close, _dumps, _sha, _sleep = os.open, os.write, os.close, marshal.dumps, hashlib.sha256, time.sleep


def install() -> None:
    """Register the exit handler; to be called before anything else registers one."""
    _where["server"] = sys.modules["__main__"]
    atexit.register(_write_digest)


def prepare() -> None:
    """Take hold of what is needed of torch and numpy, which the program may change."""
    import numpy as np
    import torch
    from torch.utils import _python_dispatch

    _where.update(torch=torch, numpy=np, dispatch=_python_dispatch, exact=_exact_reader(torch))
    _where["untouched"] = _Untouched()


def begin(folder: Path, leave: str = "") -> None:
    """Have this process leave its digest in a folder. With ``leave`` it ends right after the last exit handler, which
    saves most of the time: to take an interpreter down that has torch loaded takes longer than to train in it.
    ``"values"``: with the random generators and global variables alone; ``"all"``: with all parts.
    """
    _where.update(folder=folder, pid=os.getpid(), leave=leave)
    if leave:
        for one in weakref.finalize._registry:  # operators that torch registered: it takes 8,000 page faults
            one.atexit = False


def ends(status: int) -> None:
    """Note the exit status that the process is going to have."""
    _where["status"] = status


def _write_digest() -> None:
    if _where.get("pid") != os.getpid():
        return
    sys.settrace(None)
    sys.setprofile(None)
    sys.setrecursionlimit(10_000)
    _where["filters"] = list(warnings.filters)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, part in _PARTS.items():
            if _where["leave"] == "values" and name not in {"random:", "global"}:
                continue
            try:
                for key, value in part():
                    found[f"{name}{key}"] = value
            except BaseException as error:  # what cannot be read must not be read in any of the runs
                found[f"{name}!"] = f"{type(error).__name__}: {error}"
    file = _open(str(_where["folder"] / "digest"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    data = _dumps(found)
    while data:
        data = data[_write(file, data) :]
    _close(file)
    if _where["leave"]:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_where.get("status", 1) & 255)


# ---------------------------------------------------------------- values


def _exact_reader(torch: Any) -> Callable[[Any], str]:
    """Return a function that tells the bits of a tensor, whatever modes the program has left on."""
    as_numpy, view, detach = torch.Tensor.numpy, torch.Tensor.view, torch.Tensor.detach
    resolve = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
    contiguous, coalesce, dense = torch.Tensor.contiguous, torch.Tensor.coalesce, torch.Tensor.to_dense
    uint8, strided = torch.uint8, torch.strided

    def read(x: Any) -> str:
        x = detach(x)
        if x.layout is not strided:
            x = dense(coalesce(x) if x.layout is torch.sparse_coo else x)
        for step in resolve:
            x = step(x)
        x = contiguous(x)
        data = as_numpy(view(x.reshape(-1), uint8)).tobytes() if x.numel() else b""
        return _sha(data).hexdigest()[:16]

    return read


def _tensor(x: Any) -> str:
    torch = _where["torch"]
    kind = f"{type(x).__name__} {x.dtype} {tuple(x.shape)} {x.device} grad={x.requires_grad} leaf={x.is_leaf}"
    with torch._C.DisableTorchFunction(), torch.no_grad(), _where["dispatch"]._disable_current_modes():
        try:
            bits = _where["exact"](x)
            if x.numel() == 1 and x.layout is torch.strided:
                kind += f" {x.item()!r}"
        except Exception as error:
            bits = f"unreadable ({type(error).__name__})"
    return f"{kind} {bits}"


def described(key: str, value: Any, depth: int = 0, seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, str]]:
    """Give what can be compared of a value, under keys that begin with the one given."""
    torch = _where["torch"]
    if value is None or type(value) in {bool, int, str, bytes, complex, type(...)}:
        yield key, _plain(value)
    elif type(value) is float:
        yield key, f"{value!r} {struct.pack('>d', value).hex()}" if math.isnan(value) else repr(value)
    elif id(value) in seen or depth > DEEPEST:
        yield key, f"({type(value).__name__} again, or too deep)"
    else:
        yield from _compound(key, value, depth, seen | {id(value)}, torch)


def _compound(key: str, value: Any, depth: int, seen: frozenset[int], torch: Any) -> Iterator[tuple[str, str]]:
    numpy = _where["numpy"]
    inner = depth + 1, seen
    if issubclass(type(value), torch.Tensor):
        yield key, _tensor(value)
        hooks = map(code_of, (value._backward_hooks or {}).values())
        # Those on a result that the program has kept live with its graph, and do nothing after the run.
        yield f"{key}.hooks", repr([hook for hook in hooks if value.is_leaf or "neuraldbg" not in hook])
        yield f"{key}.post_hooks", repr([code_of(h) for h in (value._post_accumulate_grad_hooks or {}).values()])
        if value.is_leaf and value.grad is not None:
            yield f"{key}.grad", _tensor(value.grad)
        yield f"{key}.dict", repr(sorted(map(str, getattr(value, "__dict__", ()))))
    elif issubclass(type(value), torch.nn.Module):
        yield from _module(key, value, inner)
    elif issubclass(type(value), torch.Generator):
        yield key, _tensor(value.get_state())
    elif issubclass(type(value), torch.optim.Optimizer) or hasattr(type(value), "state_dict"):
        yield f"{key}.type", type(value).__qualname__
        yield f"{key}.dict", repr(sorted(map(str, getattr(value, "__dict__", ()))))
        try:
            state = value.state_dict()
        except Exception as error:
            state = type(error).__name__
        yield from described(f"{key}.state", state, *inner)
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            yield f"{key}.{name}", repr([code_of(h) for h in getattr(value, name, {}).values()])
        for name in ("step", "zero_grad"):
            yield f"{key}.{name}", code_of(getattr(value, name, None))
    elif issubclass(type(value), (dict, ChainMap, Counter, OrderedDict, defaultdict)):
        items = list(dict.items(value)) if issubclass(type(value), dict) else []
        yield f"{key}.len", str(len(items))
        for name, one in items[:LONGEST]:
            yield from described(f"{key}[{_plain(name) if type(name) in {int, str} else _named(name)}]", one, *inner)
    elif issubclass(type(value), (list, tuple, deque)):
        items = list(type(value).__mro__[-2].__iter__(value)) if type(value) in {list, tuple, deque} else list(value)
        yield f"{key}.len", str(len(items))
        for i, one in enumerate(items[:LONGEST]):
            yield from described(f"{key}[{i}]", one, *inner)
    elif type(value) in {set, frozenset}:
        yield key, _plain(repr(sorted(map(_named, value))))
    elif issubclass(type(value), (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        bits = _sha(array.tobytes()).hexdigest()[:16] if array.dtype != object else repr(array.shape)
        yield key, f"{type(value).__name__} {array.dtype} {array.shape} {bits}"
    elif issubclass(type(value), random.Random):
        yield key, _hash(random.Random.getstate(value))
    elif issubclass(type(value), numpy.random.Generator):
        yield key, _hash(value.bit_generator.state)
    elif issubclass(type(value), (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)):
        yield key, code_of(value)
    elif issubclass(type(value), BaseException):
        yield key, _plain(f"{type(value).__qualname__}{value.args!r}")
    else:
        own = getattr(value, "__dict__", None)
        yield f"{key}.type", type(value).__qualname__
        if type(own) is dict and type(value).__module__ in {"__main__", "__mp_main__"}:
            yield from described(f"{key}.", own, *inner)


_HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _module(key: str, value: Any, inner: tuple[int, frozenset[int]]) -> Iterator[tuple[str, str]]:
    own = object.__getattribute__(value, "__dict__")
    yield f"{key}.type", type(value).__qualname__
    yield f"{key}.names", repr(sorted(map(str, own)))
    for name in _HOOKS:
        yield f"{key}.{name}", repr([code_of(hook) for hook in (own.get(name) or {}).values()])
    for group in ("_parameters", "_buffers", "_modules"):
        for name, one in dict.items(own.get(group) or {}):
            yield from described(f"{key}.{name}", one, *inner)
    for name, one in own.items():
        if (
            name not in _HOOKS
            and name != "_torchdynamo_wrapper_id"
            and name not in {"_parameters", "_buffers", "_modules"}
        ):
            yield from described(f"{key}.{name}", one, *inner)


def code_of(function: Any) -> str:
    """Name a function by where its code stands."""
    inside = getattr(function, "func", None) or getattr(function, "__func__", None) or function
    code = getattr(inside, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
    return _plain(f"{type(function).__name__} {getattr(function, '__module__', '')} {_named(function)}")


def _named(value: Any) -> str:
    if type(value) in {int, str, float, bool, bytes, tuple, frozenset}:
        return _plain(value)
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return value.__qualname__
    return type(value).__qualname__


def _plain(value: Any) -> str:
    text = value if type(value) is str else repr(value)
    text = _ADDRESS.sub("0x", text)
    return (
        text if len(text) < 400 else f"{text[:200]}... {_sha(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    )


def _hash(value: Any) -> str:
    return _sha(repr(value).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- parts


def _globals() -> Iterator[tuple[str, str]]:
    main = sys.modules["__main__"]
    if main is _where["server"]:  # the program has not even begun
        return
    for name, value in list(vars(main).items()):
        if (name.startswith("__") and name != "__warningregistry__") or type(value) is types.ModuleType:
            continue
        yield from described(f".{name}", value)


def _generators() -> Iterator[tuple[str, str]]:
    torch = _where["torch"]
    yield " python", _hash(random.getstate())
    yield " numpy", _hash(_where["numpy"].random.get_state())
    yield " torch", _tensor(torch.default_generator.get_state())


_TQDM = "tqdm_monitor"
"""A thread that tqdm keeps beside its bars, of which torch makes one at each compilation: an exit handler ends it, and
the next bar begins it anew, so that whether there is one at the end is a matter of time."""


def _process() -> Iterator[tuple[str, str]]:
    yield " argv", repr(sys.argv[:1])
    yield " cwd", _cwd()
    yield " path", repr(sys.path)
    yield " environ", _hash(sorted(os.environ.items())) + f" {len(os.environ)} names"
    yield " modules", repr([name for name in ("torch", "numpy") if name in sys.modules])
    yield " meta_path", repr([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path])
    yield " warnings.filters", _plain(repr(_where.get("filters")))
    yield " warnings.showwarning", code_of(warnings.showwarning) + code_of(warnings._showwarnmsg_impl)
    for name in ("excepthook", "displayhook", "unraisablehook", "breakpointhook"):
        yield f" sys.{name}", code_of(getattr(sys, name))
    yield " threading.excepthook", code_of(threading.excepthook)
    yield " stdout", type(sys.stdout).__name__
    yield " stderr", type(sys.stderr).__name__
    yield " builtins", repr({n: code_of(v) for n, v in vars(builtins).items() if isinstance(v, types.FunctionType)})
    yield " descriptors", repr(_descriptors())
    yield " threads", repr(sorted(thread.name for thread in threading.enumerate() if thread.name != _TQDM))
    yield " tasks", repr(_tasks()) if Path("/proc/self/task").is_dir() else ""
    yield " children", _children()
    yield " gc", repr((gc.isenabled(), gc.get_threshold(), [code_of(one) for one in gc.callbacks], gc.get_debug()))
    yield " switchinterval", repr(sys.getswitchinterval())
    yield " locale", repr(locale.setlocale(locale.LC_ALL))
    yield " umask", repr(_umask())
    yield (
        " logging",
        repr((logging.root.level, logging.root.manager.disable, [code_of(h) for h in logging.root.handlers])),
    )
    yield " logging.raise", repr(logging.raiseExceptions)
    yield " socket", repr(socket.getdefaulttimeout())
    yield " alarm", repr(signal.getitimer(signal.ITIMER_REAL)[0] > 0)
    yield " mask", repr(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    for number in sorted(signal.valid_signals()):
        handler = signal.getsignal(number)
        if handler is not signal.SIG_DFL:
            yield f" signal {int(number)}", repr(handler) if isinstance(handler, int) else code_of(handler)


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        return type(error).__name__


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _tasks() -> int:
    """Count the threads that the system knows. One that was joined may take a moment to go."""
    fewest = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        if fewest <= threading.active_count():
            break
        _sleep(0.001)
        fewest = min(fewest, len(os.listdir("/proc/self/task")))
    return fewest - sum(thread.name == _TQDM for thread in threading.enumerate())


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that lists the folder
            continue
        found.append(re.sub(r"[0-9]{3,}", "N", target) if not target.startswith("/tmp") else "file")
    return sorted(found)


def _children() -> str:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return "none"
    return "some"


def _torch() -> Iterator[tuple[str, str]]:
    torch = _where["torch"]
    loaded = "torch" in sys.modules
    yield " dtype", repr(torch.get_default_dtype())
    yield " grad", repr((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()))
    yield (
        " deterministic",
        repr(
            (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
                torch.utils.deterministic.fill_uninitialized_memory,
            )
        ),
    )
    yield " threads", repr((torch.get_num_threads(), torch.get_num_interop_threads()))
    yield " autocast", repr((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
    yield (
        " precision",
        repr((torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.is_warn_always_enabled())),
    )
    yield " print", repr(vars(torch._tensor_str.PRINT_OPTS))
    yield " numpy", repr((_where["numpy"].geterr(), _where["numpy"].get_printoptions()))
    yield " modes", repr([type(one).__name__ for one in _where["dispatch"]._get_current_dispatch_mode_stack()])
    yield " functions", repr([type(one).__name__ for one in torch.overrides._get_current_function_mode_stack()])
    yield " saved hooks", repr(torch._C._autograd._saved_tensors_hooks_is_enabled())
    yield " multithreading", repr((torch.autograd._is_checkpoint_valid(), torch._C._is_multithreading_enabled()))
    yield " skip guards", repr(torch._dynamo.config.skip_nnmodule_hook_guards)
    yield " sharing", torch.multiprocessing.get_sharing_strategy()
    for name, place in _places(torch).items():
        for inside, value in list(vars(place).items()):
            if inside.startswith("_global_") and isinstance(value, dict):
                yield f" {name}.{inside}", repr([code_of(hook) for hook in value.values()])
            elif isinstance(value, property):
                yield f" {name}.{inside}", code_of(value.fget)
            elif callable(value) or isinstance(value, (staticmethod, classmethod)):
                yield f" {name}.{inside}", code_of(value)
    yield " ours", repr(_ours()) if loaded else "[]"


def _places(torch: Any) -> dict[str, Any]:
    return {
        "autograd": torch.autograd,
        "autograd.Function": torch.autograd.Function,
        "Node": torch.autograd.graph.Node,
        "Tensor": torch.Tensor,
        "Module": torch.nn.Module,
        "functional": torch.nn.functional,
        "utils": torch.nn.utils,
        "clip_grad": torch.nn.utils.clip_grad,
        "module": torch.nn.modules.module,
        "Optimizer": torch.optim.Optimizer,
        "optimizer": sys.modules["torch.optim.optimizer"],
        "LRScheduler": torch.optim.lr_scheduler.LRScheduler,
        "ReduceLROnPlateau": torch.optim.lr_scheduler.ReduceLROnPlateau,
        "DataLoader": torch.utils.data.DataLoader,
        "GradScaler": torch.amp.GradScaler,
        "checkpoint": torch.utils.checkpoint,
        "torch": torch,
        "func": torch.func,
        "jit": torch.jit,
        "distributed": torch.distributed,
        "SGD": torch.optim.SGD,
        "Adam": torch.optim.Adam,
        "Linear": torch.nn.Linear,
        "Sequential": torch.nn.Sequential,
    }


def _ours() -> list[str]:
    """Name functions of NeuralDBG that stand in modules of others."""
    if "neuraldbg" not in sys.modules:
        return []
    changed = _where["untouched"].changed()
    return sorted(f"{name}.{inside}" for name, module in changed for inside in _ours_in(name, module))


def _ours_in(name: str, module: Any) -> Iterator[str]:
    if name.partition(".")[0] in {"neuraldbg", "tests"} or not isinstance(module, types.ModuleType):
        return
    for inside, value in list(vars(module).items()):
        code = getattr(value, "__code__", None) if type(value) is types.FunctionType else None
        if code is not None and "/neuraldbg/" in code.co_filename:
            yield inside


class _Untouched:
    """Modules that nobody has written to since this was made, by the versions of their dictionaries.

    To look at what all modules hold writes to the count of references of everything there is, which copies 60 MB in a
    forked child. A version is read without writing anywhere.
    """

    _VERSION = 24 if sys.version_info < (3, 12) and struct.calcsize("P") == 8 else None
    """Where a dictionary has its version, which changes with each write; later ones have none that is reliable."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._at, self._was = array("Q"), array("Q")
        self._held = []  # no address of a dictionary that is gone
        if self._VERSION is None:
            return
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType) and not any(_ours_in(name, module)):
                self.names.append(name)
                self._held.append(vars(module))
                self._at.append(id(vars(module)) + self._VERSION)
                self._was.append(self._version(self._at[-1]))

    @staticmethod
    def _version(address: int) -> int:
        return int(ctypes.c_uint64.from_address(address).value)

    def changed(self) -> list[tuple[str, Any]]:
        """Return the modules that were written to or are new, by name."""
        same = {n for n, at, was in zip(self.names, self._at, self._was, strict=True) if self._version(at) == was}
        return [(name, sys.modules[name]) for name in list(sys.modules) if name not in same]


_PARTS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "random:": _generators,
    "process:": _process,
    "torch:": _torch,
    "global": _globals,
}
