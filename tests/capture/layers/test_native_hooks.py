"""The native hooks of layers see what the hooks in Python see, in ordinary programs and in odd ones."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import timeit
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
import torch
from tests.capture.captured_run import CapturedRun, capture_run
from tests.session.seeded_trainings import TRAININGS
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from neuraldbg.capture.guest import native as kernel
from neuraldbg.capture.layers import layer_hook
from neuraldbg.capture.parameters import batched_reads
from neuraldbg.capture.parameters.parameters import Params
from neuraldbg.capture.readers.loss import first_nonfinite
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=["lent", "asked"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How native code learns where a tensor lies: by DLPack, or as with a torch before 2.10, which has none for C."""
    if kernel.native is not None:
        kernel.meet(kernel.native, lends=request.param == "lent")
    yield request.param
    if kernel.native is not None:
        kernel.meet(kernel.native)


needs_native = pytest.mark.skipif(kernel.native is None, reason="the native kernel was not built")


def trained(model: nn.Module, forward: Callable[[Tensor, int], Tensor], x: Tensor, steps: int = 14) -> None:
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        opt.zero_grad()
        forward(x, step).square().mean().backward()
        opt.step()


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Identity(), nn.ReLU(inplace=True), nn.Linear(8, 4), nn.Sigmoid())


def same_tensor_from_two_layers() -> None:
    model = plain()
    trained(model, lambda x, _: model(x), torch.randn(16, 6))


def called_twice() -> None:
    model = plain()
    again = nn.Linear(4, 6)
    both = nn.ModuleList([model, again])

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = both

        def forward(self, x: Tensor) -> Tensor:
            return self.parts[0](self.parts[1](self.parts[0](x)))

    whole = Twice()
    trained(whole, lambda x, _: whole(x), torch.randn(16, 6))


def checkpointed(*, reentrant: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(6, 6), plain()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, self.first(x), use_reentrant=reentrant)

    torch.manual_seed(0)
    model = Net()
    trained(model, lambda x, _: model(x), torch.randn(16, 6))


