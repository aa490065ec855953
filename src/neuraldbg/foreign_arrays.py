"""The arrays of other libraries: anything that holds numbers enters, a numpy array with the same values leaves.

No framework is imported. A tensor is known by the module of its class and read by its own methods; other objects by
``__array__``, DLPack or the interface of CUDA arrays. Nothing of the user's object is changed: no gradient graph, no
random number, and no memory of torch, which for ever refuses to resize a storage that numpy has seen.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.raised import passes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


class Foreign(NamedTuple):
    """The values of an object of another library, and what that library says of them."""

    values: npt.NDArray[Any]
    """The exact values, of kind bool, int, float or complex; 1-D and every ``every``-th of them for a sample. It may be
    the user's own memory if that is numpy's: copy it before keeping it."""
    dtype: str
    """Name of the dtype as the library has it: "float32", "bfloat16"."""
    shape: tuple[int, ...]
    """Shape of the whole object."""
    bytes: int
    """Bytes of the whole object in its own dtype and layout."""
    framework: str
    """Name of the library: "numpy", "torch", "jax"; "python" for lists and scalars."""
    device: str
    """Place of the memory: "cpu", "cuda:0"."""
    every: int = 1
    """Distance of the elements read, in C order; 1 if all were."""


class _Unreadable(Exception):
    """Raised inside of this module with the reason why an object has no numbers to give."""


_WANTED = "give a list, an array or a tensor of them"


def read(value: Any, what: str, *, at_most: int | None = None, real: bool = False) -> Foreign:
    """Read an object's numbers; ``what`` names it in errors, as a plural. Of more than ``at_most`` elements a sample is
    read, evenly spaced. Raises ConfigError for text, objects, ragged lists, complex numbers if ``real``, and memory
    that cannot be read.
    """
    kind = "real numbers" if real else "numbers"
    try:
        found = _read(value, at_most)
    except _Unreadable as reason:
        raise ConfigError(f"{what} are not {kind}: {reason}") from None
    if real and found.values.dtype.kind == "c":  # numpy would drop the imaginary parts
        raise ConfigError(f"{what} are not {kind}: {_WANTED}")
    return found


def spacing(elements: int, at_most: int | None) -> int:
    """Return the distance at which at most ``at_most`` of some elements are read; 1 reads all. It shares no divisor
    with the number of elements, so that a sample of a matrix is spread over its columns, too.
    """
    if at_most is None or elements <= at_most:
        return 1
    step = -(-elements // at_most)
    while math.gcd(step, elements) != 1:
        step += 1
    return step


def _read(value: Any, at_most: int | None) -> Foreign:
    kind = type(value)
    if isinstance(value, (str, bytes, bytearray)):
        raise _Unreadable(_WANTED)
    try:
        if isinstance(value, (np.ndarray, np.generic)):
            return _of_numpy(value, at_most)
        if isinstance(value, (list, tuple)):
            return _of_list(value, at_most)
        if isinstance(value, (bool, int, float, complex)):
            return _made(np.asarray(value), at_most, "python")
        for base in kind.__mro__:
            package = base.__module__.partition(".")[0]
            if package in _READERS:
                return _READERS[package](value, at_most)
        return _of_protocol(value, at_most)
    except (_Unreadable, MemoryError):
        raise
    except Exception as error:
        if passes(error):  # such as a time limit of the program's
            raise
        said = str(error).strip().partition("\n")[0][:200]
        raise _Unreadable(f"a {kind.__name__} cannot be read ({type(error).__name__}: {said})") from error


# ---------------------------------------------------------------- numpy


def _made(
    array: npt.NDArray[Any], at_most: int | None, framework: str, device: str = "cpu", dtype: str = ""
) -> Foreign:
    """Return the values of a numpy array, sampled if it is large, under the dtype that it has or is said to have."""
    every = spacing(array.size, at_most)
    shape, size = array.shape, array.nbytes
    if every > 1:
        array = (array.reshape(-1) if array.flags.c_contiguous else array.flat)[::every]
    values = _plain(array)
    values = values.view() if values is array else values
    values.flags.writeable = False
    return Foreign(values, dtype or _name(array, values), shape, size, framework, device, every)


def _name(array: npt.NDArray[Any], values: npt.NDArray[Any]) -> str:
    return str((values if array.dtype.kind == "O" else array).dtype.newbyteorder("=").name)


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of one of numpy's own dtypes of numbers that holds the values exactly."""
    dtype = array.dtype
    if dtype.isbuiltin == 2 and dtype.fields is None:  # registered by ml_dtypes: bfloat16, float8, int4
        name = dtype.name
        return array.astype(np.float32 if "float" in name else np.uint8 if name.startswith("u") else np.int8)
    if dtype.kind in "biufc":
        return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
    if dtype.kind == "O" and array.size and all(isinstance(one, (numbers.Number, Decimal)) for one in array.flat):
        try:
            return array.astype(np.float64)  # fractions, decimals, whole numbers beyond 64 bits
        except OverflowError:
            raise _Unreadable("a whole number is too large for float64") from None
    raise _Unreadable(_WANTED)


