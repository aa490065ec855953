"""The test for functions of torch that were replaced, and for modes and hooks of the program that see operations.

A program may replace any function of torch: by one that draws from a generator of its own, or counts. An experiment
would run it once more. So before an experiment every name in torch's modules and classes is checked: a function belongs
to a package if its code is in the package's folder. Our own wrappers are looked through.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext

from neuraldbg.capture.guest.module_call import under
from neuraldbg.capture.guest.program_objects import is_a, kind_name, members, package_of
from neuraldbg.capture.guest.stand_in import below
from neuraldbg.capture.guest.tensor_kinds import suspended

if TYPE_CHECKING:
    from collections.abc import Iterator

_CORE = (
    "torch._C", "torch._VF", "torch._jit_internal", "torch._linalg_utils", "torch._lowrank", "torch._ops",
    "torch._tensor", "torch.amp", "torch.autograd", "torch.cpu", "torch.cuda", "torch.distributions", "torch.fft",
    "torch.functional",
    "torch.linalg", "torch.masked", "torch.nested", "torch.nn", "torch.overrides", "torch.random", "torch.signal",
    "torch.sparse", "torch.special", "torch.storage", "torch.utils._device", "torch.utils._python_dispatch",
    "torch.utils._pytree", "torch.utils.checkpoint", "torch.utils.hooks",
)  # fmt: skip
"""Modules of torch that a forward or backward pass goes through, with all below them."""
_TORCH = str(Path(torch.__file__).parent) + os.sep
_HELPERS = ("typing_extensions", "numpy", "opt_einsum", "optree", "sympy")
"""Packages whose functions are among torch's own."""
_OURS = str(Path(__file__).parents[2]) + os.sep
_STDLIB = tuple({
    str(Path(path)) + os.sep for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")) if path
})  # fmt: skip
_INSTALLED = ("site-packages", "dist-packages")
_SCRIPTED = ("ScriptFunction", "CustomOpDef", "OptimizedModule")
"""Classes of torch whose objects are made of the program's functions."""
_DATA = frozenset({
    str, int, float, bool, type(None), dict, list, tuple, set, frozenset, types.ModuleType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
})  # fmt: skip
"""Types that cannot be called, and methods of built-in classes: unbound, they hold no state."""
_IMPLEMENTED = ("/CPU", "/Autograd", "/AutogradCPU", "/CompositeExplicitAutograd", "/CompositeImplicitAutograd")
"""Dispatch keys for which torch itself registers no Python implementation on a CPU."""
_DEPTH = 8


def torch_is_heard() -> str:
    """Return the name of a mode, a hook on all modules or a saved-tensor hook of the program that sees operations,
    empty if there is none. The mode of ``torch.set_default_device`` is torch's own, and not counted.
    """
    for mode in torch.overrides._get_current_function_mode_stack():  # noqa: SLF001 (no public name)
        if type(mode) is not DeviceContext:
            return f"a TorchFunctionMode is active ({kind_name(type(mode))})"
    for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack():  # noqa: SLF001
        return f"a TorchDispatchMode is active ({kind_name(type(mode))})"
    if suspended():
        return f"a TorchDispatchMode is active ({suspended()})"
    hooks = vars(torch.nn.modules.module)
    if any(hooks[name] for name in hooks if name.startswith("_global_") and name.endswith("_hooks")):
        return "hooks are set on all modules of the program"
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001 (nothing public tells)
    if top is not None and top(True) is not None:
        return "the program packs what is saved for backward passes"
    implemented = getattr(torch.library, "_impls", ())  # "aten/relu/CPU": made in Python by a torch.library.Library
    for key in implemented:
        if key.startswith("aten/") and key.endswith(_IMPLEMENTED):
            return f"an operator of torch is the program's ({key.split('/')[1]})"
    return ""


def installed(function: types.FunctionType, packages: frozenset[str]) -> bool:
    """Return True for a function of one of some packages whose code is in a folder of installed packages. Its own
    ``__module__`` proves nothing: ``functools.wraps`` copies that.
    """
    where, file = function.__globals__.get("__name__"), function.__code__.co_filename
    if type(where) is not str:
        return False
    if where.startswith("namedtuple_"):
        return True
    if where.split(".", maxsplit=1)[0] not in packages:
        return False
    if file.startswith("<") and not file.startswith("<frozen"):  # generated methods of dataclasses
        return True
    return _of_python(file) or any(part in file for part in _INSTALLED) or file.startswith(_TORCH)


def not_its_own(package: str) -> str:
    """Return the name of a function in the modules of a package that another package has put there, empty if there is
    none. Of torch only the modules of ``_CORE`` are checked.
    """
    return _Search(package).first()


