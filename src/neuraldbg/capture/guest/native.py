"""The native module behind the statistics of CPU tensors: memory in, a row of the table grows.

``kernel/module.c`` is optional at install. Without it the functions of ``statistics/operation.py`` do the same with
torch's and numpy's operators, element for element, only slower.
"""

from __future__ import annotations

import ctypes
import importlib
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.guest.tensor_kinds import unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""The dtypes that native code reads, by the codes of ``kernel/module.c``."""


def meet(module: Any, *, lends: bool = True) -> None:
    """Give the native module the objects of torch that it needs. With ``lends`` False as for a torch before 2.10, which
    has no C exchange of tensors. Raises AttributeError where either version is too old for the other.
    """
    transforms = torch._C._are_functorch_transforms_active  # noqa: SLF001 (no public name)
    lent = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None) if lends else None
    heard = torch._C._is_torch_function_mode_enabled  # noqa: SLF001 (no public name)
    module.meet(torch.Tensor, torch.nn.Parameter, CODES, torch.strided, transforms, OrderedDict, lent, heard)
    _meet_storages(module, lends=lends)


def _meet_storages(module: Any, *, lends: bool) -> None:
    """Give the native module torch's C functions for the size and offset of a storage: 0.1 us a call, against 0.5 us in
    Python. Each is tested first, since the way a tensor is passed to them is no part of any contract.
    """
    try:
        library = torch_library() if lends else {}
        found = [library[f"aoti_torch_get_storage_{name}"] for name in ("size", "offset")]
    except (LookupError, OSError, AttributeError):  # another build of torch
        module.meet_storages(0, 0)
        return
    module.meet_storages(*(ctypes.cast(function, ctypes.c_void_p).value for function in found))
    with unheard():
        tried = torch.zeros(7, device="cpu")[2:5]
    if not module.covers(tried, 5, 4) or module.covers(tried, 6, 4):
        module.meet_storages(0, 0)


def torch_library() -> Any:
    """Return the library with torch's C interface for compiled programs. Raises LookupError or OSError without one."""
    name = next(Path(torch.__file__).with_name("lib").glob("*torch_cpu.*"), None)
    if name is None:
        raise LookupError("*torch_cpu.*")
    return ctypes.CDLL(str(name))


def _load() -> Any:
    try:
        found = importlib.import_module("neuraldbg.capture._kernel")
        meet(found)
    except (ImportError, AttributeError, TypeError):  # installed without a compiler, or built from an older source
        return None
    return found


native = _load()
"""The native module, None if it was not built."""


def backend() -> str:
    """Return the name of the code that reads CPU tensors: ``native (avx2)``, or ``torch operators``."""
    return f"native ({native.generation})" if native is not None else "torch operators"


def set_hook(x: Tensor, hook: Callable[[Tensor], None]) -> None:
    """Register a hook on the gradient of ``x``, which is no leaf. The hook cannot be removed: making a handle takes
    longer than all other work on a tensor.
    """
    if native is not None and type(x) is torch.Tensor:
        native.hook(x, hook)
    else:
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 (a class of the program's would hear of it)
            hooks: Any = x._backward_hooks  # noqa: SLF001 (a handle has a number that all threads share)
            if hooks is None:
                hooks = x._backward_hooks = OrderedDict()  # noqa: SLF001 (as Tensor.register_hook)
                x.grad_fn._register_hook_dict(x)  # type: ignore[union-attr] # noqa: SLF001
            hooks[hook] = hook


def dense(x: Tensor) -> bool:
    """Return True if the elements of ``x`` fill its memory without holes or overlaps, in any order: apart from order, a
    pass over the memory is a pass over the elements. False for a tensor with the lazy negation bit, whose memory holds
    the negated values.
    """
    if x.is_contiguous():
        return not x.is_neg()
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return not x.is_neg()