def _of_numpy(value: Any, at_most: int | None) -> Foreign:
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise _Unreadable("some are masked; give its compressed(), or filled(...)")
        value = value.data
    return _made(np.asarray(value), at_most, "numpy")


# ---------------------------------------------------------------- lists

_PLAIN = (bool, int, float, complex, np.generic)
_DEEPEST = 32
"""Levels of nested lists; numpy 1 has so many axes."""


def _leaf_types(values: Any, depth: int = 0) -> set[type]:
    types = set(map(type, values))
    if not types.isdisjoint((list, tuple)):
        if depth == _DEEPEST:
            raise _Unreadable(f"lists are nested deeper than {_DEEPEST} levels")
        inner = [_leaf_types(one, depth + 1) for one in values if type(one) in (list, tuple)]
        types = (types - {list, tuple}).union(*inner)
    return types


def _of_list(values: Any, at_most: int | None) -> Foreign:
    """Read a list of numbers, of lists, or of arrays and tensors of one shape."""
    if all(
        issubclass(kind, _PLAIN) and not issubclass(kind, (np.void, np.str_, np.bytes_)) for kind in _leaf_types(values)
    ):
        try:
            array = np.asarray(values)
        except ValueError:
            raise _Unreadable(_RAGGED) from None
        return _made(array, at_most, "python")
    items = [_number(one) if isinstance(one, (numbers.Number, Decimal)) else _read(one, None) for one in values]
    if len({item.shape for item in items}) > 1:
        raise _Unreadable(_RAGGED)
    dtypes, frameworks, devices = ({getattr(one, key) for one in items} for key in ("dtype", "framework", "device"))
    return _made(
        np.stack([item.values for item in items]),
        at_most,
        frameworks.pop() if len(frameworks) == 1 else "python",
        ", ".join(sorted(devices)),
        dtypes.pop() if len(dtypes) == 1 else "",
    )._replace(bytes=sum(item.bytes for item in items))


_RAGGED = "the list is ragged; give rows of the same length, or one row at a time"


def _number(value: Any) -> Foreign:
    return _read(value if isinstance(value, _PLAIN) else np.asarray(value, dtype=object), None)._replace(
        framework="python"
    )


# ---------------------------------------------------------------- torch

_NUMPY_DTYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "bool",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}
"""Dtypes that numpy has, under the names that torch has for them."""


def _of_torch(x: Any, at_most: int | None) -> Foreign:
    torch = sys.modules["torch"]
    if not any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(x).__mro__):
        raise _Unreadable(_WANTED)
    with torch._C.DisableTorchFunction():  # noqa: SLF001 (no public name; modes of the program see nothing of ours)
        _check_torch(torch, x)
        dtype, device, size = str(x.dtype).removeprefix("torch."), str(x.device), _torch_bytes(x)
        held = x.detach()
        if held.layout is not torch.strided:
            held = held.to_dense()
        if held.is_quantized:
            held = held.dequantize()
        shape = tuple(int(one) for one in held.shape)
        every = spacing(held.numel(), at_most)
        if every > 1:
            held = _torch_sample(torch, held, every)
        if dtype == "complex32":
            held = held.to(torch.complex64)
        elif held.dtype.is_floating_point and str(held.dtype).removeprefix("torch.") not in _NUMPY_DTYPES:
            held = held.to(torch.float32)
        # A copy, in any case: torch forbids for ever to resize a storage whose memory numpy() has given away.
        held = held.cpu() if held.device.type != "cpu" else held.clone(memory_format=torch.contiguous_format)
        array = held.resolve_conj().resolve_neg().numpy()
    return _made(array, None, "torch", device, dtype)._replace(shape=shape, bytes=size, every=every)


