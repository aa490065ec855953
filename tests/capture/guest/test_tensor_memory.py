"""Which tensors are read: those whose numbers lie in memory that is there, by the same rule in C and in Python."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest import native as kernel
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.native import CODES
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.guest.tensor_memory import Unread
from neuraldbg.capture.loop import loss_values
from neuraldbg.capture.parameters import batched_reads
from neuraldbg.capture.statistics import operation

needs_native = pytest.mark.skipif(kernel.native is None, reason="built without a compiler")
pytestmark = pytest.mark.filterwarnings("ignore")


class Wrapper(Tensor):
    """Has a shape, and its numbers in a tensor inside of it."""

    calls = 0

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Wrapper.calls += 1
        return func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))


class Named(Tensor):
    """Keeps its numbers where Tensor does."""


def resized(x: Tensor, size: int) -> Tensor:
    x.untyped_storage().resize_(size)
    return x


def fake() -> Tensor:
    with FakeTensorMode():
        return torch.randn(4, 4)


def leaked() -> Tensor:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x.sin()

    torch.func.vmap(keep)(torch.randn(3, 4))
    return kept[0]


READ = {
    "plain": lambda: torch.randn(4, 4),
    "parameter": lambda: nn.Parameter(torch.randn(4, 4)),
    "buffer": lambda: nn.Buffer(torch.randn(3)),
    "double": lambda: torch.randn(3, dtype=torch.float64),
    "half": lambda: torch.randn(3).half(),
    "bfloat16": lambda: torch.randn(3).bfloat16(),
    "view with an offset": lambda: torch.randn(10)[4:],
    "holes": lambda: torch.randn(8, 8)[:, ::3],
    "expanded": lambda: torch.randn(4, 1).expand(4, 300),
    "overlapping": lambda: torch.randn(8).as_strided((5, 4), (1, 1)),
    "transposed": lambda: torch.randn(4, 5).t(),
    "negated": lambda: torch.complex(torch.randn(4), torch.randn(4)).conj().imag,
    "scalar": lambda: torch.tensor(2.0),
    "just large enough": lambda: resized(torch.randn(10)[4:8], 32),
}
NOT_READ = {
    "given back": lambda: resized(torch.randn(10), 0),
    "given back under an offset": lambda: resized(torch.randn(10)[4:], 0),
    "given back, with holes": lambda: resized(torch.randn(8, 8)[:, ::3], 0),
    "shrunk": lambda: resized(torch.randn(10), 36),
    "shrunk under an offset": lambda: resized(torch.randn(10)[4:], 36),
    "shrunk under holes": lambda: resized(torch.randn(8, 8)[:, ::3], 8 * 8 * 4 - 8),
    "expanded from nothing": lambda: resized(torch.randn(4, 1).expand(4, 300), 0),
    "zero without memory": lambda: torch._efficientzerotensor((3,)),
    "meta": lambda: torch.randn(3, device="meta"),
    "fake": fake,
    "wrapper": lambda: Wrapper(torch.randn(3)),
    "inside of vmap, leaked": leaked,
    "sparse": lambda: torch.randn(3, 3).to_sparse(),
    "csr": lambda: torch.randn(3, 3).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)], layout=torch.jagged),
    "mkldnn": lambda: torch.randn(3, 3).to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.quint8),
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
    "integers": lambda: torch.arange(3),
}


def made(make: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x: Tensor = make()
    return x


@pytest.fixture(params=["lent", "asked"])
def way(request):
    """Both ways in which native code finds memory: by torch's C interfaces, and by asking Python."""
    if kernel.native is None:
        pytest.skip("built without a compiler")
    kernel.meet(kernel.native, lends=request.param == "lent")
    yield request.param
    kernel.meet(kernel.native)


@pytest.mark.parametrize("name", [name for name in (*READ, *NOT_READ) if name != "jagged"])
def test_c_and_python_say_the_same(name, way):
    x = made({**READ, **NOT_READ}[name])
    with unheard():
        shown = operation.shown(x)
        python = shown is not None and shown.is_cpu and shown.dtype in CODES

    assert python == (name in READ)
    assert kernel.native.readable(x) == python