def changing() -> None:
    """Layouts, sizes and dtypes that change from step to step, a slice, a frozen stretch and a double backward."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3))

    def forward(x: Tensor, step: int) -> Tensor:
        if step % 3 == 0:
            x = x.to(memory_format=torch.channels_last)
        model[0].requires_grad_(step % 4 != 0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 5 == 0):
            out = model(x[: 3 + step])
        if step == 7:
            (slope,) = torch.autograd.grad(out.sum(), model[3].weight, create_graph=True)
            out = out * (1 + slope.square().mean())
        return out.float()

    trained(model, forward, torch.randn(20, 3, 6, 6))


def nan_and_inf() -> None:
    model = plain()
    x = torch.randn(16, 6)
    x[3, 2], x[4, 4] = float("nan"), float("inf")
    trained(model, lambda x, _: model(x), x)


def subclassed() -> None:
    class Own(Tensor):
        pass

    model = plain()
    trained(model, lambda x, step: model(x.as_subclass(Own) if step % 2 else x), torch.randn(16, 6))


ODD = {
    "same tensor": same_tensor_from_two_layers,
    "called twice": called_twice,
    "checkpoint": lambda: checkpointed(reentrant=False),
    "reentrant checkpoint": lambda: checkpointed(reentrant=True),
    "changing": changing,
    "nan and inf": nan_and_inf,
    "subclass": subclassed,
}


def equal(mine: CapturedRun, other: CapturedRun) -> None:
    assert len(mine.steps) == len(other.steps)
    assert [site.label for site in mine.layout.sites] == [site.label for site in other.layout.sites]
    assert [site.dtype for site in mine.layout.sites] == [site.dtype for site in other.layout.sites]
    for a, b in zip(mine.steps, other.steps, strict=True):
        np.testing.assert_array_equal(a.table, b.table)


def bare(program: Callable[[], Any]) -> None:
    with warnings.catch_warnings():  # reentrant checkpoints warn of inputs without gradient
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        program()


@needs_native
@pytest.mark.parametrize("name", [*TRAININGS, *ODD])
def test_native_hooks_see_what_python_hooks_see(name: str) -> None:
    if name in ODD:
        program = ODD[name]
    else:
        training = TRAININGS[name]

        def program() -> None:
            training(lambda model: mock.MagicMock())

    native = capture_run(lambda: bare(program))
    used = [each.quick is not None for each in native.capture.hooks.probes.values()]
    with mock.patch.object(layer_hook, "native", None):
        python = capture_run(lambda: bare(program))
    assert any(used)
    assert not any(each.quick for each in python.capture.hooks.probes.values())
    equal(native, python)


@needs_native
def test_an_output_with_a_native_hook_can_be_saved_and_its_model_copied() -> None:
    model = plain()
    kept: list[Tensor] = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            opt.zero_grad()
            hidden = model[0](torch.randn(4, 6))
            kept.append(model[1:](hidden))
            kept[-1].sum().backward()
            opt.step()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert torch.equal(pickle.loads(pickle.dumps(kept[-1].detach())), kept[-1])
                file = io.BytesIO()
                torch.save(kept[-1], file)
                file.seek(0)
                assert torch.equal(torch.load(file), kept[-1])
            copies.append(copy.deepcopy(model))

    copies: list[nn.Sequential] = []
    seen = capture_run(program, model)
    norms = [seen.norm("activation", "0", step=i) for i in range(6)]
    copies[-1](torch.ones(4, 6)).sum().backward()  # a copy is nobody's: it runs, and nothing of ours is told
    assert [seen.norm("activation", "0", step=i) for i in range(6)] == norms
    assert len(seen.steps) == 6


@needs_native
def test_hooks_of_the_program_are_called_as_before_and_after_the_session() -> None:
    def gradients(*, watched: bool) -> list[Tensor]:
        model, found = plain(), []
        outputs: list[Tensor] = []

        def program() -> None:
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(6):
                opt.zero_grad()
                out = model[0](torch.full((4, 6), 0.1 * step))
                handle = out.register_hook(lambda grad: grad * 2)  # one of the program that changes it
                out.register_hook(lambda grad: found.append(grad.clone()))
                if step == 4:
                    handle.remove()
                out.square().sum().backward(retain_graph=True)
                outputs.append(out)
                opt.step()

        capture_run(program, model) if watched else program()
        outputs[-1].sum().backward()  # after the session, a hook of ours is still on the tensor
        return found

    for mine, theirs in zip(gradients(watched=True), gradients(watched=False), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.0, -1.5, 3.25e-3, 6e-8, 65_000.0, float("inf"), float("nan")])
def test_the_number_of_a_loss(dtype: torch.dtype, value: float) -> None:
    x = (torch.tensor(value, dtype=dtype, requires_grad=True) * 1).reshape(())
    found = kernel.native.loss(x)
    assert found == x.item() or (np.isnan(found) and np.isnan(x.item()))
    assert kernel.native.loss(x.reshape(1, 1)) == found or np.isnan(found)


@needs_native
def test_what_is_no_loss_has_no_number() -> None:
    some = torch.ones(3, requires_grad=True)
    for other in (some * 2, torch.ones((), requires_grad=True), torch.ones(()), some.sum().to("meta"), None, 1.0):
        assert kernel.native.loss(other) is None
    assert kernel.native.loss((some * 1j).sum()) is None
    seen: list[object] = []
    torch.func.grad(lambda x: (seen.append(kernel.native.loss(x.sum() * 2)), x.sum())[1])(some)
    assert seen == [None]


def test_what_is_negated_as_it_is_read_has_the_sign_that_it_shows() -> None:
    pair = torch.tensor([1.0 + 2.0j, 3.0 - 1.0j]), torch.tensor([0.5 + 1.0j, -2.0 + 4.0j])
    loss = torch.vdot(pair[0].requires_grad_(), pair[1]).conj().imag
    assert loss.is_neg()
    if kernel.native is not None:
        assert kernel.native.loss(loss) is None  # left to Python
    for x in (loss.detach(), torch._neg_view(torch.tensor([1.0, 5.0]))):
        rows = operation.rows_of(torch.from_numpy(np.tile(operation.BLANK, (1, 1))))
        operation.observe_cpu(x, rows, 0, 0)
        assert rows.values[0, operation.SUM] == x.sum().item()
        assert (rows.values[0, operation.MIN], rows.values[0, operation.MAX]) == (x.min().item(), x.max().item())


class NegatedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch._neg_view(torch.full((8, 1), 0.25))


def test_hooks_see_the_sign_of_what_is_negated_and_lies_side_by_side() -> None:
    class Negated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch._neg_view(x)

    def train() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), Negated(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            NegatedGradient.apply(model(torch.randn(8, 4))).backward()
            optimizer.step()

    seen = capture_run(train)
    for step in range(4):
        assert -1 < seen.stat("activation", "2", "min", step=step) < seen.stat("activation", "2", "max", step=step) < 0
        assert {seen.stat("output_grad", "3", stat, step=step) for stat in ("min", "max", "mean")} == {-0.25}


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_gradients_that_lie_in_odd_ways(dtype: torch.dtype) -> None:
    bad = torch.ones(6, 4, dtype=dtype)
    bad[3, 1] = float("nan")
    for grad, finite in (
        (bad, False),
        (bad[:3], True),
        (bad[3:], False),
        (bad[4:].view(2, 1, 4).transpose(0, 1), True),  # dense, whatever the stride along one element is
        (bad.t(), None),
        (bad[:, :2], None),
        (bad[:0], None),
        (torch.ones((), dtype=dtype).expand(3), None),
        (bad.to_sparse(), None),
        (bad.to("meta"), None),
    ):
        weight = nn.Parameter(torch.zeros_like(grad))
        weight.grad = grad
        assert kernel.native.finite_gradient(weight) is finite


@needs_native
def test_tensors_that_torch_does_not_lend_do_no_harm() -> None:
    """It takes a millisecond to say so, which is heard a few times only."""
    weight, odd = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3, device="meta"))
    weight.grad, odd.grad = torch.ones(3), torch.ones(3, device="meta")
    for _ in range(10):
        assert kernel.native.finite_gradient(odd) is None
        assert kernel.native.finite_gradient(weight) is True
    assert kernel.native.loss((weight * 2).sum()) == 0.0
    sparse = torch.ones(3).to_sparse()

    def refused() -> None:
        with contextlib.suppress(RuntimeError):
            sparse.data_ptr()

    assert took(lambda: kernel.native.finite_gradient(odd)) < took(refused) / 5


def took(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some calls."""
    return min(timeit.repeat(call, number=1, repeat=20))


