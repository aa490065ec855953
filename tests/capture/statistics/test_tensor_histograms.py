"""Histograms against numpy's, over what other hooks of the same training see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.capture.captured_run import CapturedRun, capture_run
from tests.capture.statistics.histogram_oracle import oracle
from torch import Tensor, nn

from neuraldbg.capture.layers import layer_hook
from neuraldbg.capture.statistics import histograms, operation
from neuraldbg.capture.statistics.histograms import Binning
from neuraldbg.nouns import BINS, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CAP = 4096


def counted(x: Tensor, cap: int = CAP) -> np.ndarray:
    binning = Binning(cap)
    assert binning.begin(0)
    binning.add(3, x)
    found = binning.take()
    assert found is not None
    counts = found.counts_of(3)
    assert counts is not None
    return counts


def odd_values(dtype: torch.dtype) -> Tensor:
    """Edges of bins and their neighbours, denormals, both zeros, the largest, and what is no number."""
    info = torch.finfo(dtype)
    powers = 2.0 ** torch.arange(-160, 160, dtype=torch.float64)
    edges = torch.cat([powers, -powers]).to(dtype)
    ends = [info.max, info.tiny, info.smallest_normal * 2, np.nan, np.inf, 0.0]
    some = torch.cat([edges, torch.tensor([*ends, *(-x for x in ends)], dtype=torch.float64).to(dtype)])
    near = [torch.nextafter(some, torch.full_like(some, to)) for to in (-np.inf, np.inf)] if info.bits > 16 else []
    return torch.cat([some, *near, torch.zeros(5, dtype=dtype), some[:40] / 2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 1e4, 1e30])
def test_counts_are_those_of_numpy(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    x = (torch.randn(60, 50, dtype=torch.float64) * scale).to(dtype)
    np.testing.assert_array_equal(counted(x), oracle(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_of_odd_values_are_those_of_numpy(dtype: torch.dtype) -> None:
    x = odd_values(dtype)
    found = counted(x)
    np.testing.assert_array_equal(found, oracle(x))
    assert found.sum() == int(x.isfinite().sum())
    assert (found > 0).sum() > 30
    nothing = torch.full((9,), float("nan"), dtype=dtype)
    assert counted(nothing).sum() == 0


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("how", ["whole", "transposed", "negated", "conjugate", "one"])
def test_counts_with_and_without_native_code(how: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(histograms, "native", None)
    torch.manual_seed(0)
    x = torch.randn(30, 20) + 0.5
    x = {
        "whole": nn.Parameter(x),
        "transposed": x.T,
        "negated": torch._neg_view(x),
        "conjugate": torch.view_as_complex(x.reshape(-1, 2)).conj().imag,
        "one": x[3, 4],
    }[how]
    np.testing.assert_array_equal(counted(x), oracle(x.detach().clone().resolve_neg()))


@pytest.mark.parametrize("how", ["whole", "sliced", "channels last", "expanded", "number"])
def test_counts_of_a_large_tensor_are_those_of_its_sample(how: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 8, 16, 16) * 10 ** torch.randn(40, 1, 1, 1)
    x = {
        "whole": x,
        "sliced": x[:, 1:3, ::2],
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "expanded": x[0, 0, 0, :1].expand(500, 40),
        "number": x.sum(),
    }[how]
    before = x.clone()
    found = counted(x, 512)
    np.testing.assert_array_equal(found, oracle(operation.sample(x, 512)))
    assert 0 < found.sum() <= min(x.numel(), 2048)
    assert torch.equal(x, before)


def test_steps_lie_ever_farther_apart() -> None:
    binning = Binning(CAP)
    steps = []
    for step in range(10**6):
        if step >= binning.until(step) and binning.begin(step):
            binning.add(0, torch.ones(1))
            assert binning.take() is not None
            assert not binning.on
            steps.append(step)
    assert steps[:5] == [0, 8, 16, 24, 36]
    gaps = np.diff(steps)
    assert gaps.min() == 8
    assert (gaps[2:] / np.array(steps[2:-1]) >= 0.5).all()
    assert (len([s for s in steps if s < 1000]), len(steps)) == (13, 30)


# ---------------------------------------------------------------- real trainings


class Net(nn.Module):
    """A convolution, an in-place activation, batch norm, a layer called twice, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.twice, self.frozen = nn.Linear(24, 24), nn.Linear(24, 24).requires_grad_(requires_grad=False)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(x))).flatten(1)[:, :24]
        return self.head(torch.tanh(self.frozen(self.twice(torch.tanh(self.twice(x))))))


