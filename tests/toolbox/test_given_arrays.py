"""Arrays of every framework become numpy's with the same values, and nothing of theirs is changed."""

from __future__ import annotations

import array
import math
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.overrides import TorchFunctionMode

from neuraldbg import DebugVisualizer, TerminalVisualizer, VisualizationConfig
from neuraldbg.errors import ConfigError
from neuraldbg.foreign_arrays import spacing
from neuraldbg.toolbox.given_arrays import given

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
NUMBERS = st.one_of(
    arrays.integer_dtypes(),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(),
    arrays.complex_number_dtypes(),
    arrays.boolean_dtypes(),
).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4)))


def same(found, wanted, shape=None):
    np.testing.assert_array_equal(found.values, wanted)
    assert found.shape == (np.shape(wanted) if shape is None else shape)


# ---------------------------------------------------------------- numpy, lists, scalars


@settings(max_examples=60)
@examples(NUMBERS)
def test_every_dtype_of_numpy_keeps_its_values(values):
    before = values.copy()
    found = given(values)
    same(found, values)
    assert found.values.dtype == values.dtype.newbyteorder("=")
    assert found.dtype == values.dtype.name
    assert (found.bytes, found.framework, found.device, found.whole) == (values.nbytes, "numpy", "cpu", True)
    assert values.flags.writeable
    assert not found.values.flags.writeable
    np.testing.assert_array_equal(values, before)
    same(given(values.T), values.T)


@pytest.mark.parametrize("name", [*NARROW, "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn", "int4", "uint4", "int2"])
def test_dtypes_that_numpy_lacks_keep_values_and_name(name):
    values = np.array([1, 0, 1, 1]).astype(getattr(ml_dtypes, name))
    found = given(values)
    same(found, values.astype(np.float64))
    assert (found.dtype, found.bytes) == (name, values.nbytes)
    assert found.values.dtype.kind in "fiu"


@pytest.mark.parametrize(
    ("value", "wanted", "dtype"),
    [
        (3, 3, "int64"),
        (True, True, "bool"),
        (2.5, 2.5, "float64"),
        (1j, 1j, "complex128"),
        ([], [], "float64"),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]], "int64"),
        ((1, 2.5, np.float32(3)), [1, 2.5, 3], "float64"),
        ([math.nan, math.inf], [math.nan, math.inf], "float64"),
        (range(4), [0, 1, 2, 3], "int64"),
        (memoryview(b"\x01\x02"), [1, 2], "uint8"),
        (array.array("h", [1, -2]), [1, -2], "int16"),
        ([Decimal("0.5"), Fraction(1, 4), 1], [0.5, 0.25, 1], "float64"),
        ([2**70], [2.0**70], "float64"),
        (np.ma.array([1, 2]), [1, 2], "int64"),
        ([np.array([1.0, 2.0], np.float32)] * 2, [[1, 2], [1, 2]], "float32"),
        ([torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)], [[1, 1], [0, 0]], "bfloat16"),
        ([torch.tensor(1.5, requires_grad=True), torch.tensor(2.5)], [1.5, 2.5], "float32"),
        ([torch.tensor(1.5), 2.0], [1.5, 2.0], "float64"),
    ],
)
def test_lists_and_scalars(value, wanted, dtype):
    found = given(value)
    same(found, wanted)
    assert found.dtype == dtype


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "are not numbers: give a list, an array or a tensor of them"),
        (b"12", "give a list"),
        (["1"], "give a list"),
        ([1, "2"], "give a list"),
        (None, "give a list"),
        ([1.0, None], "give a list"),
        ({"a": 1}, "give a list"),
        (object(), "give a list"),
        ((x for x in (1, 2)), "give a list"),
        (np.array(["a"]), "give a list"),
        (np.array(["2026-01-01"], "M8[D]"), "give a list"),
        (np.zeros(2, [("a", "f4")]), "give a list"),
        (np.array([object()]), "give a list"),
        (torch.float32, "give a list"),
        (torch.nn.Linear(2, 2), "give a list"),
        ([[1], [1, 2]], "the list is ragged"),
        ([torch.ones(2), torch.ones(3)], "the list is ragged"),
        ([10**400], "too large for float64"),
        (np.ma.array([1, 2], mask=[0, 1]), "some are masked; give its compressed"),
        (torch.empty(3, device="meta"), "meta device, which holds no numbers"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "the tensor is nested"),
        (torch.nn.parameter.UninitializedParameter(), "the parameter of a lazy layer has no shape yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_holds_no_numbers_is_refused_with_a_reason(value, said):
    with pytest.raises(ConfigError) as error:
        given(value, "the values of 'h'")
    assert str(error.value).startswith("the values of 'h' are not numbers: ")
    assert said in str(error.value)


# ---------------------------------------------------------------- torch


def everything_of(x):
    return (x._version, x.grad_fn, x.requires_grad, x.data_ptr(), torch.get_rng_state().tolist())


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "int8", "int64", "uint16", "bool", "complex64", *NARROW]
)
def test_tensors_of_torch(name):
    dtype = getattr(torch, name)
    x = torch.tensor([[1, 0, 2], [1, 1, 0]]).to(dtype)
    state = everything_of(x)
    for view in (x, x.t(), x[:, 1:], x.expand(3, 2, 3)):
        found = given(view)
        same(found, view.to(torch.complex128 if dtype.is_complex else torch.float64).numpy())
        assert (found.dtype, found.framework, found.device) == (name, "torch", "cpu")
        assert found.bytes == view.numel() * view.element_size()
    assert everything_of(x) == state
    same(given(torch.empty(0, 3, dtype=dtype)), np.zeros((0, 3)))
    same(given(x[0, 0]), 1)