@needs_native
def test_gradients_that_are_not_what_their_tensors_are() -> None:
    """Of another dtype, of a subclass without memory of its own, of a model that is converted on the way."""
    xs = [torch.nn.Parameter(torch.ones(64, dtype=torch.float64)) for _ in range(3)]
    rows = np.tile(operation.BLANK, (3, 1))
    gradients = batched_reads.Gradients(xs, [rows.ctypes.data + operation.ROW * i for i in range(3)], 0)
    for x in xs:
        x.grad = torch.full_like(x, 2.0)
    assert gradients.read() == (3 * 64 * 4.0, 0.0)
    xs[1].grad.data = torch.ones(64, dtype=torch.bfloat16)
    assert gradients.read() is None
    xs[1].grad = None
    assert gradients.read() == (2 * 64 * 4.0, 0.0)
    assert gradients.missing() == [1]
    assert not gradients.outdated()
    xs[2].data = xs[2].data.float()
    assert gradients.outdated()


@needs_native
def test_a_subclass_without_memory_is_left_alone() -> None:
    calls: list[Any] = []

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner: Tensor) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))

    weight = nn.Parameter(torch.zeros(2))
    assert first_nonfinite.all_finite(weight) is None
    for values, finite in (([1.0, 2.0], True), ([1.0, float("inf")], False)):
        for made in (torch.tensor, lambda x: torch.tensor(x).repeat_interleave(2)[::2]):
            weight.grad = made(values)  # type: ignore[no-untyped-call]
            assert first_nonfinite.all_finite(weight) is finite
        weight.grad = None
        weight.grad = Wrapper(torch.tensor(values))  # type: ignore[no-untyped-call]
        calls.clear()
        assert first_nonfinite.all_finite(weight) is None
        assert not calls
    weight.grad = None
    weight.grad = torch.ones(2).to_sparse()
    assert kernel.native.finite_gradient(weight) is None
    assert first_nonfinite.all_finite(weight) is None


def test_parameters_without_a_row_have_had_their_gradients() -> None:
    model = plain()
    watched = Params(Table(5, 4096, 20))
    for path, module in model.named_modules():
        watched.add(path, module)
    model(torch.randn(4, 6)).sum().backward()
    everything = list(watched.by_id.values())
    watched.read_before(everything)
    assert [w.param is None for w in everything] == [False, True, True, True]
    assert all(w.had_grad for w in everything)