class Seen:
    """What hooks of the test's own saw of the steps: (step, kind, layer, call, name) -> tensors."""

    def __init__(self) -> None:
        self.step = 0
        self.calls: dict[str, int] = {}
        self.tensors: dict[tuple[Any, ...], list[Tensor]] = {}

    def put(self, x: Tensor, *site: Any) -> None:
        self.tensors.setdefault((self.step, *site), []).append(x.detach().clone())

    def watch(self, model: nn.Module) -> None:
        for path, module in model.named_modules():
            if path:
                module.register_forward_hook(lambda m, args, out, path=path: self.output(path, out))

    def output(self, path: str, out: Tensor) -> None:
        self.calls[path] = call = self.calls.get(path, -1) + 1
        self.put(out, "activation", path, call, "")
        if out.requires_grad:
            out.register_hook(lambda grad: self.put(grad, "output_grad", path, call, ""))


def training(model: nn.Module, seen: Seen, dtype: torch.dtype, steps: int) -> Callable[[], None]:
    def program() -> None:
        draw = torch.Generator().manual_seed(1)
        opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for seen.step in range(steps):
            opt.zero_grad()
            for _ in range(2):  # accumulates
                seen.calls = {}
                x = torch.randn(16, 1, 5, 5, generator=draw).to(dtype)
                seen.put(x, "input", "", 0, "")
                model(x).float().square().mean().backward()
            held = [(*name.split("."), p) for name, p in model.named_parameters() if p.requires_grad]
            for layer, name, p in held:
                seen.put(p, "param", layer, 0, name)
                seen.put(p.grad, "param_grad", layer, 0, name)
            opt.step()
            for layer, name, p in held:
                (old,) = seen.tensors[seen.step, "param", layer, 0, name]
                wide = torch.promote_types(p.dtype, torch.float32)
                seen.put(p.detach().to(wide) - old.to(wide), "update", layer, 0, name)

    return program