def test_a_tensor_in_a_graph_stays_as_it_is():
    w = torch.nn.Parameter(torch.randn(3, 3))
    loss = (w * w).sum()
    state, graph = everything_of(w), everything_of(loss)
    same(given(w), w.detach().numpy().copy())
    same(given(loss), loss.item())
    assert (everything_of(w), everything_of(loss)) == (state, graph)
    loss.backward()
    torch.testing.assert_close(w.grad, 2 * w.detach())
    same(given(w.grad), (2 * w.detach()).tolist())


def test_the_storage_of_a_tensor_can_still_be_resized():
    """Torch forbids it for ever once numpy has seen the memory, and programs that offload weights need it."""
    x = torch.ones(10)
    kept = given(x).values
    x.untyped_storage().resize_(0)
    assert kept.sum() == 10


def test_modes_and_subclasses_of_the_program_see_nothing_of_the_reading():
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    x, own = torch.ones(3), torch.ones(3).as_subclass(Own)
    seen.clear()
    with Mode():
        same(given(x), [1, 1, 1])
        same(given(own), [1, 1, 1])
    assert seen == []


@pytest.mark.filterwarnings("ignore")
def test_layouts_and_lazy_views_of_torch():
    z = torch.tensor([1 + 2j, 3 - 4j])
    same(given(z.conj()), [1 - 2j, 3 + 4j])
    same(given(z.conj().imag), [-2, 4])
    coo = torch.sparse_coo_tensor([[0, 2, 2]], [1.0, 2.0, 3.0], (4,))
    found = given(coo)
    same(found, [1, 0, 5, 0])
    assert not coo.is_coalesced()
    assert found.bytes == 3 * (4 + 8)
    dense = torch.eye(4)[:, [1, 0, 2, 3]]
    for sparse in (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)), dense.to_mkldnn()):
        same(given(sparse), dense.numpy())
    assert given(dense.to_sparse_csr()).bytes == 4 * 4 + 5 * 8 + 4 * 8
    quantised = torch.quantize_per_tensor(torch.tensor([0.1, 0.27]), 0.1, 0, torch.qint8)
    found = given(quantised)
    np.testing.assert_allclose(found.values, [0.1, 0.3], rtol=1e-6)
    assert (found.dtype, found.bytes) == ("qint8", 2)
    same(given(torch.tensor([1 + 1j]).to(torch.complex32)), [1 + 1j])