def _check_torch(torch: Any, x: Any) -> None:
    """Raise _Unreadable for a tensor that has no numbers of its own on this machine now."""
    if torch._C._functorch.is_functorch_wrapped_tensor(x):  # noqa: SLF001 (no public name)
        raise _Unreadable("inside of vmap, grad or jvp a tensor stands for many values; return it, and inspect that")
    if x.device.type == "meta":
        raise _Unreadable("the tensor is on the meta device, which holds no numbers")
    if torch.nn.parameter.is_lazy(x):
        raise _Unreadable("the parameter of a lazy layer has no shape yet; call the model once before")
    if x.is_nested:
        raise _Unreadable("the tensor is nested; give its values(), or to_padded_tensor(0.0)")
    if hasattr(type(x), "to_local"):  # reading all of it would wait for the other ranks
        raise _Unreadable("the tensor is spread over several ranks; give x.to_local(), the part of this one")
    if x.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise _Unreadable("a CUDA graph is being captured, which a copy would break; inspect it outside of the graph")


def _torch_bytes(x: Any) -> int:
    parts: tuple[Any, ...] = (x,)
    if str(x.layout) == "torch.sparse_coo":
        parts = (x._values(), x._indices())  # noqa: SLF001 (values() coalesces first, or refuses)
    elif str(x.layout) in ("torch.sparse_csr", "torch.sparse_bsr"):
        parts = (x.values(), x.crow_indices(), x.col_indices())
    elif str(x.layout) in ("torch.sparse_csc", "torch.sparse_bsc"):
        parts = (x.values(), x.ccol_indices(), x.row_indices())
    return sum(int(part.numel() * part.element_size()) for part in parts)


def _torch_sample(torch: Any, x: Any, every: int) -> Any:
    """Return every ``every``-th element, 1-D, where the tensor lies. A strided tensor is not copied for it."""
    if x.is_contiguous():
        return x.reshape(-1)[::every]
    places = torch.arange(0, x.numel(), every, device=x.device)
    return x[torch.unravel_index(places, x.shape)]


# ---------------------------------------------------------------- JAX, TensorFlow, Keras, MLX


def _of_jax(x: Any, at_most: int | None) -> Foreign:
    if any("Tracer" in base.__name__ for base in type(x).__mro__):
        raise _Unreadable(
            "inside of jit, grad or vmap an array has no values yet; return it, or use jax.debug.callback"
        )
    if not hasattr(x, "devices") or not hasattr(x, "dtype"):
        raise _Unreadable(_WANTED)
    if x.is_deleted():
        raise _Unreadable("the array was donated to a function or deleted; inspect it before")
    if not x.is_fully_addressable:
        raise _Unreadable("the array is spread over several processes; give one of its addressable_shards")
    if str(x.dtype).startswith("key<"):
        raise _Unreadable("these are random keys; give jax.random.key_data(x)")
    found = sorted(x.devices(), key=lambda one: one.id)
    first = found[0]
    device = "cpu" if first.platform == "cpu" else f"{first.platform}:{first.id}".replace("gpu", "cuda")
    device = device if len(found) == 1 else f"{device} and {len(found) - 1} more"
    every, shape, size = spacing(x.size, at_most), tuple(x.shape), int(x.size) * x.dtype.itemsize
    if every > 1:
        x = x.reshape(-1)[::every]
    elif first.platform == "cpu":
        # numpy would read the array's own memory, and the array keep that view: it could not be donated any more.
        x = x.copy()
    return _made(np.asarray(x), None, "jax", device)._replace(shape=shape, bytes=size, every=every)