def run_of(found: CapturedRun) -> RunRecord:
    return RunRecord(layout=found.layout, histograms=tuple(s.histograms for s in found.steps if s.histograms))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("cap", [64, CAP])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_histograms_of_a_training_are_those_of_what_other_hooks_see(
    dtype: torch.dtype, cap: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(layer_hook, "native", None)
    torch.manual_seed(0)
    model, seen = Net().to(dtype), Seen()
    seen.watch(model)
    found = capture_run(training(model, seen, dtype, 18), model, block_cap=cap, probes=False)
    run = run_of(found)
    assert [each.step for each in run.histograms] == [0, 8, 16]
    expected = {key for key in seen.tensors if key[0] in (0, 8, 16)}
    told = set()
    for row, site in enumerate(run.layout.sites):
        course = run.histogram(row)
        for step in course.steps.tolist():
            key = (step, site.kind, site.module, site.call, site.name)
            if site.kind == "op":  # no hook tells of those
                continue
            told.add(key)
            each = next(each for each in run.histograms if each.step == step)
            want = sum(oracle(operation.sample(x, cap)) for x in seen.tensors[key])
            np.testing.assert_array_equal(each.counts_of(row), want, err_msg=str(key))
    assert told == expected
    assert len({key[1] for key in told}) == 6


def gradients_of(program: Callable[[nn.Module], None]) -> tuple[RunRecord, CapturedRun, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    found = capture_run(lambda: program(model), model, probes=False)
    return run_of(found), found, model


def test_of_a_closure_the_last_gradients_count() -> None:
    kept: list[Tensor] = []

    def program(model: nn.Module) -> None:
        opt, x = torch.optim.LBFGS(model.parameters(), max_iter=4), torch.randn(8, 6)

        def closure() -> Tensor:
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            kept.append(model[0].weight.grad.clone())
            return loss

        opt.step(closure)

    run, found, _ = gradients_of(program)
    assert len(kept) > 1
    assert not torch.equal(kept[0], kept[-1])
    counts = run.histograms[0].counts_of(found.row("param_grad", "0", "weight"))
    np.testing.assert_array_equal(counts, oracle(kept[-1]))


def test_gradients_that_are_still_to_be_unscaled_have_none() -> None:
    def program(model: nn.Module) -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        model(torch.randn(8, 6)).square().mean().backward()
        opt.grad_scale = torch.tensor(8.0)  # as GradScaler sets it
        opt.step()

    run, found, _ = gradients_of(program)
    (step,) = run.histograms
    assert step.counts_of(found.row("param_grad", "0", "weight")) is None
    assert step.counts_of(found.row("param", "0", "weight")) is not None
    assert step.counts_of(found.row("output_grad", "0")) is not None


def test_a_sparse_gradient_is_counted_by_its_values() -> None:
    torch.manual_seed(0)
    model = nn.Embedding(20, 4, sparse=True)
    grads: list[Tensor] = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.tensor([3, 5, 3])).square().sum().backward()
        grads.append(model.weight.grad.coalesce().values().clone())
        opt.step()

    found = capture_run(program, model, probes=False)
    (step,) = run_of(found).histograms
    counts = step.counts_of(found.row("param_grad", "Embedding", "weight"))
    np.testing.assert_array_equal(counts, oracle(grads[0]))
    assert step.counts_of(found.row("update", "Embedding", "weight")).sum() == 80


def test_two_optimizers_by_turns_both_have_some() -> None:
    torch.manual_seed(0)
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)

    def program() -> None:
        opts = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (one, other)]
        for _ in range(20):
            for model, opt in zip((one, other), opts, strict=True):
                opt.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                opt.step()

    found = capture_run(program, probes=False)
    rows = [row for row, site in enumerate(found.layout.sites) if (site.kind, site.name) == ("update", "weight")]
    run = run_of(found)
    assert [run.histogram(row).steps.tolist() for row in rows] == [[0, 8, 16, 24, 36], [9, 17, 25, 37]]


@pytest.mark.budget
def test_light_steps_have_none_and_the_next_full_one_has() -> None:
    def program(model: nn.Module) -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(70):
            opt.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            opt.step()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    found = capture_run(lambda: program(model), model, probes=False, overhead=1e-9, allowance_s=0.0)
    full = [step.index for step in found.steps if not step.light]
    taken = [step.index for step in found.steps if step.histograms]
    assert len(full) < 40
    due, wanted = 0, []
    for step in full:
        if step >= due:
            wanted.append(step)
            due = step + max(8, -(-step // 2))
    assert taken == wanted
    assert set(taken) <= set(full)


def test_switched_off_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError("something was counted")

    monkeypatch.setattr(histograms, "count_flat", never)
    torch.manual_seed(0)
    model, seen = Net(), Seen()
    seen.watch(model)
    found = capture_run(training(model, seen, torch.float32, 10), model, histograms=False, probes=False)
    assert len(found.steps) == 10
    assert not any(step.histograms for step in found.steps)


def test_one_bin_for_each_code() -> None:
    """All sums of codes: no code is counted twice or lost but for those of NaN and infinity."""
    every = histograms.binned(np.eye(512, dtype=np.int64))
    assert every.shape == (512, BINS)
    assert every.sum(axis=1).tolist() == ([1] * 255 + [0]) * 2