def test_a_transformed_tensor_has_no_values():
    def inspected(x):
        with pytest.raises(ConfigError, match="inside of vmap, grad or jvp a tensor stands for many values"):
            given(x)
        return x.sum()

    torch.vmap(inspected)(torch.ones(2, 3))
    torch.func.grad(inspected)(torch.ones(2))


# ---------------------------------------------------------------- samples


@settings(max_examples=60)
@examples(st.integers(1, 5_000), st.integers(1, 400))
def test_a_sample_is_evenly_spaced_and_knows_its_places(elements, at_most):
    values = np.arange(elements)
    found = given(values, at_most=at_most)
    step = spacing(elements, at_most)
    assert found.values.size <= max(at_most, 1)
    assert found.every == step
    assert math.gcd(step, elements) in (1, step, elements)
    np.testing.assert_array_equal(found.values.ravel(), np.arange(0, elements, step))
    assert all(found.index(place) == (value,) for place, value in enumerate(found.values.ravel()[:20]))


def test_a_sample_of_a_matrix_is_spread_over_rows_and_columns():
    """Every 1,024th element of 4,096 rows of 1,024 would be one column."""
    x = torch.arange(4096 * 1024).reshape(4096, 1024)
    for matrix in (x, x.t(), x.numpy(), x.numpy().T):
        found = given(matrix, at_most=4096)
        rows, columns = np.unravel_index(np.arange(found.values.size) * found.every, found.shape)
        np.testing.assert_array_equal(found.values, np.asarray(matrix)[rows, columns])
        assert len(set(columns.tolist())) > 1000
        assert len(set(rows.tolist())) > 1000
        assert found.bytes == 4096 * 1024 * 8
        assert 3500 < found.values.size <= 4096


def test_a_given_can_be_thinned_and_kept():
    values = np.arange(1000.0).reshape(10, 100)
    found = given(values)
    thin = found.spaced(100)
    assert thin.every == spacing(1000, 100)
    assert thin.shape == (10, 100)
    assert thin.index(1) == (0, thin.every)
    assert found.spaced(1000) is found
    assert thin.spaced(500) is thin
    assert thin.spaced(10).every % thin.every == 0
    assert thin.spaced(10).values.size <= 10
    np.testing.assert_array_equal(thin.spaced(10).values, values.ravel()[:: thin.spaced(10).every])
    kept = found.copied()
    values[:] = 0
    assert kept.values[1, 1] == 101
    assert not kept.values.flags.writeable
    assert repr(thin) == f"<Given: float64 (10, 100) of numpy on cpu, 8,000 B, {thin.values.size} of 1,000 elements>"


# ---------------------------------------------------------------- other frameworks, by what they offer


class OnlyDlpack:
    """An array of a library without numpy's interface, on the CPU."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Elsewhere(OnlyDlpack):
    """The same on a GPU; with ``copies`` it can be copied to the CPU, as DLPack 1.0 allows."""

    def __init__(self, values, *, copies):
        super().__init__(values)
        self._copies = copies

    def __dlpack__(self, *, dl_device=None, copy=None, **options):
        if dl_device != (1, 0) or not self._copies:
            raise BufferError("the memory is on a GPU")
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return (2, 1)


class OnlyArray:
    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values


class OnGpu:
    """As CuPy's: the interface of CUDA arrays, and ``get()`` for a copy."""

    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012

    class device:  # noqa: N801
        id = 1

    def get(self):
        return np.array([1.0, 2.0], np.float32)