@pytest.mark.parametrize("name", [name for name in NOT_READ if name not in ("complex", "integers", "quantised")])
def test_what_has_no_memory_is_said_by_its_kind_and_none_of_its_code_runs(name):
    x, before = made(NOT_READ[name]), Wrapper.calls
    with unheard():
        assert tensor_memory.readable(x) is None
        assert batched_reads.plain(x) is False
        reason = tensor_memory.why_not(x)

    assert reason.startswith(("are ", "had "))
    assert before == Wrapper.calls


def test_numbers_side_by_side_are_shown_of_a_jagged_tensor_and_no_rows_of_it():
    x = made(NOT_READ["jagged"])
    holes = torch.nested.nested_tensor_from_jagged(torch.randn(6), torch.tensor([0, 3, 6]), torch.tensor([2, 3]))
    with unheard():
        assert operation.shown(x).data_ptr() == x._values.data_ptr()
        assert tensor_memory.readable(x) is None
        assert operation.shown(holes) is None
        assert operation.hidden(holes)
        assert not operation.hidden(x)


@pytest.mark.parametrize(
    ("make", "measures", "reason"),
    [
        (lambda: torch.randn(3, dtype=torch.complex64), True, "are of the dtype complex64"),
        (lambda: torch.randn(3).to(torch.float8_e4m3fn), True, "are of the dtype float8_e4m3fn"),
        (NOT_READ["quantised"], True, "are of the dtype quint8"),
        (NOT_READ["zero without memory"], True, "are zero tensors, which have no memory"),
        (NOT_READ["mkldnn"], True, "are _mkldnn tensors"),
        (lambda: torch.tensor([True]), False, "are of the dtype bool"),
        (lambda: torch.zeros(3, dtype=torch.uint16), False, "are of the dtype uint16"),
    ],
)
def test_what_is_hidden_is_said_by_its_dtype_or_layout(make, measures, reason):
    x = made(make)
    with unheard():
        assert operation.hidden(x)
        assert tensor_memory.measures(x) == measures
        assert tensor_memory.why_not(x) == reason


def test_a_tensor_without_elements_hides_nothing():
    with unheard():
        assert operation.shown(torch.empty(0)) is None
        assert not operation.hidden(torch.empty(0))
        assert not operation.hidden(torch.empty(3, 0, dtype=torch.complex64))


@pytest.fixture
def mesh(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which init_process_group replaces
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_an_addend_of_a_dtensor_is_shown_and_is_no_number_of_it(mesh):
    from torch.distributed.tensor import DTensor, Partial, Replicate

    part = torch.randn(4)
    addend, whole = (DTensor.from_local(part, mesh, [kind], run_check=False) for kind in (Partial(), Replicate()))
    one = DTensor.from_local(torch.tensor(2.0, requires_grad=True) * 1, mesh, [Partial()], run_check=False)
    with unheard():
        for x in (addend, whole):
            assert operation.shown(x).data_ptr() == part.data_ptr()
            assert kernel.native is None or kernel.native.readable(x)
        assert tensor_memory.is_addend(addend)
        assert not tensor_memory.is_addend(whole)
        assert loss_values.value_of(one) is None
        assert number(one) is None
        assert number(DTensor.from_local(torch.tensor(2.0), mesh, [Replicate()], run_check=False)) == 2.0


def test_gradients_that_the_ranks_have_not_summed_up_are_read_and_named(mesh):
    from torch.distributed.tensor import DTensor, Partial, Replicate

    model = nn.Linear(4, 1)
    for name, p in list(model.named_parameters()):
        held = DTensor.from_local(p.detach(), mesh, [Replicate()], run_check=False)
        setattr(model, name, nn.Parameter(held))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with NeuralDbg(model, optimizer) as dbg:
        for _ in range(4):
            x = DTensor.from_local(torch.randn(8, 4), mesh, [Replicate()], run_check=False)
            optimizer.zero_grad()
            model(x).square().mean().to_local().backward()
            model.weight.grad = DTensor.from_local(model.weight.grad.to_local(), mesh, [Partial()], run_check=False)
            optimizer.step()
    run = dbg.record()

    assert "read by shard: this rank's addend of the gradients of Linear.weight" in run.info.coverage["notes"]
    assert run.info.coverage["unread"] == {}
    assert run.info.coverage["errors"] == 0


def test_frozen_parameters_that_cannot_be_read_are_a_note_and_trained_ones_a_doubt():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    model[0].register_parameter("packed", nn.Parameter(torch.zeros(4, dtype=torch.uint8), requires_grad=False))
    model[1].register_parameter("turn", nn.Parameter(torch.zeros(1, dtype=torch.complex64)))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with NeuralDbg(model, optimizer) as dbg:
        for _ in range(4):
            optimizer.zero_grad()
            (model(torch.randn(8, 4)) + model[1].turn.real).square().mean().backward()
            optimizer.step()
    seen = dbg.record().info.coverage

    assert any(note.startswith("frozen parameters of 0.packed are of the dtype uint8") for note in seen["notes"])
    assert seen["unread"] == {
        "parameters of 1.turn": "are of the dtype complex64: not read 4 times",
        "gradients of 1.turn": "are of the dtype complex64: not read 4 times",
    }


def test_batched_gradients_have_no_memory_of_their_own():
    seen = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: seen.append((tensor_memory.readable(grad), tensor_memory.why_not(grad))))
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert seen == [(None, "are inside of a function transform")]