def _of_tensorflow(x: Any, at_most: int | None) -> Foreign:
    tf = sys.modules["tensorflow"]
    if hasattr(x, "dense_shape"):  # gradients of embeddings, and sparse tensors
        x = tf.convert_to_tensor(x) if type(x).__name__ == "IndexedSlices" else tf.sparse.to_dense(x)
    if not hasattr(x, "numpy"):
        raise _Unreadable("inside of a tf.function a tensor has no values yet; return it, or run eagerly")
    if hasattr(x, "row_splits"):
        raise _Unreadable("the tensor is ragged; give its flat_values, or to_tensor()")
    where = str(x.device).rpartition("device:")[2].lower().replace("gpu", "cuda")
    return _made(np.asarray(x.numpy()), at_most, "tensorflow", "cpu" if where.startswith("cpu") else where or "cpu")


def _of_keras(x: Any, at_most: int | None) -> Foreign:
    inner = getattr(x, "value", None)  # a variable holds the array of its backend
    if inner is None or callable(inner):
        raise _Unreadable(_WANTED)
    return _read(inner, at_most)


def _of_mlx(x: Any, at_most: int | None) -> Foreign:
    dtype = str(x.dtype).rpartition(".")[2]
    every, shape, size = spacing(x.size, at_most), tuple(x.shape), int(x.nbytes)
    if every > 1:
        x = x.reshape(-1)[::every]
    if dtype == "bfloat16":  # numpy has none
        x = x.astype(sys.modules["mlx.core"].float32)
    return _made(np.array(x), None, "mlx", "unified", dtype)._replace(shape=shape, bytes=size, every=every)


_READERS: dict[str, Callable[[Any, int | None], Foreign]] = {
    "torch": _of_torch,
    "jax": _of_jax,
    "jaxlib": _of_jax,
    "tensorflow": _of_tensorflow,
    "keras": _of_keras,
    "mlx": _of_mlx,
}
"""Readers by the package of an object's class or of one of its bases."""


# ---------------------------------------------------------------- protocols


def _of_protocol(x: Any, at_most: int | None) -> Foreign:
    """Read an object by the first protocol that gives its numbers: CuPy's, numpy's, or DLPack."""
    framework = type(x).__module__.partition(".")[0]
    framework = "python" if framework == "builtins" else framework
    device = _dlpack_device(x)
    if hasattr(x, "__cuda_array_interface__"):
        copy = next((getattr(x, name) for name in ("get", "copy_to_host") if callable(getattr(x, name, None))), None)
        if copy is None:
            raise _Unreadable("their memory is on a GPU; give a copy on the CPU")
        number = getattr(getattr(x, "device", None), "id", None)
        return _made(np.asarray(copy()), at_most, framework, device or f"cuda:{number or 0}")
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return _made(_from_dlpack(x), at_most, framework, device or "cpu")
    array = np.asarray(x)
    if array.dtype.kind == "O" and not array.ndim and not isinstance(x, (numbers.Number, Decimal)):
        raise _Unreadable(_WANTED)
    return _made(array, at_most, framework, device or "cpu")


_DLPACK = {1: "cpu", 2: "cuda", 3: "cpu", 7: "vulkan", 8: "metal", 10: "rocm", 11: "cpu", 13: "cuda", 14: "oneapi"}
"""Names of DLPack's types of devices. Source: DLDeviceType in dlpack.h, version 1.1."""


def _dlpack_device(x: Any) -> str:
    if not hasattr(x, "__dlpack_device__"):
        return ""
    with contextlib.suppress(Exception):  # a device that nobody knows is no reason to read no numbers
        kind, number = x.__dlpack_device__()
        name = _DLPACK.get(int(kind), f"device type {int(kind)}")
        return name if name == "cpu" else f"{name}:{number}"
    return ""


def _from_dlpack(x: Any) -> npt.NDArray[Any]:
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if _dlpack_device(x) in ("", "cpu"):
            raise
        try:  # since version 1.0 of DLPack an array can be asked for a copy on the CPU; since 2.1 numpy asks
            found: npt.NDArray[Any] = np.from_dlpack(x, device="cpu", copy=True)
        except Exception:  # noqa: BLE001 (any library's error, for which there is one remedy)
            raise _Unreadable(
                f"their memory is on {_dlpack_device(x)}, and cannot be copied from there; give a copy on the CPU"
            ) from error
        return found