def test_arrays_are_read_by_the_protocols_that_they_offer():
    values = np.arange(6.0).reshape(2, 3)
    for one in (OnlyDlpack(values), OnlyArray(values)):
        found = given(one)
        same(found, values)
        assert (found.device, found.dtype) == ("cpu", "float64")
        assert found.framework == __name__.partition(".")[0]
    same(given(OnlyDlpack(torch.ones(2, 2))), np.ones((2, 2)))
    same(given([OnlyArray(values), OnlyArray(values)]), [values, values])
    found = given(OnGpu())
    same(found, [1, 2])
    assert found.device == "cuda:1"


def test_memory_that_cannot_be_read_is_said():
    values = np.arange(3.0)
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
        found = given(Elsewhere(values, copies=True))
        same(found, values)
        assert found.device == "cuda:1"
    with pytest.raises(ConfigError, match=r"their memory is on cuda:1, and cannot be copied from there; give a copy"):
        given(Elsewhere(values, copies=False))

    class Locked:
        __cuda_array_interface__ = OnGpu.__cuda_array_interface__

    with pytest.raises(ConfigError, match="their memory is on a GPU; give a copy on the CPU"):
        given(Locked())

    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no such buffer\nand more")

    with pytest.raises(ConfigError, match=r"a Broken cannot be read \(RuntimeError: no such buffer\)$"):
        given(Broken())


def test_a_keras_variable_is_the_array_of_its_backend():
    kind = type("Variable", (), {"__module__": "keras.src.backend.torch.core"})
    variable = kind()
    variable.value = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    found = given(variable)
    same(found, [1, 1])
    assert (found.framework, found.dtype) == ("torch", "bfloat16")


@pytest.mark.slow
def test_a_real_keras_variable():
    pytest.importorskip("keras")
    code = (
        "import keras; from neuraldbg.toolbox.given_arrays import given\n"
        "found = given(keras.Variable([[1.0, 2.0]], dtype='bfloat16'))\n"
        "assert (found.framework, found.dtype, found.values.tolist()) == ('torch', 'bfloat16', [[1.0, 2.0]]), found\n"
        "assert given(keras.ops.ones(3)).shape == (3,)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"KERAS_BACKEND": "torch"})


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6.0).reshape(2, 3)
    for dtype in ("float32", "bfloat16", "int32", "bool"):
        found = given(x.astype(dtype))
        same(found, np.asarray(x).astype(bool) if dtype == "bool" else np.asarray(x))
        assert (found.framework, found.dtype, found.device) == ("jax", dtype, "cpu")

    def inspected(x):
        with pytest.raises(ConfigError, match="inside of jit"):
            given(x)
        return x

    jax.jit(inspected)(x)
    given(x)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    with pytest.raises(ConfigError, match="donated"):
        given(x)


def test_tensors_of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    for one in (tf.constant([[1.0, 2.0]], tf.bfloat16), tf.Variable([[1.0, 2.0]], dtype=tf.bfloat16)):
        found = given(one)
        same(found, [[1, 2]])
        assert (found.framework, found.dtype, found.device) == ("tensorflow", "bfloat16", "cpu")


def test_no_framework_is_imported():
    code = (
        "import sys, numpy\nfrom neuraldbg.toolbox.given_arrays import given\n"
        "from neuraldbg.toolbox import tensor_statistics\n"
        "tensor_statistics.statistics(given([1.0, 2.0])); given(numpy.ones(3))\n"
        "sys.exit(len(sys.modules.keys() & {'torch', 'jax', 'tensorflow', 'mlx', 'cupy', 'ml_dtypes'}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- the pictures take the same


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0, 2.0], torch.tensor([1, 2, 2], dtype=torch.bfloat16), OnlyArray(np.array([1, 2, 2])), OnGpu()],
    ids=lambda value: type(value).__name__,
)
def test_visualizers_take_arrays_of_every_framework(values, tmp_path):
    wanted = given(values).values.astype(np.float64).tolist()
    draw = TerminalVisualizer(40, 10)
    assert draw.ascii_histogram(values, 2) == draw.ascii_histogram(wanted, 2)
    assert (
        DebugVisualizer(VisualizationConfig(output_directory=tmp_path)).plot_tensor_distribution("w", values)
        is not None
    )