class _Search:
    """One search through the modules of a package for functions of others."""

    def __init__(self, package: str) -> None:
        self.package = package
        files = (getattr(sys.modules.get(name), "__file__", None) for name in (package, *_HELPERS))
        self.folders = (*(_folder(file) for file in files if file), _OURS)
        self._seen: set[int] = set()
        self._good: set[int] = set()
        """Identities of values that are the package's: most are in several modules."""
        self._files: dict[str, bool] = {}
        self._plain: dict[str, bool] = {}

    def first(self) -> str:
        """Return the name of the first function of another package, empty if there is none."""
        for name, module in self._modules():
            for key, value in list(vars(module).items()):
                if self._is_plain(value):
                    continue
                if not self.owns(value):
                    return f"{name}.{key}"
                if is_a(value, type) and (inner := self.in_class(value)):
                    return f"{kind_name(value)}.{inner}"
                self._good.add(id(value))
        return ""

    def _modules(self) -> Iterator[tuple[str, types.ModuleType]]:
        core = _CORE if self.package == "torch" else (self.package,)
        inside, below_them = {self.package, *core}, tuple(f"{one}." for one in core)
        for name, module in list(sys.modules.items()):
            if (name in inside or name.startswith(below_them)) and is_a(module, types.ModuleType):
                yield name, module

    def _is_plain(self, value: Any) -> bool:
        """Return True for data, for a value that was checked before, and for a function without a closure from a file
        of the package itself. Nine of ten values are such: a search takes two thirds of the time.
        """
        kind = type(value)
        if kind in _DATA or id(value) in self._good:
            return True
        if kind is not types.FunctionType or value.__closure__ is not None:
            return False
        file = value.__code__.co_filename
        known = self._plain.get(file)
        if known is None:  # one of ours may be a wrapper of anything
            known = self._plain[file] = file.startswith(self.folders) and not file.startswith(_OURS)
        return known

    def in_class(self, kind: type) -> str:
        """Return the name of a member of a class of the package that is another's, empty if there is none."""
        if id(kind) in self._seen or package_of(kind) != self.package or _pybind(type(kind)):
            return ""  # pybind classes have thousands of built-in methods, which Python code does not replace
        self._seen.add(id(kind))
        for name, each in list(members(kind).items()):
            if self._is_plain(each):
                continue
            member = _without_ours(each)
            if type(member) is types.FunctionType:
                good = self._owns_function(member, 0)
            elif type(member) is property:
                good = all(self.owns(part) for part in (member.fget, member.fset, member.fdel) if part is not None)
            else:
                good = type(member) in _DATA or self.owns(member)
            if not good:
                return name
            self._good.add(id(each))
        return ""

    def owns(self, value: Any, depth: int = 0) -> bool:
        """Return False for a function of another package, or made of one."""
        value = _without_ours(value)
        kind = type(value)
        if kind is types.FunctionType:
            return self._owns_function(value, depth)
        if kind in (staticmethod, classmethod, types.MethodType):
            bound = type(getattr(value, "__self__", None)) if kind is types.MethodType else kind
            return self.owns(value.__func__, depth) and (issubclass(bound, type) or self._owns_class(bound))
        if kind is types.BuiltinFunctionType:
            return _owns_builtin(value)
        if kind is functools.partial:
            return all(self.owns(x, depth + 1) for x in (value.func, *value.args, *value.keywords.values()))
        if kind is functools._lru_cache_wrapper:  # noqa: SLF001
            return self.owns(value.__wrapped__, depth + 1)
        if issubclass(kind, type):
            return self._owns_class(value)
        return self._owns_class(kind) and kind_name(kind) not in _SCRIPTED

    def _owns_function(self, function: types.FunctionType, depth: int) -> bool:
        file = function.__code__.co_filename
        known = self._files.get(file)
        if known is None:
            installed = self.package != "torch" and any(part in file for part in _INSTALLED)
            known = self._files[file] = file.startswith(self.folders) or _of_python(file) or installed
        if not (known or self._made(function)):
            return False
        if function.__closure__ is None or depth > _DEPTH:
            return True
        if id(function) in self._seen:
            return True
        self._seen.add(id(function))
        return all(self.owns(value, depth + 1) for value in cells(function))

    def _made(self, function: types.FunctionType) -> bool:
        """Return True if a function without a file was generated for the package, as for dataclasses, named tuples."""
        name = function.__globals__.get("__name__")
        of_package = type(name) is str and name.split(".", maxsplit=1)[0] in (self.package, "collections", "typing")
        named = type(name) is str and name.startswith("namedtuple_")
        return function.__code__.co_filename.startswith("<") and (of_package or named)

    def _owns_class(self, kind: type) -> bool:
        package = package_of(kind)
        if package in (self.package, "torch", "neuraldbg", *_HELPERS) or package in sys.stdlib_module_names:
            return True
        file = getattr(sys.modules.get(package), "__file__", None) or ""
        return _pybind(kind) or (self.package != "torch" and any(part in file for part in _INSTALLED))


def _without_ours(value: Any) -> Any:
    """Return the function below our wrappers; any other value unchanged."""
    value = below(value)
    return under(value) if type(value) is types.FunctionType else value


def _folder(file: str) -> str:
    return str(Path(file).parent) + os.sep if file.endswith(("__init__.py", "__init__.pyc")) else file


def cells(function: types.FunctionType) -> Iterator[Any]:
    """Yield the contents of a function's closure cells."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _of_python(file: str) -> bool:
    return file.startswith("<frozen") or (file.startswith(_STDLIB) and not any(part in file for part in _INSTALLED))


def _pybind(kind: type) -> bool:
    return package_of(kind).startswith("pybind11")


def _owns_builtin(value: Any) -> bool:
    """Return True if a built-in function is bound to no object with a state (``random.random`` is bound to one)."""
    holder = getattr(value, "__self__", None)
    kind = type(holder)
    plain = holder is None or issubclass(kind, (type, types.ModuleType)) or kind_name(kind) == "PyCapsule"
    plain = plain or _pybind(kind) or package_of(kind) == "neuraldbg"
    module = getattr(value, "__module__", None)
    package = module.split(".", maxsplit=1)[0] if type(module) is str else "torch"
    known = package in ("torch", *_HELPERS) or package in sys.stdlib_module_names
    return plain and known