@pytest.mark.parametrize("how", ["whole", "transposed", "sliced", "expanded", "channels last", "number"])
@pytest.mark.parametrize(("step", "count"), [(1, 7), (3, 5), (100, 50), (1, 10**9)])
def test_spaced_elements_are_those_of_a_flat_copy(how, step, count):
    x = torch.arange(240.0).reshape(4, 3, 4, 5)
    x = {
        "whole": x,
        "transposed": x.transpose(0, 3),
        "sliced": x[:, 1:, ::2],
        "expanded": x[:, :1].expand(4, 3, 4, 5),
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "number": x[0, 1, 2, 3],
    }[how]
    assert torch.equal(operation.spaced(x, step, count), x.flatten()[::step][:count])


def test_spaced_elements_of_what_no_memory_could_hold():
    huge = torch.ones(1).expand(10**7, 10**7)
    assert operation.spaced(huge, huge.numel() // 64, 64).tolist() == [1.0] * 64


def test_integers_are_present_but_no_statistics():
    with unheard():
        assert tensor_memory.present(torch.arange(3))
        assert not operation.observable(torch.arange(3))
        assert not tensor_memory.present(resized(torch.arange(3), 0))


def test_a_subclass_that_keeps_its_numbers_where_tensor_does_is_read_as_a_view():
    x = torch.randn(5).as_subclass(Named)
    with unheard():
        shown = operation.shown(x)

    assert type(shown) is Tensor
    assert shown.data_ptr() == x.data_ptr()


@needs_native
def test_a_freed_output_is_not_read_and_an_ordinary_one_is():
    table = torch.zeros(1, operation.WIDTH, dtype=torch.float64)
    table[:] = torch.from_numpy(operation.BLANK)
    clock = np.zeros(2)
    read = kernel.native.Output(table.data_ptr(), clock.ctypes.data, 0, 0.0, 0.0, (table, clock), None).read

    assert read(resized(torch.randn(10)[4:], 0)) == 0
    assert read(resized(torch.randn(10), 20)) == 0
    assert table[0, operation.COUNT] == 0
    assert read(torch.ones(6)) == 1
    assert table[0, operation.SUM] == 6


@pytest.mark.parametrize("size", [0, 64])
def test_a_plan_falls_when_the_memory_under_it_goes(size, monkeypatch):
    for native in (kernel.native, None):
        monkeypatch.setattr(batched_reads, "native", native)
        rows = operation.rows_of(torch.zeros(4, operation.WIDTH, dtype=torch.float64))
        tensors = [torch.randn(30), torch.randn(40)]
        for x in tensors:
            x.grad = torch.randn_like(x)
        samples = batched_reads.Samples([batched_reads.Item(x, i, 0) for i, x in enumerate(tensors)], [2, 3], rows)
        addresses = [rows.address + i * operation.ROW for i in range(2)]
        gradients = batched_reads.Gradients(tensors, addresses, 0)
        samples.take()
        assert samples.follows()
        assert native is None or gradients.read() is not None

        held = tensors[1].clone()
        resized(tensors[1], size)
        assert not samples.follows()
        assert not samples.compare()
        resized(tensors[1].grad, size)
        assert gradients.read() is None

        resized(tensors[1], held.numel() * 4).copy_(held)
        assert samples.follows()


def test_what_was_watched_can_still_be_resized():
    """``Tensor.numpy`` forbids that for ever, and a program that offloads would end with an error."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    held: list[Tensor] = []
    with NeuralDbg(model, snapshots=["*"], overhead=None):
        for _ in range(12):
            x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            held += [x, y, out.detach(), loss.detach()]
    held += [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
    held += [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]

    assert [i for i, x in enumerate(held) if not x.untyped_storage().resizable()] == []


def test_a_session_inside_fake_tensor_mode_reads_nothing_and_says_so():
    with FakeTensorMode():
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with NeuralDbg(model, optimizer, snapshots=["0"]) as dbg:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        assert dbg.record().info.coverage["errors"] == 0
    unread = dbg.record().info.coverage["unread"]

    assert any(what.startswith("parameters of 0.weight") for what in unread)
    assert all("FakeTensor" in reason for reason in unread.values())
    assert dbg.diagnose().verdict != "healthy"


@needs_native
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_weights_in_a_file_that_was_cut_short_are_left_alone_and_named(tmp_path):
    model = nn.ModuleDict({"old": nn.Linear(64, 512), "used": nn.Linear(64, 1)})
    torch.save(model["old"].state_dict(), tmp_path / "old.pt")
    model["old"].load_state_dict(torch.load(tmp_path / "old.pt", mmap=True), assign=True)
    weight = model["old"].weight
    assert tensor_memory.lent(weight)
    assert not tensor_memory.lent(model["used"].weight)
    assert tensor_memory.present(weight)
    model.forward = model["used"].forward
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, optimizer) as dbg:
        for step in range(6):
            if step == 3:
                (tmp_path / "old.pt").write_bytes(b"another")  # the same file, cut short under its mapping
                assert not tensor_memory.present(weight)
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
    coverage = dbg.record().info.coverage

    assert coverage["errors"] == 0
    assert "cannot be read: not read 3 times" in coverage["unread"]["parameters of old.weight, old.bias"]


@needs_native
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_plans_and_marks_stand_in_lent_memory_as_long_as_it_can_be_read(tmp_path, mesh):
    from torch.distributed.tensor import DTensor, Replicate

    torch.save(torch.randn(512, 64), tmp_path / "weight.pt")
    weight = nn.Parameter(torch.load(tmp_path / "weight.pt", mmap=True))
    copy = nn.Parameter(torch.load(tmp_path / "weight.pt"))
    shard = DTensor.from_local(weight.detach(), mesh, [Replicate()], run_check=False)
    rows = operation.rows_of(torch.zeros(4, operation.WIDTH, dtype=torch.float64))
    plans = [batched_reads.Samples([batched_reads.Item(x, 0, 64)], [1], rows) for x in (weight, copy)]
    assert [tensor_memory.lent(weight), tensor_memory.lent(copy), tensor_memory.lent(torch.randn(2))] == [
        True,
        True,
        False,
    ]
    assert batched_reads.plain(weight)
    assert batched_reads.plain(copy)
    assert [plan.follows() for plan in plans] == [True, True]
    assert None not in [kernel.native.mark(x, 8) for x in (weight, copy, shard)]
    (tmp_path / "weight.pt").write_bytes(b"another")

    assert [plan.follows() for plan in plans] == [False, True]
    assert [kernel.native.mark(x, 8) is None for x in (weight, copy, shard)] == [True, False, True]
    assert not batched_reads.plain(weight)


def test_unread_names_what_it_was_and_how_often():
    unread = Unread()
    for _ in range(3):
        unread.note("parameters", Wrapper(torch.randn(2)), "a.weight")
    unread.note("outputs", resized(torch.randn(2), 0), "b")

    assert unread.told(["parameters", "outputs"]) == {
        "parameters of a.weight": "are of the class Wrapper: not read 3 times",
        "outputs of b": "had no memory any more, or it cannot be read: not read in one step",
    }
    assert unread.told(["outputs"], least=2) == {}
    assert unread.times("parameters") == 3
